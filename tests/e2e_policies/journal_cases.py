#!/usr/bin/env python3
"""The journal of who took part in each round, and runs that repeat it."""
import json
import re
import shutil

import policy_case
from policy_case import DELAYS, SAMPLES, STEADY, PolicyCase
from runner import DATA, DONE, SETTINGS


class Journal(PolicyCase):
    """journal.jsonl and --replay-journal."""

    COMMON = ["--policy", "quorum", "--micro-batch", 4, "--epochs", 3, "--checkpoint-every", 10]

    def setUp(self):
        super().setUp()
        made = self.class_folder / "first"
        if not made.exists():
            self.train(*self.COMMON, *DELAYS, out=made)
        shutil.copytree(made, self.folder / "first")
        self.journal = self.folder / "first/journal.jsonl"

    def replay(self, *options, out="again", journal=None, **more):
        return self.train(*self.COMMON, "--replay-journal", journal or self.journal, *options, out=out, **more)

    def rounds(self, out):
        return self.json_lines(out, "journal.jsonl")

    def test_it_agrees_with_the_metrics(self):
        rounds, metrics = self.rounds("first"), self.metrics("first")
        self.assertEqual([line["round"] for line in rounds], list(range(1, len(metrics) + 1)))
        self.assertEqual([line["weight"] for line in rounds],
                         [line["samples"] + line["late_samples"] for line in metrics])
        self.assertEqual(sum(line["weight"] for line in rounds), 3 * SAMPLES)
        for line, metric in zip(rounds, metrics):
            self.assertEqual({len(line[key]) for key in ("claimed", "fresh", "late", "off")}, {4})
            self.assertEqual(any(line["late"]), metric["late_samples"] > 0, line)
            late = [line["round"] - of for of in line["late"] if of]
            self.assertTrue(all(0 < age <= 4 for age in late), line)
        # A round that carries nothing over says what the weights are.
        self.assertIn("checksum", rounds[-1])
        self.assertTrue(any(not all(line["fresh"]) for line in rounds), "nobody was ever late")

    def test_a_replay_has_the_same_weights_under_other_delays(self):
        for out, options in (("slow", ["--inject", "rank=2:x3", "--emulate-step", 3]), ("calm", [])):
            result = self.replay(*options, out=out)
            self.assertFalse(result.lines("weights differ"), result)
            self.assertEqual(self.rounds(out), self.rounds("first"))
            self.assert_same_tensors(self.checkpoints("first")[-1], self.checkpoints(out)[-1], out)
            same = ("step", "loss", "samples", "late_samples", "index_digest", "rank_samples")
            self.assertEqual([[line[key] for key in same] for line in self.metrics(out)],
                             [[line[key] for key in same] for line in self.metrics("first")])

    def test_a_replay_from_the_middle(self):
        self.train(*self.COMMON, *DELAYS, "--steps", 20, out="parts")
        self.resume("--steps", 0, *DELAYS, out="parts")
        rounds = self.rounds("parts")
        self.assertEqual([line["round"] for line in rounds], list(range(1, len(rounds) + 1)))
        journal = self.folder / "parts/journal.jsonl"
        self.train(*self.COMMON, "--keep", 0, "--steps", 20, "--replay-journal", journal, out="again")
        self.resume("--steps", 0, "--replay-journal", journal, *STEADY, out="again")
        self.assert_same_tensors(self.checkpoints("parts")[-1], self.checkpoints("again")[-1])

    def test_without_the_journal_the_weights_are_others(self):
        """The comparison can fail: other delays make other rounds."""
        self.train(*self.COMMON, "--inject", "rank=2:x3", "--emulate-step", 3, out="other")
        self.assertNotEqual(self.rounds("other"), self.rounds("first"))
        self.assertTrue(self.differences(self.checkpoints("first")[-1], self.checkpoints("other")[-1]))

    def refused(self, code, *words, **more):
        result = self.replay(check=code, **more)
        errors = [line for line in result.text.splitlines() if line.startswith("error")]
        self.assertEqual(len(errors), 1, result)
        for word in ("--replay-journal", *words):
            self.assertIn(word, errors[0])
        self.assertFalse((self.folder / "again").exists())

    def test_another_number_of_ranks(self):
        self.refused(SETTINGS, "4 ranks", "has 3", ranks=3)

    def test_a_damaged_line(self):
        lines = self.journal.read_text().splitlines()
        damaged = self.folder / "damaged.jsonl"
        short = json.loads(lines[6])
        short["late"].pop()
        for text in ('{"round":7,"wei', "", json.dumps(short), lines[6].replace('"claimed"', '"clamed"')):
            damaged.write_text("\n".join([*lines[:6], text, *lines[7:]]) + "\n")
            self.refused(DATA, "damaged.jsonl, line 7", journal=damaged)

    def test_a_missing_line(self):
        lines = self.journal.read_text().splitlines()
        gap = self.folder / "gap.jsonl"
        gap.write_text("\n".join([*lines[:6], *lines[7:]]) + "\n")
        self.refused(DATA, "gap.jsonl, line 7", "round 7", journal=gap)

    def test_a_missing_file(self):
        self.refused(SETTINGS, "nowhere.jsonl", journal="nowhere.jsonl")
        self.refused(SETTINGS, str(self.folder), journal=self.folder)

    def test_other_settings_are_noticed(self):
        result = self.replay("--lr", "0.01", out="other")
        self.assertEqual(len(result.lines("weights differ from those of the run")), 1, result)
        self.assertTrue(re.search(r"^warning.*--replay-journal", result.text, re.MULTILINE), result)

    def test_other_policies_write_none(self):
        self.train("--policy", "bsp", "--steps", 3, out="bsp")
        self.assertFalse((self.folder / "bsp/journal.jsonl").exists())
        self.train("--policy", "backup", "--micro-batch", 4, "--steps", 20, *DELAYS, out="backup")
        self.assertEqual(len(self.rounds("backup")), 20)
        result = self.train("--policy", "bsp", "--replay-journal", self.journal, check=SETTINGS, out="refused")
        self.assertEqual(len(result.lines("--policy bsp")), 1, result)


if __name__ == "__main__":
    policy_case.run()
