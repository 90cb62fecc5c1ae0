#!/usr/bin/env python3
"""PyTorch's speed on the model and batch of `sidestep bench`: forward, backward, SGD with momentum.

usage: torch_baseline.py lenet|mlp [--batch 128] [--steps 100] [--threads 1] [--hidden 1024,1024]
Prints one line of JSON: {"model", "batch", "threads", "samples_per_second", "torch"}.
"""
import argparse
import json
import os
import sys
import time

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # spinning threads make torch slower than one

try:
    import torch
    from torch import nn
except ImportError:
    sys.exit("torch_baseline.py: this Python has no torch (Debian: python3-torch)")


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))


def mlp(hidden):
    layers, width = [nn.Flatten()], 784
    for size in hidden:
        layers += [nn.Linear(width, size), nn.ReLU()]
        width = size
    return nn.Sequential(*layers, nn.Linear(width, 10))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=["lenet", "mlp"])
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--hidden", default="1024,1024")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    model = lenet() if args.model == "lenet" else mlp([int(h) for h in args.hidden.split(",")])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    x = torch.randn(args.batch, 1, 28, 28)
    y = torch.randint(0, 10, (args.batch,))

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss_of(model(x), y).backward()
        optimizer.step()

    for _ in range(10):
        step()
    begin = time.perf_counter()
    for _ in range(args.steps):
        step()
    seconds = time.perf_counter() - begin
    print(json.dumps({"model": args.model, "batch": args.batch, "threads": args.threads,
                      "samples_per_second": args.steps * args.batch / seconds,
                      "torch": torch.__version__}))


if __name__ == "__main__":
    main()
