#!/usr/bin/env python3
"""Medians over the rounds that bench.sh left in a folder: a table, and bench.json.

usage: bench_table.py DIR    reads DIR/MODEL-RANKS-ROUND.json and DIR/torch-MODEL-ROUND.json
"""
import json
import re
import statistics
import sys
from pathlib import Path


def load(folder):
    ours, torch = {}, {}
    for path in sorted(folder.glob("*.json")):
        if match := re.fullmatch(r"torch-(\w+)-\d+", path.stem):
            torch.setdefault(match.group(1), []).append(json.loads(path.read_text()))
        elif match := re.fullmatch(r"(\w+)-(\d+)-\d+", path.stem):
            key = match.group(1), int(match.group(2))
            ours.setdefault(key, []).append(json.loads(path.read_text()))
    return ours, torch


def medians(rounds, kind):
    return {name: statistics.median(r[kind][name] for r in rounds) for name in rounds[0][kind]}


def main():
    folder = Path(sys.argv[1])
    ours, torch = load(folder)
    if not ours:
        sys.exit(f"{folder}: no results")
    results = []
    layout = "{:<6}{:>6}{:>7}{:>15}{:>15}{:>12}{:>12}{:>9}{:>11}"
    print("samples/s over all ranks, one thread a rank, medians of", len(next(iter(ours.values()))), "rounds")
    print(layout.format("model", "ranks", "batch", "compute only", "with exchange", "exposed ms", "input wait",
                        "torch", "ours/torch"))
    for (model, ranks), rounds in sorted(ours.items()):
        compute, exchange = medians(rounds, "compute_only"), medians(rounds, "with_exchange")
        row = {"model": model, "ranks": ranks, "batch": rounds[0]["batch"], "threads": rounds[0]["threads"],
               "rounds": len(rounds), "compute_only": compute, "with_exchange": exchange}
        peer = ratio = "-"
        if ranks == 1 and model in torch:
            # Pairs of the same round: what slows the machine for a while slows both.
            speeds = [t["samples_per_second"] for t in torch[model]]
            ratios = [r["with_exchange"]["samples_per_second"] / s for r, s in zip(rounds, speeds)]
            row["torch"] = {"version": torch[model][0]["torch"], "samples_per_second": statistics.median(speeds),
                            "ratio": statistics.median(ratios)}
            peer, ratio = f"{statistics.median(speeds):.0f}", f"{statistics.median(ratios):.2f}"
        results.append(row)
        print(layout.format(model, ranks, row["batch"], f"{compute['samples_per_second']:.0f}",
                            f"{exchange['samples_per_second']:.0f}", f"{exchange['exposed_ms']:.3f}",
                            f"{100 * exchange['input_share']:.1f} %", peer, ratio))
    if not torch:
        print("PyTorch is not installed for this Python (python3-torch): no comparison")
    (folder / "bench.json").write_text(json.dumps(results, indent=2) + "\n")
    print(f"also in {folder / 'bench.json'}")


if __name__ == "__main__":
    main()
