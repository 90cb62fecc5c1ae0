#!/usr/bin/env python3
"""Runs the cells of the straggler suite and writes their table; started by straggler_suite.sh."""
import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from straggler_table import write_tables

POLICIES = ["bsp", "balance", "drop", "quorum", "window", "local", "diloco", "selsync"]
SCENARIOS = [f"S{i}" for i in range(10)]
# What the README recommends for the kind of trouble that a scenario stands for.
RECOMMENDED = {"S1": "quorum", "S2": "quorum", "S3": "quorum", "S4": "drop", "S5": "balance", "S6": "window",
               "S7": "balance", "S8": "local", "S9": "quorum"}
SHORT = [("S0", "bsp"), ("S0", "quorum"), ("S1", "bsp"), ("S1", "quorum"), ("S2", "bsp"), ("S2", "quorum"),
         ("S5", "bsp"), ("S5", "balance"), ("S5", "window"), ("S6", "window"), ("S8", "bsp"), ("S8", "local")]
LINK_MBIT = 100  # emulated in S8, so that transfers matter
BATCH = 128


def run(ranks, options, folder):
    """Runs one training. Returns (seconds of the cores used per second, lines of the log)."""
    command = ["mpirun", "-n", str(ranks), "--bind-to", "none", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1",
               os.environ["SIDESTEP"], "train", "--out", str(folder), "--threads", "1", "--model", "lenet",
               "--data", "fashion-mnist", "--batch", str(BATCH), "--checkpoint-every", "1000000", *options]
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with status {done.returncode}:\n{done.stdout}{done.stderr}")
    used = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return used / (time.monotonic() - begin), (done.stdout + done.stderr).splitlines()


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def throughput(folder):
    """Over the second half of the rounds, when policies have calibrated themselves: (samples per second,
    those of ranks that are always busy)."""
    rounds = read_lines(folder / "metrics.jsonl")
    rounds = rounds[len(rounds) // 2:]
    applied = sum(r["samples"] + r["late_samples"] for r in rounds)
    seconds = sum(r["seconds"] for r in rounds)
    busy = {}
    for line in read_lines(folder / "ranks.jsonl"):
        if line["first_step"] < rounds[0]["step"]:
            continue
        samples, compute = busy.get(line["rank"], (0, 0))
        busy[line["rank"]] = samples + line["samples"], compute + line["compute_seconds"]
    return applied / seconds, sum(s / c for s, c in busy.values() if c > 0)


def detection(folder, log):
    """(steps from the first delay of a rank to the line that names it, share of named ranks that were
    delayed then or in the 64 steps before); None where nothing was delayed or named."""
    delayed = {r["step"]: set(r["delayed"]) for r in read_lines(folder / "metrics.jsonl")}
    named = []
    for line in log:
        if found := re.search(r"rank (\d+) on \S+ is slow since step (\d+)", line):
            named.append((int(found.group(1)), int(found.group(2))))
    right = [any(rank in delayed.get(s, ()) for s in range(since - 64, since + 64)) for rank, since in named]
    delays = []
    for rank, since in named:
        steps = [s for s, ranks in delayed.items() if rank in ranks and s >= since - 64]
        if steps:
            delays.append(max(since - min(steps), 0))
    return (statistics.median(delays) if delays else None, sum(right) / len(right) if right else None)


def throughput_cell(args, ranks, policy, scenario):
    steps = {"S7": 1200}.get(scenario, 300) if args.form == "full" else {"S7": 300}.get(scenario, 60)
    options = ["--policy", policy, "--inject", scenario, "--emulate-step", str(args.step_ms), "--seed", "1",
               "--eval-every", "0", "--steps", str(steps), "--ranks-every", "8"]
    if policy == "window":  # a round is a window of several steps
        options[options.index("--steps") + 1] = str(max(steps // 8, 12))
        options[options.index("--ranks-every") + 1] = "1"
    if scenario == "S8":
        options += ["--emulate-link", str(LINK_MBIT)]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run"
        cores, log = run(ranks, options, folder)
        rate, ideal = throughput(folder)
        delay, precision = detection(folder, log)
        summary = json.loads((folder / "summary.json").read_text())
    return {"kind": "throughput", "ranks": ranks, "policy": policy, "scenario": scenario, "steps": steps,
            "step_ms": args.step_ms, "samples_per_second": rate, "ideal": ideal, "percent": 100 * rate / ideal,
            "cores": cores, "valid": cores < os.cpu_count() / 2, "ages": summary["samples_by_age"],
            "written_off": summary["samples_written_off"], "participation": summary["participation"],
            "bytes": summary["bytes_exchanged_per_rank"], "detection_delay": delay, "precision": precision}


def accuracy_cell(args, ranks, policy, scenario, seed):
    """Equal samples for all policies; evaluated ten times."""
    epochs, step_ms = args.accuracy_epochs, args.accuracy_step_ms
    steps = epochs * 60000 // BATCH
    options = ["--policy", policy, "--inject", scenario, "--emulate-step", str(step_ms), "--seed", str(seed),
               "--epochs", str(epochs), "--lr", "0.05", "--eval-every", f"{max(steps // 10, 1)}steps"]
    if policy == "window":
        options[-1] = f"{max(steps // 80, 1)}steps"
    if scenario == "S8":
        options += ["--emulate-link", str(LINK_MBIT)]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run"
        cores, _ = run(ranks, options, folder)
        curve, seconds = [], 0
        for line in read_lines(folder / "metrics.jsonl"):
            seconds += line["seconds"]
            if line["eval_accuracy"] is not None:
                curve.append([seconds, line["eval_accuracy"]])
        summary = json.loads((folder / "summary.json").read_text())
    return {"kind": "accuracy", "ranks": ranks, "policy": policy, "scenario": scenario, "seed": seed,
            "step_ms": step_ms, "epochs": epochs, "accuracy": summary["test_accuracy"], "seconds": seconds,
            "curve": curve, "cores": cores, "valid": cores < os.cpu_count() / 2}


def overhead_cell(args, ranks, policy, pair):
    """One pair of S0: bsp and the policy, in turn; the ratio of their speeds."""
    rates = {}
    for name in ("bsp", policy) if pair % 2 == 0 else (policy, "bsp"):
        rates[name] = throughput_cell(args, ranks, name, "S0")
    cell = rates[policy]
    return {**cell, "kind": "overhead", "pair": pair, "ratio": cell["percent"] / rates["bsp"]["percent"]}


def cells(args):
    """(name, function) of each cell of the form."""
    chosen = [(s, p) for s in args.scenarios for p in args.policies]
    if args.form == "short":
        chosen = [cell for cell in SHORT if cell in chosen]
    for ranks in args.ranks:
        if args.form == "overhead":
            for pair in range(args.pairs):
                for policy in args.policies:
                    if policy != "bsp":
                        yield f"overhead-{ranks}-{policy}-{pair}", lambda r=ranks, p=policy, k=pair: overhead_cell(args, r, p, k)
            continue
        if args.only != "accuracy":
            for scenario, policy in chosen:
                yield (f"throughput-{ranks}-{scenario}-{policy}",
                       lambda r=ranks, p=policy, s=scenario: throughput_cell(args, r, p, s))
        if args.only == "throughput" or (args.form == "short" and args.only != "accuracy"):
            continue
        for scenario in args.scenarios:
            for policy in dict.fromkeys(["bsp", RECOMMENDED.get(scenario, "bsp")]):
                for seed in range(1, args.seeds + 1):
                    yield (f"accuracy-{ranks}-{scenario}-{policy}-{seed}",
                           lambda r=ranks, p=policy, s=scenario, k=seed: accuracy_cell(args, r, p, s, k))


def parse():
    parser = argparse.ArgumentParser()
    words = lambda text: text.split()
    parser.add_argument("--form", choices=["short", "full", "overhead"], default="short")
    parser.add_argument("--out", type=Path, default=Path("run/straggler-suite"))
    parser.add_argument("--ranks", type=lambda text: [int(n) for n in text.split()], default=None)
    parser.add_argument("--policies", type=words, default=POLICIES)
    parser.add_argument("--scenarios", type=words, default=SCENARIOS)
    parser.add_argument("--only", choices=["throughput", "accuracy"])
    parser.add_argument("--step-ms", type=float, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--accuracy-epochs", type=int, default=2)
    parser.add_argument("--accuracy-step-ms", type=float, default=40)
    args = parser.parse_args()
    args.ranks = args.ranks or ([4] if args.form == "short" else [8] if args.form == "overhead" else [4, 8])
    args.step_ms = int(args.step_ms) if args.step_ms == int(args.step_ms) else args.step_ms
    return args


def main():
    args = parse()
    args.out.mkdir(parents=True, exist_ok=True)
    todo = list(cells(args))
    for number, (name, measure) in enumerate(todo, 1):
        path = args.out / f"{name}.json"
        if path.exists():
            continue
        print(f"{number} of {len(todo)}: {name}", file=sys.stderr, flush=True)
        result = measure()
        part = path.with_suffix(".part")
        part.write_text(json.dumps(result) + "\n")
        part.rename(path)
    write_tables(args.out)


if __name__ == "__main__":
    main()
