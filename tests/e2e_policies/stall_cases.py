#!/usr/bin/env python3
"""S10: a rank that stops for a while, for good, or dies. The job goes on, or ends at once and says why."""
import re

import policy_case
from policy_case import RANKS, START, PolicyCase
from runner import COMMUNICATION, DONE, alive, wait_for

KILLED = 137
GONE_WITHIN = 10  # seconds after the line that tells the cause
LIMITS = ["--late-limit", "1s", "--stall-limit", "2s", "--lost-limit", "4s"]
# Slow enough to be found running before step 20, with checkpoints of every step from then on.
STEP = ["--micro-batch", 4, "--emulate-step", 30, "--checkpoint-every", 6, "--eval-every", 0]


class StallCase(PolicyCase):
    """Helpers; holds no tests."""

    def begin(self, policy, fault, *options):
        """Starts a job and waits for its ranks; returns it with the ids of all its processes."""
        job = self.start(RANKS, *START, "--policy", policy, "--steps", 10000, "--inject", fault, *STEP, *options, "--out", policy)
        wait_for(lambda: len(job.ranks()) == RANKS, "all ranks", job=job)
        return job, job.descendants()

    def assert_gone(self, pids):
        wait_for(lambda: not any(alive(pid) for pid in pids), "the end of all processes", timeout=GONE_WITHIN)

    def assert_goes_on(self, policy, rank, must_tell=True):
        """The last checkpoint is whole; the next start says what happened and goes on from there."""
        files = self.checkpoints(policy)
        self.assertTrue(files)
        self.alone("inspect", "--verify", files[-1], check=DONE)
        step = int(files[-1].stem[5:])
        result = self.resume("--steps", step + 5, "--inject", "", "--emulate-step", 0, out=policy)
        self.assertTrue(result.lines(f"at step {step} "), result)
        told = result.lines("ended without a word")
        self.assertIn(len(told), (1,) if must_tell else (0, 1), result)
        for line in told:
            self.assertRegex(line, rf"without a word: rank {rank} on \S+ stopped in step 20 \(compute\); the others had reached step")


class Stopped(StallCase):
    """A process that does not run."""

    def goes_on_after_a_stop(self, policy, rank):
        result = self.train("--policy", policy, "--steps", 60, "--micro-batch", 4, "--inject", f"stop={rank}@20:3s", "--late-limit",
                            "1s", "--stall-limit", "2s", "--lost-limit", "60s", out=policy)
        self.assertEqual(self.summary(policy)["step"], 60)
        self.assertEqual(self.metrics(policy)[-1]["step"], 60)
        self.assertFalse([line for line in result.text.splitlines() if line.startswith("error")], result)
        return result

    def test_S10_a_rank_that_comes_back(self):
        for policy in ("bsp", "quorum", "local"):
            result = self.goes_on_after_a_stop(policy, 1)
            self.assertTrue(any("late" in line for line in result.lines("rank 1 on host ")), result)
            self.assertTrue(any("back after" in line for line in result.lines("rank 1 on host ")), result)
            # Nobody is blamed for waiting for it.
            self.assertFalse(result.lines("has not advanced"), result)

    def test_S10_rank_0_comes_back(self):
        result = self.goes_on_after_a_stop("bsp", 0)
        self.assertTrue(any("late" in line for line in result.lines("rank 0 on host ")), result)

    def ends_after_a_stop(self, policy, rank):
        job, pids = self.begin(policy, f"stop={rank}@20:60s", *LIMITS)
        cause = re.compile(rf"^error \[rank \d+, host \S+\]: rank {rank} on host \S+ has not been heard for \d+ s", re.MULTILINE)
        wait_for(lambda: cause.search("".join(job.output())), "the line that names the cause", job=job)
        self.assert_gone(pids)
        result = self.finish(job, COMMUNICATION)
        errors = [line for line in result.text.splitlines() if line.startswith("error")]
        if rank != 0:  # rank 0 tells; otherwise each of the others may
            self.assertEqual(len(errors), 1, result)
        self.assertTrue(all(cause.match(line) for line in errors), result)
        # Launchers kill a stopped process soon after asking it to end: it may or may not have taken note.
        self.assert_goes_on(policy, rank, must_tell=False)

    def test_S10_a_rank_that_is_lost(self):
        for policy in ("bsp", "quorum"):
            self.ends_after_a_stop(policy, 1)

    def test_S10_rank_0_is_lost(self):
        self.ends_after_a_stop("quorum", 0)


class Killed(StallCase):
    """A process that is gone."""

    def dies(self, policy, rank):
        job, pids = self.begin(policy, f"kill={rank}@20")
        wait_for(lambda: not all(alive(pid) for pid in pids), "the death of a rank", job=job)
        self.assert_gone(pids)
        self.finish(job, KILLED)
        self.assert_goes_on(policy, rank)

    def test_S10_a_rank_is_killed(self):
        for policy in ("bsp", "window"):
            self.dies(policy, 1)

    def test_S10_rank_0_is_killed(self):
        self.dies("quorum", 0)


if __name__ == "__main__":
    policy_case.run()
