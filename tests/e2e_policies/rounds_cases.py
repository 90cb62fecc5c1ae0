#!/usr/bin/env python3
"""What rounds add up to: presets that must equal bsp, samples that must all be applied, micro-batches."""
import policy_case
from policy_case import DELAYS, MODEL, SAMPLES, STEADY, PolicyCase, total
from runner import DONE, read_tensors
from sample_order import index_digest, run_digests

import numpy as np


class EqualToBsp(PolicyCase):
    """Where nobody is late, and all are waited for, a preset is bsp bit for bit."""

    PRESETS = (("quorum", "--quorum", 4), ("majority", "--quorum", 4), ("solo", "--quorum", 4), ("ssp", "--quorum", 4),
               ("drop", "--drop-tau", 1000), ("balance", *STEADY))

    def compare(self, micro_batch, presets, *options):
        common = ["--steps", 50, "--micro-batch", micro_batch, "--checkpoint-every", 25, *options]
        self.train("--policy", "bsp", *common, out="bsp")
        series = [(line["loss"], line["index_digest"]) for line in self.metrics("bsp")]
        for policy, *more in presets:
            self.train("--policy", policy, *more, *common, out=policy)
            self.assertEqual([(line["loss"], line["index_digest"]) for line in self.metrics(policy)], series, policy)
            for step in (25, 50):
                self.assert_same_tensors(self.checkpoint("bsp", step), self.checkpoint(policy, step), policy)

    def test_sgd_with_momentum(self):
        self.compare(4, self.PRESETS)

    def test_adamw_with_clipping_and_an_uneven_rest(self):
        self.compare(5, self.PRESETS[:1] + self.PRESETS[-2:], "--optimizer", "adamw", "--lr", "0.002", "--clip-norm", "0.5")

    def test_early_participants(self):
        self.compare(4, (("quorum", "--quorum", 4, "--participants", "early"),))

    def test_another_preset_is_not_bsp(self):
        """The comparison can fail: without rank 3 in each round the weights are others."""
        common = ["--steps", 10, "--micro-batch", 4]
        self.train("--policy", "bsp", *common, out="bsp")
        self.train("--policy", "backup", *common, "--inject", "rank=3:+2", "--emulate-step", 4, out="backup")
        self.assertTrue(self.differences(self.checkpoint("bsp", 10), self.checkpoint("backup", 10)))


class EachSampleOnce(PolicyCase):
    """With random delays no sample is lost or counted twice, under any policy that leaves work behind."""

    EPOCHS = 3

    def check_policy(self, policy, *options, late=False, written_off=False, max_age=0):
        result = self.train("--policy", policy, "--micro-batch", 4, "--epochs", self.EPOCHS, *DELAYS, *options)
        lines = self.assert_each_sample_once(self.EPOCHS)
        self.assert_summary_adds_up(lines)
        for epoch in range(self.EPOCHS):
            digest = sum(int(line["index_digest"], 16) for line in lines if line["epoch"] == epoch) % 2**64
            self.assertEqual(f"{digest:016x}", index_digest(range(SAMPLES), epoch), f"samples of epoch {epoch}")
        self.assertEqual((total(lines, "late_samples") > 0, total(lines, "written_off") > 0), (late, written_off), result)
        self.assertLessEqual(max(len(line["ages"]) for line in lines) - 1, max_age)
        self.assertTrue(any(line["delayed"] for line in lines), "no delay was injected")
        if late or written_off:  # rounds did close without somebody
            self.assertLess(min(line["participants"] for line in lines), 4)
        return lines

    def test_quorum(self):
        self.check_policy("quorum", late=True, max_age=4)

    def test_quorum_of_early_participants(self):
        self.check_policy("quorum", "--participants", "early", late=True, max_age=4)

    def test_quorum_with_a_small_bound_of_age(self):
        lines = self.check_policy("quorum", "--max-age", 1, late=True, max_age=1)
        self.assertEqual(max(len(line["ages"]) for line in lines), 2)

    def test_quorum_that_discards(self):
        self.check_policy("quorum", "--late", "discard", written_off=True)

    def test_majority(self):
        self.check_policy("majority", late=True, max_age=4)

    def test_solo(self):
        self.check_policy("solo", late=True, max_age=32)

    def test_ssp(self):
        self.check_policy("ssp", late=True, max_age=3)

    def test_backup(self):
        self.check_policy("backup", written_off=True)

    def test_drop(self):
        lines = self.check_policy("drop", "--drop-tau", "0.008")
        self.assertGreater(len(lines), self.EPOCHS * 13, "no micro-batch was left out")

    def test_window(self):
        lines = self.check_policy("window")
        self.assertNotEqual(len({tuple(line["rank_samples"]) for line in lines}), 1)

    def test_drop_and_quorum_serve_what_came_back_on_2_ranks(self):
        for policy, *options in (("drop", "--drop-tau", "0.006"), ("quorum", "--quorum", 1)):
            self.train("--policy", policy, *options, "--micro-batch", 8, "--epochs", 2, "--inject", "rank=1:x4",
                       "--emulate-step", 4, ranks=2, out=policy)
            lines = self.assert_each_sample_once(2, out=policy, what=policy)
            self.assertGreater(len(lines), 2 * 13, "all rounds were complete")
            self.assert_summary_adds_up(lines, out=policy)


