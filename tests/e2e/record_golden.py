#!/usr/bin/env python3
"""Records the golden curves of golden/*.json with PyTorch on the CPU.

    python3 tests/e2e/record_golden.py [--out tests/e2e/golden]

Recorded with the PyTorch that the files name; tests/core/golden/golden_test.cc compares the program
with them and needs no PyTorch. Everything that is not in a file is a formula both sides compute:

  hash      the finaliser of MurmurHash3 (32 bits) of an integer
  label     of sample s: hash(s) mod classes
  pixel     k of sample s: (3 * pattern + noise - 510) / 256, exact in float32, where pattern =
            hash(1000003 + label * pixels + k) / 2^24, noise = hash(2000003 + s * pixels + k) / 2^24
  weight    i of parameter p (numbered as in the file): (2 u - 1) * (1 / sqrt(fan_in)) in float64,
            rounded to float32, with u = (hash(p * 2^20 + i) / 2^8) / 2^24; a bias has its layer's
            fan_in
  batch     of step t: samples t * batch + j modulo the number of samples

(hash gives an integer, and its quotient by 2^24 or 2^8 is rounded down). The loss is the mean
cross-entropy of a batch before its update. Biases do not decay.

The files hold, per model, the first step in float64 (loss, and of each gradient its norm and up to
512 elements, number k of m at index floor(k * size / m)), and, per optimizer, the losses of the
float32 run and how far PyTorch is from itself ("spread"): the largest absolute difference, over all
steps, from the runs in float64, with two threads, and with the samples of each batch permuted.
"""

import argparse
import json
import math
import pathlib

import numpy as np
import torch

MODELS = {
    "mlp": {"batch": 64, "hidden": [64, 64]},
    "lenet": {"batch": 64, "hidden": []},
}
OPTIMIZERS = {
    "sgd": {"momentum": 0.9, "weight_decay": 0.005},
    "adamw": {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.1},
}
# Chosen so that the loss falls steadily: a chaotic curve would compare nothing.
LEARNING_RATES = {
    ("mlp", "sgd"): 0.005,
    ("mlp", "adamw"): 0.0003,
    ("lenet", "sgd"): 0.02,
    ("lenet", "adamw"): 0.0003,
}
SAMPLES, SIDE, CLASSES, STEPS, KEPT = 512, 28, 10, 50, 512
PIXELS = SIDE * SIDE
PERMUTATIONS = 16
LEAST_FALL = 0.2
SPREAD_FLOOR = 1e-5
MOST_SPREAD = 1e-3  # beyond this the comparison would be idle


def mix(values):
    h = np.asarray(values, dtype=np.uint64) & np.uint64(0xFFFFFFFF)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        h ^= h >> np.uint64(shift)
        h = (h * np.uint64(factor)) & np.uint64(0xFFFFFFFF)
    return h.astype(np.int64)


def make_data():
    samples = np.arange(SAMPLES)
    labels = mix(samples) % CLASSES
    k = np.arange(PIXELS)
    pattern = mix(1000003 + labels[:, None] * PIXELS + k) >> 24
    noise = mix(2000003 + samples[:, None] * PIXELS + k) >> 24
    pixels = ((3 * pattern + noise - 510) / 256).astype(np.float32)
    return torch.from_numpy(pixels.reshape(SAMPLES, 1, SIDE, SIDE)), torch.from_numpy(labels)


def make_model(name):
    nn = torch.nn
    if name == "mlp":
        widths = [PIXELS, *MODELS[name]["hidden"], CLASSES]
        layers = [("flatten", nn.Flatten())]
        for i in range(1, len(widths)):
            layers.append((f"fc{i}", nn.Linear(widths[i - 1], widths[i])))
            layers.append((f"relu{i}", nn.ReLU()))
        layers.pop()
    else:
        layers = [
            ("conv1", nn.Conv2d(1, 6, 5, padding=2)), ("relu1", nn.ReLU()),
            ("pool1", nn.MaxPool2d(2)),
            ("conv2", nn.Conv2d(6, 16, 5)), ("relu2", nn.ReLU()), ("pool2", nn.MaxPool2d(2)),
            ("flatten", nn.Flatten()),
            ("fc1", nn.Linear(400, 120)), ("relu3", nn.ReLU()),
            ("fc2", nn.Linear(120, 84)), ("relu4", nn.ReLU()), ("fc3", nn.Linear(84, CLASSES)),
        ]
    model = nn.Sequential()
    for layer, module in layers:
        model.add_module(layer, module)
    with torch.no_grad():
        for p, (_, tensor, fan_in) in enumerate(parameters(model)):
            u = (mix((p << 20) + np.arange(tensor.numel())) >> 8) / 2.0**24
            values = ((2 * u - 1) * (1 / math.sqrt(fan_in))).astype(np.float32)
            tensor.copy_(torch.from_numpy(values.reshape(tensor.shape)))
    return model


def parameters(model):
    """(name, tensor, fan_in) in the order of definition; a bias follows its weight."""
    out = []
    for name, tensor in model.named_parameters():
        fan_in = tensor[0].numel() if name.endswith(".weight") else out[-1][2]
        out.append((name, tensor, fan_in))
    return out


