#!/usr/bin/env python3
"""Runs the cells of the straggler suite and writes their table; started by straggler_suite.sh."""
import argparse
import functools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from straggler_table import write_tables

POLICIES = ["bsp", "balance", "drop", "quorum", "window", "local", "diloco", "selsync"]
SCENARIOS = [f"S{i}" for i in range(10)]
# What the README recommends for the kind of trouble that a scenario stands for.
RECOMMENDED = {"S1": "quorum", "S2": "quorum", "S3": "quorum", "S4": "drop", "S5": "balance", "S6": "balance",
               "S7": "balance", "S8": "local", "S9": "quorum"}
SHORT = [("S0", "bsp"), ("S0", "quorum"), ("S1", "bsp"), ("S1", "quorum"), ("S2", "bsp"), ("S2", "quorum"),
         ("S4", "bsp"), ("S4", "drop"), ("S5", "bsp"), ("S5", "balance"), ("S5", "window"), ("S6", "bsp"),
         ("S6", "balance"), ("S6", "window"), ("S7", "bsp"), ("S7", "balance"), ("S8", "bsp"), ("S8", "local")]
# Steps and, with bursts that need them, of S7; the second half is measured, so balance (16 + 16) must fit into the first.
STEPS = {"short": (72, 300), "full": (300, 1200), "overhead": (160, 160)}
DROP_STEPS = 160  # at least: drop calibrates itself after 50 + 16
ROUND_STEPS = {"window": 8, "local": 8, "diloco": 30, "selsync": 10}  # local steps between exchanges, about
LINK_ROUNDS = 48  # S8, at least: the link is slow after 20, so that the detector knows the usual one
LINK_MBIT = 100  # emulated in S8, so that transfers matter
BATCH = 128


def run(ranks, options, folder):
    """Runs one training. Returns (CPU seconds of mpirun and all ranks, lines of the log)."""
    command = ["mpirun", "-n", str(ranks), "--bind-to", "none", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1",
               os.environ["SIDESTEP"], "train", "--out", str(folder), "--threads", "1", "--model", "lenet",
               "--data", "fashion-mnist", "--batch", str(BATCH), "--checkpoint-every", "1000000", *options]
    with tempfile.TemporaryFile("w+") as log:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        log.seek(0)
        text = log.read()
    if child.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with status {child.returncode}:\n{text}")
    return used.ru_utime + used.ru_stime, text.splitlines()


@functools.cache
def start_cpu(ranks):
    """CPU seconds of starting, reading the data and the last evaluation, which are no part of a cell."""
    with tempfile.TemporaryDirectory() as scratch:
        return run(ranks, ["--steps", "1", "--seed", "1", "--eval-every", "0"], Path(scratch) / "run")[0]