class MicroBatches(PolicyCase):
    """--micro-batch and --local-order."""

    def test_several_passes_equal_one(self):
        for out, size in (("one", 0), ("some", 5), ("again", 5)):
            self.train("--policy", "bsp", "--micro-batch", size, "--steps", 30, out=out)
        one, some = ([line["loss"] for line in self.metrics(out)] for out in ("one", "some"))
        np.testing.assert_allclose(some, one, atol=3e-5, rtol=0)
        weights, parts = (read_tensors(self.checkpoint(out, 30)) for out in ("one", "some"))
        for path in weights:
            np.testing.assert_allclose(parts[path], weights[path], atol=3e-5, rtol=0, err_msg=path)
        self.assertEqual(self.metrics("one")[3]["index_digest"], self.metrics("some")[3]["index_digest"])
        self.assert_same_tensors(self.checkpoint("some", 30), self.checkpoint("again", 30), "repeated")

    def test_micro_batches_on_other_ranks(self):
        """4 times 16 samples by 5 equal 2 times 32 by 7, and 64 on one rank."""
        for ranks, size in ((1, 0), (2, 7), (4, 5)):
            self.train("--micro-batch", size, "--epochs", 2, ranks=ranks, out=f"n{ranks}")
            np.testing.assert_allclose([line["loss"] for line in self.metrics(f"n{ranks}")],
                                       [line["loss"] for line in self.metrics("n1")], atol=3e-5, rtol=0)
            self.assertEqual([line["index_digest"] for line in self.metrics(f"n{ranks}")], run_digests(SAMPLES, 64, 1, 2))

    def test_rotated_order_covers_all_samples(self):
        self.train("--policy", "local", "--local-order", "rotated", "--epochs", 5, out="rotated")
        lines = self.assert_each_sample_once(5, out="rotated")
        for epoch in range(5):
            digest = sum(int(line["index_digest"], 16) for line in lines if line["epoch"] == epoch) % 2**64
            self.assertEqual(f"{digest:016x}", index_digest(range(SAMPLES), epoch), f"samples of epoch {epoch}")
        # The ranks walk through chunks of their own, not through parts of common batches.
        self.train("--policy", "local", "--epochs", 5, out="shared")
        self.assertNotEqual([line["index_digest"] for line in lines],
                            [line["index_digest"] for line in self.metrics("shared")])

    def test_more_ranks_than_samples_in_a_micro_batch_or_batch(self):
        data = ["train", *MODEL, "--data", "synthetic:10x8x8x1x4", "--batch", 8, "--epochs", 3]
        for policy in ("bsp", "local", "quorum", "drop", "window"):
            self.mpirun(4, *data, "--policy", policy, "--micro-batch", 1, "--out", policy, check=DONE)
            self.assertEqual(self.summary(policy)["samples_seen"], 30, policy)


if __name__ == "__main__":
    policy_case.run()
