#!/usr/bin/env python3
"""Tests jobs/test_report.py: what counts as failed, skipped and empty. usage: report_test.py ROOT"""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(sys.argv.pop(1)).resolve()
PASSED = '<testcase name="a.ok" time="1.5" status="run"/>'
FAILED = '<testcase name="a.bad" time="0.5" status="fail"><failure message=""/></testcase>'
SKIPPED = ('<testcase name="a.gpu" time="0" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/>'
           "<system-out>skipped: no GPU here\n</system-out></testcase>")
NOT_RUN = ('<testcase name="a.lost" time="0" status="notrun">'
           '<skipped message="Unable to find executable: x"/></testcase>')


def report(*rows, extra=()):
    """rows: (label, state, testcases, ctest status). Returns (exit status, output)."""
    with tempfile.TemporaryDirectory() as folder:
        lines = []
        for i, (label, state, cases, status) in enumerate(rows):
            junit = Path(folder) / f"{i}.xml"
            if cases is not None:
                junit.write_text(f'<?xml version="1.0"?><testsuite name="x">{cases}</testsuite>')
            lines.append(f"{label}\t1\t10\t2\t{state}\t{junit}\t{status}")
        table = Path(folder) / "rows.tsv"
        table.write_text("\n".join(lines) + "\n")
        done = subprocess.run([sys.executable, ROOT / "jobs/test_report.py", table, *extra],
                              capture_output=True, text=True, check=False)
        return done.returncode, done.stdout


class Report(unittest.TestCase):
    def test_all_passed(self):
        status, out = report(("unit", "ran", PASSED, 0))
        self.assertEqual((status, out.splitlines()[-1]), (0, "1 passed, 0 failed, 0 skipped"))

    def test_failed_and_skipped_are_named(self):
        status, out = report(("unit", "ran", PASSED + FAILED + SKIPPED, 8))
        self.assertEqual((status, out.splitlines()[-1]), (1, "1 passed, 1 failed, 1 skipped"))
        self.assertIn("failed: unit: a.bad", out)
        self.assertIn("skipped: unit: a.gpu: skipped: no GPU here", out)

    def test_a_test_that_could_not_run_failed(self):
        status, out = report(("unit", "ran", PASSED + NOT_RUN, 8))
        self.assertEqual((status, out.splitlines()[-1]), (1, "1 passed, 1 failed, 0 skipped"))

    def test_a_label_without_tests_failed(self):
        for cases in ("", None):
            status, out = report(("unit", "ran", PASSED, 0), ("mpi", "ran", cases, 0))
            self.assertEqual((status, out.splitlines()[-1]), (1, "1 passed, 1 failed, 0 skipped"))

    def test_a_tree_that_did_not_build_failed(self):
        status, out = report(("asan", "build-failed", None, 1))
        self.assertEqual((status, out.splitlines()[-1]), (1, "0 passed, 1 failed, 0 skipped"))

    def test_status_of_ctest_is_not_lost(self):
        self.assertEqual(report(("unit", "ran", PASSED, 8))[0], 1)

    def test_nothing_at_all_failed(self):
        self.assertEqual(report(("cuda-build", "skipped: no nvcc", None, 0))[0], 0)
        with tempfile.NamedTemporaryFile() as empty:
            done = subprocess.run([sys.executable, ROOT / "jobs/test_report.py", empty.name],
                                  capture_output=True, check=False)
            self.assertEqual(done.returncode, 1)

    def test_budget_is_only_a_remark(self):
        status, out = report(("unit", "ran", PASSED, 0))
        self.assertNotIn("remark", out)
        with tempfile.TemporaryDirectory() as folder:
            junit = Path(folder) / "a.xml"
            junit.write_text(f"<testsuite>{PASSED}</testsuite>")
            table = Path(folder) / "rows.tsv"
            table.write_text(f"unit\t1\t50\t20\tran\t{junit}\t0\n")
            done = subprocess.run([sys.executable, ROOT / "jobs/test_report.py", table],
                                  capture_output=True, text=True, check=False)
        self.assertEqual((status, done.returncode), (0, 0))
        self.assertIn("remark: unit took 70 s of a budget of 60 s", done.stdout)

    def test_long_table_keeps_results_of_tests_not_run(self):
        with tempfile.TemporaryDirectory() as folder:
            table = Path(folder) / "long.md"
            report(("long", "ran", PASSED, 0), extra=("--long-table", table, "--commit", "abc"))
            report(("long", "ran", FAILED, 8), extra=("--long-table", table, "--commit", "def"))
            rows = [line for line in table.read_text().splitlines() if line.startswith("| `")]
        self.assertEqual(len(rows), 2)
        self.assertIn("| `a.bad` | failed | 0 | def |", rows[0])
        self.assertIn("| `a.ok` | passed | 2 | abc |", rows[1])


if __name__ == "__main__":
    unittest.main()
