#!/usr/bin/env python3
"""The table of the straggler suite from the cells in DIR/results: DIR/table.md and DIR/table.json.

usage: straggler_table.py DIR
"""
import json
import statistics
import sys
import time
from pathlib import Path


def mean_age(ages):
    total = sum(ages)
    return sum(age * count for age, count in enumerate(ages)) / total if total else 0


def optional(value, form):
    return "-" if value is None else format(value, form)


def markdown(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]


def cores_of(cells):
    """The most that a cell used, and how many used too much."""
    invalid = sum(not c["valid"] for c in cells)
    return f"{max(c['cores'] for c in cells):.2f}" + (f", {invalid} invalid" if invalid else "")


def throughput_matrix(cells, ranks):
    cells = {(c["scenario"], c["policy"]): c for c in cells if c["ranks"] == ranks}
    policies = list(dict.fromkeys(policy for _, policy in cells))
    rows = []
    for scenario in sorted({s for s, _ in cells}):
        row = [scenario]
        for policy in policies:
            cell = cells.get((scenario, policy))
            row.append("" if cell is None else f"{cell['percent']:.0f}" + ("" if cell["valid"] else " (invalid)"))
        rows.append(row)
    return [f"### {ranks} ranks: applied samples per second, % of ideal (every rank always busy)", "",
            *markdown(["", *policies], rows), ""]


def throughput_details(cells):
    rows = []
    for c in sorted(cells, key=lambda c: (c["ranks"], c["scenario"], c["policy"])):
        late = 100 * (1 - c["ages"][0] / max(sum(c["ages"]), 1))
        rows.append([c["ranks"], c["scenario"], c["policy"], f"{c['percent']:.1f}", f"{late:.1f}",
                     f"{mean_age(c['ages']):.2f}", c["written_off"], f"{c['participation']:.3f}",
                     optional(c["detection_delay"], ".0f"), optional(c["precision"], ".2f"),
                     f"{c['bytes'] / 1e6:.0f}", cores_of([c])])
    head = ["ranks", "scenario", "policy", "% of ideal", "late %", "mean age", "written off", "participation",
            "detected after steps", "precision", "MB a rank", "cores used"]
    return markdown(head, rows) + [""]


def accuracy_rows(cells):
    groups = {}
    for c in cells:
        groups.setdefault((c["ranks"], c["scenario"], c["policy"]), []).append(c)
    rows = []
    for (ranks, scenario, policy), runs in sorted(groups.items()):
        reference = groups.get((ranks, scenario, "bsp"))
        accuracy = statistics.mean(c["accuracy"] for c in runs)
        row = [ranks, scenario, policy, len(runs), f"{100 * accuracy:.2f}"]
        if reference:
            base = statistics.mean(c["accuracy"] for c in reference)
            times, base_times = ([t for c in group if (t := time_to(c, base - 0.005)) is not None]
                                 for group in (runs, reference))
            row += [f"{100 * (accuracy - base):+.2f}",
                    f"{statistics.median(times):.0f}" if times else "not reached",
                    f"{statistics.median(times) / statistics.median(base_times):.2f}" if times and base_times else "-"]
        rows.append(row + ["-"] * (8 - len(row)) + [cores_of(runs)])
    return markdown(["ranks", "scenario", "policy", "seeds", "test accuracy %", "against bsp, points",
                     "seconds to target", "of bsp's time", "cores used"], rows) + [""]


def time_to(cell, target):
    """First time at which the accuracy is at the target and stays there for two evaluations."""
    curve = cell["curve"]
    for i, (seconds, accuracy) in enumerate(curve):
        if accuracy >= target and (i + 1 == len(curve) or curve[i + 1][1] >= target):
            return seconds
    return None


def overhead_rows(cells):
    groups = {}
    for c in cells:
        groups.setdefault((c["ranks"], c["policy"]), []).append(c)
    rows = []
    for (ranks, policy), pairs in sorted(groups.items()):
        ratios = [c["ratio"] for c in pairs]
        low, high = median_interval(ratios)
        verdict = "within 2 %" if low >= 0.98 else "slower" if high < 0.98 else "not resolved"
        rows.append([ranks, policy, len(ratios), f"{statistics.median(ratios):.3f}", f"{low:.3f} to {high:.3f}", verdict,
                     cores_of(pairs)])
    return markdown(["ranks", "policy", "pairs", "speed over bsp", "95 % interval", "S0: at most 2 % slower",
                     "cores used"], rows) + [""]


def median_interval(values):
    """Of the median, by order statistics: the narrowest symmetric pair that covers it with at least 95 %."""
    values, n = sorted(values), len(values)
    best = values[0], values[-1]
    tail, probability = 0, 0.5 ** n
    for k in range(n // 2):
        tail += probability
        probability = probability * (n - k) / (k + 1)
        if 1 - 2 * tail < 0.95:
            break
        best = values[k], values[n - 1 - k]
    return best


def write_tables(folder):
    cells = [json.loads(path.read_text()) for path in sorted((folder / "results").glob("*.json"))]
    if not cells:
        sys.exit(f"{folder / 'results'}: no cells")
    kinds = {kind: [c for c in cells if c["kind"] == kind] for kind in ("throughput", "accuracy", "overhead")}
    text = [f"# Straggler suite: emulated compute, {time.strftime('%Y-%m-%d')}", "",
            "LeNet-5 on Fashion-MNIST, global batch 128; steps are made to last by sleeping, delays are injected. A cell "
            "whose ranks used more than half of the cores is invalid.", ""]
    for ranks in sorted({c["ranks"] for c in kinds["throughput"]}):
        text += throughput_matrix(kinds["throughput"], ranks)
    if kinds["throughput"]:
        text += ["### Details", "", *throughput_details(kinds["throughput"])]
    if kinds["accuracy"]:
        text += ["### Accuracy at equal samples; target: half a point below bsp", "", *accuracy_rows(kinds["accuracy"])]
    if kinds["overhead"]:
        text += ["### Overhead on a calm cluster", "", *overhead_rows(kinds["overhead"])]
    (folder / "table.md").write_text("\n".join(text))
    (folder / "table.json").write_text(json.dumps(cells, indent=1) + "\n")
    print("\n".join(text))


if __name__ == "__main__":
    write_tables(Path(sys.argv[1]))