def make_optimizer(name, model, lr):
    settings = OPTIMIZERS[name]
    weights = [t for n, t, _ in parameters(model) if n.endswith(".weight")]
    biases = [t for n, t, _ in parameters(model) if n.endswith(".bias")]
    groups = [{"params": weights, "weight_decay": settings["weight_decay"]},
              {"params": biases, "weight_decay": 0.0}]
    if name == "sgd":
        return torch.optim.SGD(groups, lr=lr, momentum=settings["momentum"])
    return torch.optim.AdamW(groups, lr=lr, betas=(settings["beta1"], settings["beta2"]),
                             eps=settings["epsilon"])


def batch_ids(step, batch, permutation):
    ids = (step * batch + torch.arange(batch)) % SAMPLES
    if permutation is None:
        return ids
    generator = torch.Generator().manual_seed(1000 * permutation + step)
    return ids[torch.randperm(batch, generator=generator)]


def losses(model_name, optimizer_name, dtype=torch.float32, threads=1, permutation=None):
    torch.set_num_threads(threads)
    x, y = make_data()
    x = x.to(dtype)
    model = make_model(model_name).to(dtype)
    optimizer = make_optimizer(optimizer_name, model, LEARNING_RATES[model_name, optimizer_name])
    out = []
    for step in range(STEPS):
        ids = batch_ids(step, MODELS[model_name]["batch"], permutation)
        loss = torch.nn.functional.cross_entropy(model(x[ids]), y[ids])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        out.append(loss.item())
    return out


def distance(a, b):
    return max(abs(p - q) for p, q in zip(a, b))


def curve(model_name, optimizer_name):
    reference = losses(model_name, optimizer_name)
    # A relu or an argmax that falls to the other side makes a visible step; it is rare, so that
    # many permutations are needed to see how large it is.
    permuted = [losses(model_name, optimizer_name, permutation=i + 1) for i in range(PERMUTATIONS)]
    spread = {
        "float64": distance(losses(model_name, optimizer_name, dtype=torch.float64), reference),
        "two_threads": distance(losses(model_name, optimizer_name, threads=2), reference),
        "permuted": max(distance(other, reference) for other in permuted),
    }
    largest = max(SPREAD_FLOOR, *spread.values())
    fall = 1 - reference[-1] / reference[0]
    print(f"{model_name} {optimizer_name}: loss falls by {fall:.0%}, spread {spread}")
    assert fall >= LEAST_FALL, f"the loss fell by {fall:.0%} only"
    assert largest <= MOST_SPREAD, f"PyTorch is {largest} from itself"
    return {"lr": LEARNING_RATES[model_name, optimizer_name], **OPTIMIZERS[optimizer_name],
            "spread": largest, "spread_of": spread, "losses": reference}


def first_gradients(model_name, dtype):
    torch.set_num_threads(1)
    x, y = make_data()
    model = make_model(model_name).to(dtype)
    ids = batch_ids(0, MODELS[model_name]["batch"], None)
    loss = torch.nn.functional.cross_entropy(model(x[ids].to(dtype)), y[ids])
    loss.backward()
    return loss.item(), model


def first_step(model_name):
    loss, model = first_gradients(model_name, torch.float64)
    _, single = first_gradients(model_name, torch.float32)
    entries = []
    for (name, tensor, fan_in), (_, other, _) in zip(parameters(model), parameters(single)):
        gradient = tensor.grad.flatten()
        norm = gradient.norm().item()
        off = (other.grad.flatten().double() - gradient).norm().item() / norm
        print(f"{model_name} {name}: float32 is {off:.1e} from float64")
        assert off < 2e-5, "badly conditioned: an argmax or a relu depends on the precision"
        kept = min(KEPT, gradient.numel())
        index = torch.arange(kept) * gradient.numel() // kept
        entries.append({"name": name, "shape": list(tensor.shape), "fan_in": fan_in,
                        "gradient_norm": norm,
                        "gradient": [float(f"{g:.10g}") for g in gradient[index].tolist()]})
    return loss, entries


def record(model_name, folder):
    loss, entries = first_step(model_name)
    golden = {
        "recorder": "tests/e2e/record_golden.py", "torch": torch.__version__, "model": model_name,
        "hidden": MODELS[model_name]["hidden"], "batch": MODELS[model_name]["batch"],
        "samples": SAMPLES, "side": SIDE, "classes": CLASSES, "first_loss": loss,
        "parameters": entries,
        "curves": {name: curve(model_name, name) for name in OPTIMIZERS},
    }
    path = folder / f"{model_name}.json"
    path.write_text(json.dumps(golden, separators=(",", ":")).replace('{"name"', '\n{"name"')
                    .replace('"curves"', '\n"curves"').replace('"adamw":', '\n"adamw":') + "\n")
    print(f"{path}: {path.stat().st_size} bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    here = pathlib.Path(__file__).parent
    parser.add_argument("--out", type=pathlib.Path, default=here / "golden")
    folder = parser.parse_args().out
    for model_name in MODELS:
        record(model_name, folder)


if __name__ == "__main__":
    main()
