#!/usr/bin/env python3
"""Tests jobs/straggler_table.py and the figures of straggler_suite.py on made-up cells. usage: suite_table_test.py ROOT"""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(sys.argv.pop(1)).resolve()
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "jobs"))
import straggler_suite as suite  # noqa: E402
import straggler_table as table  # noqa: E402


def throughput(policy, percent, valid=True, ages=(100,)):
    return {"kind": "throughput", "ranks": 8, "policy": policy, "scenario": "S1", "percent": percent, "valid": valid,
            "ages": list(ages), "written_off": 0, "participation": 1.0, "detection_delay": None, "precision": None,
            "bytes": 2e6, "cores": 0.5}


def accuracy(policy, seed, value, curve):
    return {"kind": "accuracy", "ranks": 8, "policy": policy, "scenario": "S1", "seed": seed, "accuracy": value,
            "curve": curve, "seconds": 9, "cores": 0.5, "valid": True}


class Table(unittest.TestCase):
    def written(self, cells):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "results").mkdir()
            for i, cell in enumerate(cells):
                (Path(folder) / f"results/cell-{i}.json").write_text(json.dumps(cell))
            done = subprocess.run([sys.executable, ROOT / "jobs/straggler_table.py", folder], capture_output=True,
                                  text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(len(json.loads((Path(folder) / "table.json").read_text())), len(cells))
            return (Path(folder) / "table.md").read_text()

    def test_is_headed_emulated_and_marks_invalid_cells(self):
        text = self.written([throughput("bsp", 55.2), throughput("quorum", 93.4, valid=False, ages=[75, 20, 5])])
        self.assertIn("emulated compute", text)
        self.assertIn("| S1 | 55 | 93 (invalid) |", text)
        self.assertIn("| 25.0 | 0.30 |", text)  # late share and mean age

    def test_accuracy_is_set_against_bsp(self):
        bsp = [accuracy("bsp", s, 0.85, [[10, 0.80], [20, 0.846], [30, 0.85]]) for s in (1, 2, 3)]
        fast = [accuracy("quorum", s, 0.848, [[5, 0.846], [10, 0.84], [15, 0.848]]) for s in (1, 2, 3)]
        text = self.written(bsp + fast)
        self.assertIn("| 8 | S1 | quorum | 3 | 84.80 | -0.20 | 15 | 0.75 | 0.50 |", text)

    def test_a_target_must_be_held(self):
        self.assertIsNone(table.time_to({"curve": [[1, 0.9], [2, 0.1]]}, 0.8))
        self.assertEqual(table.time_to({"curve": [[1, 0.9], [2, 0.1], [3, 0.9]]}, 0.8), 3)

    def test_interval_of_the_median(self):
        self.assertEqual(table.median_interval([5, 1, 2, 3, 4, 6, 7, 8, 9]), (2, 8))  # 96.1 %
        self.assertEqual(table.median_interval([1, 2, 3, 4, 5, 6]), (1, 6))  # 96.9 %

    def test_overhead_is_judged_by_its_interval(self):
        def verdict(ratios):
            cells = [{"ranks": 8, "policy": "quorum", "ratio": ratio, "cores": 0.5, "valid": True} for ratio in ratios]
            return table.overhead_rows(cells)[2].split("|")[-3].strip()
        self.assertEqual(verdict([1.0] * 9), "within 2 %")
        self.assertEqual(verdict([0.9] * 9), "slower")
        self.assertEqual(verdict([0.9] * 4 + [1.0] * 5), "not resolved")

    def test_nothing_is_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, ROOT / "jobs/straggler_table.py", folder], capture_output=True,
                                  text=True, check=False)
        self.assertNotEqual(done.returncode, 0)


def round_of(step, delayed=(), seconds=0.2):
    return {"step": step, "samples": 100, "late_samples": 20, "seconds": seconds, "delayed": list(delayed)}


def interval(rank, last, state="calm", compute=0.8):
    return {"first_step": last - 7, "last_step": last, "rank": rank, "samples": 480, "compute_seconds": compute, "state": state}


class Suite(unittest.TestCase):
    def test_share_of_ideal_is_that_of_the_second_half(self):
        rounds = [round_of(s, seconds=9) for s in range(1, 9)] + [round_of(s) for s in range(9, 17)]
        ranks = [interval(r, last, compute=9 if last == 8 else 0.8) for r in (0, 1) for last in (8, 16)]
        self.assertEqual([round(x) for x in suite.throughput(rounds, ranks)], [600, 1200])

    def test_detection_counts_from_the_first_delay(self):
        rounds = [round_of(s, [1] if 21 <= s <= 90 else []) for s in range(1, 101)]
        ranks = [interval(1, last, "slow" if last >= 72 else "calm") for last in range(8, 101, 8)]
        log = ["warning: rank 1 on a is slow since step 25: 9 ms", "warning: rank 0 on a is slow since step 30: 9 ms",
               "warning: rank 2 on a is unsteady since step 3"]
        self.assertEqual(suite.detection(rounds, ranks, log), (51, 0.5))
        self.assertEqual(suite.detection(rounds, ranks, []), (None, None))

    def test_a_cell_with_other_settings_is_run_again(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "cell.json"
            self.assertFalse(suite.finished(path, {"steps": 72}))
            path.write_text(json.dumps({"steps": 72, "percent": 90}))
            self.assertTrue(suite.finished(path, {"steps": 72}))
            self.assertFalse(suite.finished(path, {"steps": 300}))


if __name__ == "__main__":
    unittest.main()
