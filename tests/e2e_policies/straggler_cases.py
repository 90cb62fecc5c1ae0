#!/usr/bin/env python3
"""Slow ranks as people meet them: the rows S01 to S11 of the catalogue of field troubles."""
import re

import policy_case
from policy_case import RANKS, SAMPLES, PolicyCase, total
from runner import SETTINGS

# A warning about the speed of a rank. The exchange has one of its own, which a busy machine may give reason for.
SPEED = re.compile(r"^warning.*rank \d+ on \S+ (is slow|is unsteady|waits for input)")


class SlowRankIsNamed(PolicyCase):
    """S01, S03: who is slow, by how much, and in which phase."""

    @staticmethod
    def speed_lines(result):
        return [line for line in result.text.splitlines() if SPEED.search(line)]

    def test_S01_a_rank_that_computes_longer(self):
        for policy in ("bsp", "quorum", "local"):
            steps = ["--sync-every", 1] if policy == "local" else []
            result = self.train("--policy", policy, *steps, "--epochs", 9, "--inject", "rank=1:+1.5", "--emulate-step", 10,
                                "--ranks-every", 30, out=policy)
            lines = self.speed_lines(result)
            self.assertTrue(lines, result)
            told = re.search(r"rank 1 on (\S+) is slow since step \d+: ([\d.]+) ms a micro-batch in compute, the median of all "
                             r"ranks is ([\d.]+) ms", lines[0])
            self.assertTrue(told, lines)
            self.assertEqual(told[1], self.rank_times(policy)[1]["host"])
            self.assertGreaterEqual(float(told[2]), 25)
            self.assertLess(float(told[3]), 20)
            self.assertFalse([line for line in lines if "rank 1 " not in line], lines)
            times = [line for line in self.rank_times(policy) if line["rank"] == 1]
            self.assertEqual(times[-1]["state"], "slow")
            self.assertTrue(all(line["step_median_seconds"] >= 0.025 for line in times if line["compute_seconds"]), times)

    def test_S01_quiet_when_all_are_equal(self):
        result = self.train("--policy", "bsp", "--epochs", 9, "--emulate-step", 20)
        self.assertEqual(self.speed_lines(result), [])
        self.assertEqual({line["state"] for line in self.rank_times()}, {"calm"})

    def test_S03_a_slow_input_is_told_as_input(self):
        result = self.train("--policy", "bsp", "--epochs", 9, "--inject", "loader=2:+2", "--emulate-step", 10)
        lines = self.speed_lines(result)
        self.assertTrue(lines, result)
        for line in lines:
            self.assertRegex(line, r"rank 2 on \S+ waits for input since step \d+: [\d.]+ ms a step in input, the median of the "
                                   r"other ranks is [\d.]+ ms")
        times = {line["rank"]: line for line in self.rank_times() if line["first_step"] == 1}
        self.assertTrue(all(times[2]["input_wait_seconds"] > 10 * times[r]["input_wait_seconds"] for r in (0, 1, 3)), times)
        self.assertEqual(times[2]["state"], "loader")


class DivisorOfWhoTookPart(PolicyCase):
    """S05: a step is divided by the samples that took part, and equals one rank's step on just those."""

    COMMON = ["--clip-norm", "1e9", "--emulate-step", 80]  # a norm is computed, and never clips

    def compare(self, policy, samples, participants, *options):
        """`samples`: the first ones of the global batch, which is what took part in step 1."""
        self.train("--policy", policy, "--micro-batch", 4, "--steps", 3, *self.COMMON, *options, out=policy)
        self.mpirun(1, *policy_case.START[:-1], samples, "--steps", 1, "--clip-norm", "1e9", "--out", f"one-{policy}", check=0)
        got, want = self.metrics(policy)[0], self.metrics(f"one-{policy}")[0]
        self.assertEqual((got["samples"], got["weight"], got["participants"]), (samples, samples, participants))
        self.assertEqual(got["index_digest"], want["index_digest"])
        self.assertAlmostEqual(got["loss"], want["loss"], delta=1e-6)
        self.assertAlmostEqual(got["grad_norm"] / want["grad_norm"], 1, delta=1e-5)

    def test_S05_a_rank_is_absent(self):
        self.compare("backup", 48, 3, "--inject", "rank=3:+5")

    def test_S05_a_rank_leaves_micro_batches_out(self):
        self.compare("drop", 52, 4, "--inject", "rank=3:x10", "--drop-tau", "0.15")

    def test_S05_all_take_part(self):
        self.compare("bsp", 64, 4)


