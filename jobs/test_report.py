#!/usr/bin/env python3
"""Sums up JUnit files of ctest: a table by label, the skipped and failed tests, a closing line.

usage: test_report.py ROWS.TSV [--long-table FILE --commit COMMIT]
ROWS.TSV: label, budget in minutes, build seconds, test seconds, state, JUnit file, exit status of ctest.
Exits with 1 when a test failed, did not run, or a label had no tests at all.
"""
import argparse
import datetime
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

# How ctest words the two ways in which a test may skip itself; all else "not run" is a failure.
SKIP_MESSAGES = ("SKIP_RETURN_CODE", "SKIP_REGULAR_EXPRESSION_MATCHED")


class Case:
    def __init__(self, name, state, reason="", seconds=0.0):
        self.name, self.state, self.reason, self.seconds = name, state, reason, seconds


def skip_reason(output):
    """First telling line of a skipped test's output."""
    lines = [line.strip() for line in output.splitlines()]
    for i, line in enumerate(lines):
        if line.endswith(": Skipped") and i + 1 < len(lines) and lines[i + 1]:
            return lines[i + 1]  # GoogleTest prints the message below the place
        if line.lower().startswith("skip"):
            return line
    return ""


def read_cases(path):
    cases = []
    for element in ET.parse(path).getroot().iter("testcase"):
        name = element.get("name")
        seconds = float(element.get("time") or 0)
        skipped = element.find("skipped")
        if element.find("failure") is not None or element.get("status") == "fail":
            cases.append(Case(name, "failed", "", seconds))
        elif skipped is not None or element.get("status") in ("notrun", "disabled"):
            message = skipped.get("message", "") if skipped is not None else element.get("status")
            if message.startswith(SKIP_MESSAGES):
                reason = skip_reason(element.findtext("system-out") or "")
                cases.append(Case(name, "skipped", reason, seconds))
            else:
                cases.append(Case(name, "failed", f"did not run: {message}", seconds))
        else:
            cases.append(Case(name, "passed", "", seconds))
    return cases


def cases_of(label, state, junit, status):
    if state == "build-failed":
        return [Case("build", "failed", "the tree did not build")]
    if state.startswith("skipped"):
        return [Case("build", "skipped", state.partition(": ")[2])]
    cases = read_cases(junit) if Path(junit).is_file() else []
    if not cases:
        return [Case(label, "failed", "no tests have this label")]
    if label == "cuda-build":  # the compilation is what this label is mainly about
        cases.insert(0, Case("build with nvcc, warnings as errors", "passed"))
    if status != 0 and not any(case.state == "failed" for case in cases):
        cases.append(Case("ctest", "failed", f"exit status {status} without a failed test"))
    return cases


def count(cases, state):
    return sum(case.state == state for case in cases)


def print_table(rows):
    layout = "{:<11}{:>7}{:>8}{:>8}{:>9}{:>9}{:>9}{:>9}"
    print(layout.format("label", "tests", "passed", "failed", "skipped", "build s", "test s", "budget s"))
    remarks = []
    for label, budget, build_seconds, seconds, cases in rows:
        print(layout.format(label, len(cases), *(count(cases, s) for s in ("passed", "failed", "skipped")),
                            build_seconds, seconds, budget * 60 or "-"))
        if budget and build_seconds + seconds > budget * 60:
            remarks.append(f"remark: {label} took {build_seconds + seconds} s of a budget of {budget * 60} s")
    for remark in remarks:
        print(remark)


def update_long_table(path, cases, commit):
    """Keeps the last result of every long test, those not run this time included."""
    path = Path(path)
    rows = {}
    if path.is_file():
        for line in path.read_text().splitlines():
            match = re.match(r"\| `([^`]+)` \|", line)
            if match:
                rows[match.group(1)] = line
    date = datetime.date.today().isoformat()
    for case in cases:
        rows[case.name] = f"| `{case.name}` | {case.state} | {case.seconds:.0f} | {commit} | {date} |"
    head = ["# Long tests: last results", "", "Written by `jobs/test.sh --long`.", "",
            "| test | result | seconds | commit | date |", "|---|---|---|---|---|"]
    path.write_text("\n".join(head + [rows[name] for name in sorted(rows)]) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("rows")
    parser.add_argument("--long-table")
    parser.add_argument("--commit", default="unknown")
    args = parser.parse_args()

    rows = []
    for line in Path(args.rows).read_text().splitlines():
        label, budget, build_seconds, seconds, state, junit, status = line.split("\t")
        cases = cases_of(label, state, junit, int(status))
        rows.append((label, int(budget), int(build_seconds), int(seconds), cases))
    print_table(rows)
    for state in ("skipped", "failed"):
        for label, _, _, _, cases in rows:
            for case in cases:
                if case.state == state:
                    print(f"{state}: {label}: {case.name}" + (f": {case.reason}" if case.reason else ""))
    if args.long_table:
        for label, _, _, _, cases in rows:
            if label == "long":
                update_long_table(args.long_table, cases, args.commit)
    everything = [case for _, _, _, _, cases in rows for case in cases]
    print()
    print(", ".join(f"{count(everything, state)} {state}" for state in ("passed", "failed", "skipped")))
    return 1 if count(everything, "failed") or not everything else 0


if __name__ == "__main__":
    sys.exit(main())