def train(cell, options):
    """Runs the cell's training. Returns (its files as lists of lines and a summary, the cores in use on average)."""
    options = ["--policy", cell["policy"], "--inject", cell["scenario"], "--emulate-step", str(cell["step_ms"]),
               "--seed", str(cell["seed"]), *options]
    if cell["scenario"] == "S8":
        options += ["--emulate-link", str(LINK_MBIT)]
    if cell["scenario"] == "S4" and cell["policy"] != "window":  # delays are drawn for each of 8 micro-batches
        options += ["--micro-batch", str(max(BATCH // cell["ranks"] // 8, 1))]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run"
        cpu, log = run(cell["ranks"], options, folder)
        lines = lambda name: [json.loads(line) for line in (folder / name).read_text().splitlines()]
        files = {"rounds": lines("metrics.jsonl"), "ranks": lines("ranks.jsonl"), "log": log,
                 "summary": json.loads((folder / "summary.json").read_text())}
    cores = (cpu - start_cpu(cell["ranks"])) / files["summary"]["training_seconds"]
    return files, {"cores": cores, "valid": cores < os.cpu_count() / 2}


def throughput(rounds, ranks):
    """Over the second half of the rounds, when policies have calibrated themselves: (samples per second,
    those of ranks that are always busy)."""
    rounds = rounds[len(rounds) // 2:]
    applied = sum(r["samples"] + r["late_samples"] for r in rounds)
    seconds = sum(r["seconds"] for r in rounds)
    busy = {}
    for line in ranks:
        if line["first_step"] < rounds[0]["step"]:
            continue
        samples, compute = busy.get(line["rank"], (0, 0))
        busy[line["rank"]] = samples + line["samples"], compute + line["compute_seconds"]
    return applied / seconds, sum(s / c for s, c in busy.values() if c > 0)


def onset(delayed, rank, step):
    """First step of the delays that the rank was in at `step`, or up to 64 steps before; None: in none."""
    steps = [s for s in range(max(step - 64, 1), step + 1) if rank in delayed.get(s, ())]
    if not steps:
        return None
    first = steps[-1]
    while rank in delayed.get(first - 1, ()):
        first -= 1
    return first


def detection(rounds, ranks, log):
    """(steps from the first delay of a rank until it was named in the log, median; share of the named that were
    delayed). None where nobody was named. When: to the interval of ranks.jsonl."""
    delayed = {r["step"]: set(r["delayed"]) for r in rounds}
    delays, named = [], 0
    for line in log:
        if not (found := re.search(r"rank (\d+) on \S+ is slow since step (\d+)", line)):
            continue
        named += 1
        rank, since = int(found.group(1)), int(found.group(2))
        at = min((i["last_step"] for i in ranks
                  if i["rank"] == rank and i["state"] == "slow" and i["last_step"] >= since), default=since)
        first = onset(delayed, rank, at)
        if first is not None:
            delays.append(at - first)
    return (statistics.median(delays) if delays else None, len(delays) / named if named else None)


def throughput_cell(cell):
    interval = 8
    steps = cell["steps"]
    if cell["policy"] == "window":  # its steps are rounds
        steps, interval = steps // ROUND_STEPS["window"], 1
    files, cpu = train(cell, ["--eval-every", "0", "--steps", str(steps), "--ranks-every", str(interval)])
    rounds, ranks, summary = files["rounds"], files["ranks"], files["summary"]
    rate, ideal = throughput(rounds, ranks)
    # Where a round is a step: else the truth of a line does not cover its steps.
    delay, precision = (None, None) if cell["policy"] in ROUND_STEPS else detection(rounds, ranks, files["log"])
    return {"samples_per_second": rate, "ideal": ideal, "percent": 100 * rate / ideal,
            "ages": summary["samples_by_age"], "written_off": summary["samples_written_off"],
            "participation": summary["participation"], "bytes": summary["bytes_exchanged_per_rank"],
            "detection_delay": delay, "precision": precision, **cpu}


def accuracy_cell(cell):
    """Equal samples for all policies; evaluated about ten times."""
    steps = cell["epochs"] * 60000 // BATCH
    every = steps // ROUND_STEPS["window"] if cell["policy"] == "window" else steps
    files, cpu = train(cell, ["--epochs", str(cell["epochs"]), "--eval-every", f"{max(every // 10, 1)}steps"])
    curve, seconds = [], 0
    for line in files["rounds"]:
        seconds += line["seconds"]
        if line["eval_accuracy"] is not None:
            curve.append([seconds, line["eval_accuracy"]])
    return {"accuracy": files["summary"]["test_accuracy"], "seconds": seconds, "curve": curve,
            "classes": files["summary"].get("samples_by_class"), **cpu}


def overhead_cell(cell):
    """bsp and the policy in turn; the ratio of their speeds."""
    order = ("bsp", cell["policy"]) if cell["pair"] % 2 == 0 else (cell["policy"], "bsp")
    runs = {name: throughput_cell({**cell, "policy": name}) for name in order}
    rates = {name: r["samples_per_second"] for name, r in runs.items()}
    return {"rates": rates, "ratio": rates[cell["policy"]] / rates["bsp"], "cores": max(r["cores"] for r in runs.values()),
            "valid": all(r["valid"] for r in runs.values())}


MEASURE = {"throughput": throughput_cell, "accuracy": accuracy_cell, "overhead": overhead_cell}


def steps_of(args, policy, scenario):
    usual, bursts = STEPS[args.form]
    steps = args.steps or (bursts if scenario == "S7" else usual)
    if policy == "drop":
        steps = max(steps, DROP_STEPS)
    if policy == "window":
        steps = max(steps, 12 * ROUND_STEPS["window"])
    return max(steps, LINK_ROUNDS * ROUND_STEPS.get(policy, 1)) if scenario == "S8" else steps


def cells(args):
    """The form's cells: what is run, without results."""
    for ranks in args.ranks:
        base = {"ranks": ranks, "batch": BATCH, "step_ms": args.step_ms}
        if args.form == "overhead":
            for pair in range(args.pairs):
                for policy in args.policies:
                    if policy != "bsp":
                        yield {"kind": "overhead", "scenario": "S0", "policy": policy, "seed": 1, "pair": pair,
                               "steps": steps_of(args, policy, "S0"), **base}
            continue
        if args.only != "accuracy":
            for scenario in args.scenarios:
                for policy in args.policies:
                    if args.form == "full" or (scenario, policy) in SHORT:
                        yield {"kind": "throughput", "scenario": scenario, "policy": policy, "seed": 1,
                               "steps": steps_of(args, policy, scenario), **base}
        if args.only == "throughput" or (args.form == "short" and args.only != "accuracy"):
            continue
        for scenario in args.scenarios:
            for policy in dict.fromkeys(["bsp", RECOMMENDED.get(scenario, "bsp")]):
                for seed in range(1, args.seeds + 1):
                    yield {"kind": "accuracy", "scenario": scenario, "policy": policy, "seed": seed,
                           "epochs": args.accuracy_epochs, **base, "step_ms": args.accuracy_step_ms}


def name_of(cell):
    last = {"throughput": [], "accuracy": [cell["seed"]], "overhead": [cell.get("pair")]}[cell["kind"]]
    return "-".join(str(part) for part in (cell["kind"], cell["ranks"], cell["scenario"], cell["policy"], *last))


def finished(path, cell):
    """Whether the cell was measured before, with the same settings."""
    return path.exists() and cell.items() <= json.loads(path.read_text()).items()


def parse():
    parser = argparse.ArgumentParser()
    words = lambda text: text.split()
    parser.add_argument("--form", choices=["short", "full", "overhead"], default="short")
    parser.add_argument("--out", type=Path, default=Path("run/straggler-suite"))
    parser.add_argument("--ranks", type=lambda text: [int(n) for n in text.split()])
    parser.add_argument("--policies", type=words, default=POLICIES)
    parser.add_argument("--scenarios", type=words, default=SCENARIOS)
    parser.add_argument("--only", choices=["throughput", "accuracy"])
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--step-ms", type=float, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--accuracy-epochs", type=int, default=2)
    parser.add_argument("--accuracy-step-ms", type=float, default=40)
    args = parser.parse_args()
    if args.pairs < 6:
        parser.error("--pairs: expected at least 6, with fewer there is no interval of 95 %")
    args.ranks = args.ranks or ([4] if args.form == "short" else [8] if args.form == "overhead" else [4, 8])
    return args


def main():
    args = parse()
    results = args.out / "results"
    results.mkdir(parents=True, exist_ok=True)
    todo = list(cells(args))
    for number, cell in enumerate(todo, 1):
        path = results / f"{name_of(cell)}.json"
        if finished(path, cell):
            continue
        print(f"{number} of {len(todo)}: {name_of(cell)}", end="", file=sys.stderr, flush=True)
        result = {**cell, **MEASURE[cell["kind"]](cell)}
        print(f": {result['cores']:.2f} cores{'' if result['valid'] else ', invalid'}", file=sys.stderr, flush=True)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(result) + "\n")
        part.rename(path)
    write_tables(args.out)


if __name__ == "__main__":
    main()
