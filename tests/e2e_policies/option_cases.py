#!/usr/bin/env python3
"""Wrong values of the options of policies, delays and limits: refused with one line before anything is written."""
import policy_case
from policy_case import START, PolicyCase
from runner import SETTINGS

# (options, words of the line). What depends on the job is found by all ranks together …
WRONG_FOR_4_RANKS = (
    (["--policy", "quorum", "--quorum", 9], ["--quorum", "4 ranks", "9"]),
    (["--policy", "majority", "--quorum", 5], ["--quorum", "4 ranks", "5"]),
    (["--policy", "backup", "--backup", 4], ["--backup", "4 ranks", "4"]),
    (["--policy", "easgd", "--easgd-alpha", "0.9"], ["--easgd-alpha", "4 ranks", "0.25", "0.9"]),
    (["--inject", "nonsense"], ["--inject", "'nonsense'", "rank=R:+A"]),
    (["--inject", "rank=7:+1"], ["--inject", "0 to 3", "'rank=7:+1'"]),
    (["--inject", "random=5:+1"], ["--inject", "'random=5:+1'"]),
    (["--policy", "nonsense"], ["--policy", "bsp", "ssp", '"nonsense"']),
    (["--policy", "quorom"], ["--policy", "did you mean quorum?"]),
    (["--late-limit", "5s", "--stall-limit", "2s"], ["--late-limit", "--stall-limit", "--lost-limit", "5, 2, 120"]),
    (["--policy", "quorum", "--replay-journal", "nowhere.jsonl"], ["--replay-journal", "nowhere.jsonl"]),
)
# … and what does not, by one as well.
WRONG = (
    (["--inject", "rank=0:+1,S99"], ["--inject", "'S99'"]),
    (["--inject", "stop=0@20"], ["--inject", "'stop=0@20'"]),
    (["--policy", "backup", "--backup", 0], ["--backup", '"0"']),
    (["--micro-batch", -1], ["--micro-batch", '"-1"']),
    (["--drop-cap", "0.7"], ["--drop-cap", '"0.7"']),
    (["--drop-tau", "nan"], ["--drop-tau", '"nan"']),
    (["--late", "maybe"], ["--late", "auto, carry, discard", '"maybe"']),
    (["--age-weight", 0], ["--age-weight", '"0"']),
    (["--participants", "all"], ["--participants", "complete, early", '"all"']),
    (["--local-state", "lost"], ["--local-state", "auto, reset, keep, average"]),
    (["--local-order", "random"], ["--local-order", "shared, rotated"]),
    (["--sync-every", "1.5"], ["--sync-every", '"1.5"']),
    (["--emulate-step", -3], ["--emulate-step", '"-3"']),
    (["--lost-limit", "soon"], ["--lost-limit", '"soon"']),
    (["--quorom", 2], ["--quorom", "--quorum"]),
)


class WrongPolicyOptions(PolicyCase):
    """Each with exit status 2 and one line of rank 0."""

    def assert_refused(self, result, options, words):
        errors = [line for line in result.text.splitlines() if line.startswith("error")]
        self.assertEqual(len(errors), 1, result)
        self.assertTrue(errors[0].startswith(("error [rank 0, ", "error: ")), errors)
        for word in words:
            self.assertIn(word, errors[0])
        self.assertEqual(result.out, "", result)
        self.assertFalse((self.folder / "run").exists(), options)

    def test_values_that_are_refused_for_a_job(self):
        for options, words in WRONG_FOR_4_RANKS:
            with self.subTest(options=options):
                self.assert_refused(self.train(*options, check=SETTINGS), options, words)

    def test_values_that_are_refused(self):
        for options, words in WRONG:
            with self.subTest(options=options):
                self.assert_refused(self.alone(*START, "--out", "run", *options, check=SETTINGS), options, words)

    def test_values_of_another_policy_do_not_matter(self):
        self.train("--policy", "bsp", "--quorum", 9, "--backup", 4, "--easgd-alpha", "0.9", "--steps", 2)
        self.assertEqual(self.summary()["step"], 2)


if __name__ == "__main__":
    policy_case.run()