class StaleWithMomentum(PolicyCase):
    """S07: late gradients with momentum 0.9 and one rank that is four times slower."""

    def test_S07_ages_and_accuracy(self):
        common = ["--epochs", 6, "--momentum", "0.9", "--lr", "0.03", "--micro-batch", 4, "--inject", "rank=3:x4", "--emulate-step", 4]
        self.train("--policy", "bsp", *common, "--emulate-link", 0, out="bsp")
        self.train("--policy", "quorum", *common, "--max-age", 6, out="quorum")
        lines = self.assert_each_sample_once(6, out="quorum")
        self.assert_summary_adds_up(lines, out="quorum")
        ages = self.summary("quorum")["samples_by_age"]
        oldest = max(age for age, samples in enumerate(ages) if samples)
        self.assertTrue(1 < oldest <= 6, ages)
        self.assertEqual(ages[0], total(lines, "samples"))
        self.assertEqual(sum(ages[1:]), total(lines, "late_samples"))
        self.assertTrue(all(len(line["ages"]) <= 7 for line in lines))
        accuracy = {policy: self.summary(policy)["test_accuracy"] for policy in ("bsp", "quorum")}
        print(f"test accuracy {accuracy}")
        self.assertGreater(accuracy["bsp"], 0.6)
        self.assertGreater(accuracy["quorum"], accuracy["bsp"] - 0.05)


class OneLateWorker(PolicyCase):
    """S09: one rank sleeps in each step."""

    def test_S09_it_does_not_set_the_pace(self):
        common = ["--epochs", 3, "--inject", "rank=1:+4", "--emulate-step", 8]
        for policy in ("bsp", "quorum"):
            self.train("--policy", policy, *common, out=policy)
        bsp = self.assert_each_sample_once(3, out="bsp")
        quorum = self.assert_each_sample_once(3, out="quorum")
        self.assertEqual({line["participants"] for line in bsp}, {RANKS})
        self.assertEqual({tuple(line["rank_samples"]) for line in bsp}, {(16,) * 4, (10,) * 4})
        # Without it most rounds close, and what it does still counts, later.
        self.assertGreater(sum(line["participants"] < RANKS for line in quorum), 0.6 * len(quorum))
        shares = self.summary("quorum")["samples_by_rank"]
        self.assertLess(shares[1], 0.5 * min(shares[0], shares[2], shares[3]))
        self.assertGreater(total(quorum, "late_samples"), 0)
        self.assertEqual(sum(shares), 3 * SAMPLES)
        self.assert_summary_adds_up(quorum, out="quorum")
        # Five times a step's time against little more than one: far apart on any machine.
        seconds = {policy: self.summary(policy)["training_seconds"] for policy in ("bsp", "quorum")}
        print(f"seconds of training {seconds}")
        self.assertLess(seconds["quorum"], 0.9 * seconds["bsp"])


class Limits(PolicyCase):
    """S11: three limits whose order matters."""

    def test_S11_a_wrong_order_is_refused(self):
        for late, stall, lost in (("5s", "2s", "120s"), ("30s", "130s", "120s"), ("90s", "60s", "30s"), ("60s", "60s", "120s"),
                                  ("200s", "0s", "120s")):
            result = self.train("--late-limit", late, "--stall-limit", stall, "--lost-limit", lost, check=SETTINGS)
            errors = [line for line in result.text.splitlines() if line.startswith("error")]
            self.assertEqual(len(errors), 1, result)
            self.assertIn("--late-limit, --stall-limit, --lost-limit", errors[0])
            self.assertIn(f"found {late[:-1]}, {stall[:-1]}, {lost[:-1]}", errors[0])
            self.assertFalse((self.folder / "run").exists())

    def test_S11_the_limits_are_told_at_start(self):
        result = self.train("--steps", 1)
        self.assertRegex(result.out, r"(?m)^limits .*named after 30 s.* stall after 60 s.* lost .*after 120 s$")
        result = self.train("--steps", 1, "--late-limit", "5s", "--stall-limit", "0s", "--lost-limit", "10m", out="b")
        self.assertRegex(result.out, r"(?m)^limits .*named after 5 s.* stall never.* lost .*after 600 s$")


if __name__ == "__main__":
    policy_case.run()
