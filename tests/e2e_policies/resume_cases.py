#!/usr/bin/env python3
"""Checkpoints and restarts under every policy."""
import signal

import policy_case
from policy_case import DELAYS, POLICIES, RANKS, SAMPLES, START, STEADY, PolicyCase
from runner import DONE, STOPPED, read_attributes, wait_for

EPOCHS = 3
# Options with which a policy does the same in each run: no decision depends on a measured time.
DETERMINISTIC = {
    "bsp": [], "balance": STEADY, "drop": ["--drop-tau", 1000], "quorum": ["--quorum", RANKS], "local": ["--sync-every", 4],
    "bmuf": ["--sync-every", 4], "slowmo": ["--sync-every", 4], "diloco": ["--sync-every", 7], "easgd": ["--sync-every", 4],
    "selsync": ["--sync-rate", "0.3"],
}
# Rounds of window in which a test's few do not come to the end of the run, however fast the machine.
BRIEF = ["--window", 2]


class ExactRestartOfPolicies(PolicyCase):
    """A resumed run is bit for bit the run that never stopped and saved at the same steps."""

    def compare(self, policy, *options, steps=(20,)):
        common = ["--policy", policy, "--micro-batch", 4, "--checkpoint-every", 10, "--keep", 0, *options]
        self.train(*common, "--steps", 39, out=f"{policy}-whole")
        out = f"{policy}-parts"
        self.train(*common, "--steps", steps[0], out=out)
        for step in (*steps[1:], 39):
            self.resume("--steps", step, *STEADY * (policy == "balance"), out=out)
        key = ("step", "loss", "index_digest", "samples_seen", "eval_loss")
        whole, parts = ([[line[name] for name in key] for line in self.metrics(o)] for o in (f"{policy}-whole", out))
        # An end of a run is evaluated once more.
        for line in parts:
            line[-1] = line[-1] if line[0] not in steps else None
        self.assertEqual(parts, whole, policy)
        self.assert_same_tensors(self.checkpoint(f"{policy}-whole", 39), self.checkpoint(out, 39), policy)

    def test_policies_that_exchange_gradients(self):
        for policy in ("bsp", "balance", "drop", "quorum"):
            self.compare(policy, *DETERMINISTIC[policy])

    def test_policies_that_exchange_models(self):
        for policy in ("local", "bmuf", "slowmo", "diloco", "easgd", "selsync"):
            self.compare(policy, *DETERMINISTIC[policy])

    def test_state_that_ranks_keep_with_adamw(self):
        adamw = ["--optimizer", "adamw", "--lr", "0.002"]
        for policy, state in (("easgd", "keep"), ("local", "average")):
            self.compare(policy, "--sync-every", 4, "--local-state", state, *adamw, steps=(20, 30))


class Restart(PolicyCase):
    """A run that is stopped on the way goes on and applies what is left, once."""

    def stop_by_steps(self, policies):
        for policy in policies:
            common = ["--policy", policy, "--micro-batch", 4, "--epochs", EPOCHS, "--checkpoint-every", 5]
            common += BRIEF * (policy == "window")
            # In the second epoch or a later one, away from its end.
            self.train(*common, *DELAYS, "--steps", 8 if policy == "window" else 18, out=policy)
            before = self.summary(policy)
            self.assertEqual((before["status"], before["step"]), ("done", 8 if policy == "window" else 18))
            if policy == "window":  # its rounds hold what fits into their time, so they may end with the epoch
                self.assertLess(before["samples_seen"], EPOCHS * SAMPLES)
            else:
                self.assertNotEqual(before["samples_seen"] % SAMPLES, 0, policy)
            result = self.resume("--steps", 0, *DELAYS, out=policy)
            self.assertTrue(result.lines(f"at step {before['step']} "), result)
            self.assert_each_sample_once(EPOCHS, out=policy, what=policy)
            run = read_attributes(self.checkpoints(policy)[-1], "/run")
            self.assertEqual((run["samples_seen"], run["epoch"]), (EPOCHS * SAMPLES, EPOCHS), policy)
            self.alone("inspect", "--verify", self.checkpoints(policy)[-1], check=DONE)

    def test_stopped_by_steps_with_gradients(self):
        self.stop_by_steps(POLICIES[:3] + POLICIES[10:])

    def test_stopped_by_steps_with_models(self):
        self.stop_by_steps(POLICIES[3:10])

    def stop_by_signal(self, policy):
        job = self.start(RANKS, *START, "--policy", policy, "--micro-batch", 4, "--epochs", 1000, "--eval-every", 0, "--lr",
                         "0.001", "--checkpoint-every", 4, *DELAYS, "--out", policy)
        wait_for(lambda: len(self.checkpoints(policy)) > 1, "two checkpoints", job=job)
        job.signal(signal.SIGUSR1)
        result = self.finish(job, STOPPED)
        self.assertEqual(len(result.lines("stopped on request")), 1, result)
        summary = self.summary(policy)
        self.assertEqual(read_attributes(self.checkpoints(policy)[-1], "/run")["step"], summary["step"], policy)
        self.assertEqual(self.metrics(policy)[-1]["step"], summary["step"], policy)
        epochs = summary["epoch"] + 2
        self.resume("--epochs", epochs, "--emulate-step", 0, "--inject", "", out=policy)
        # Without a look at the weights at its end, an epoch may end inside a round of local steps.
        self.assert_each_sample_once(epochs, out=policy, what=policy, by_epoch=policy != "local")

    def test_L07_USR1_with_gradients(self):
        for policy in ("bsp", "drop", "quorum"):
            self.stop_by_signal(policy)

    def test_L07_USR1_with_models(self):
        for policy in ("local", "window"):
            self.stop_by_signal(policy)


class Changes(PolicyCase):
    """Another policy or another number of ranks goes on from the same sample."""

    def test_policy_changes(self):
        self.train("--policy", "bsp", "--steps", 8, "--epochs", EPOCHS, "--checkpoint-every", 1000, "--micro-batch", 4)
        step = 8
        for before, policy in (("bsp", "quorum"), ("quorum", "easgd"), ("easgd", "drop"), ("drop", "window")):
            step += 2 if policy == "window" else 6
            result = self.resume("--policy", policy, "--steps", step, *BRIEF * (policy == "window"), *DELAYS)
            self.assertEqual(len(result.lines(f"the policy changes from {before} to {policy}")), 1, result)
            self.assertEqual(len(result.lines(f'--policy: checkpoint "{before}", now "{policy}"')), 1, result)
            self.assertEqual(self.summary()["step"], step)
        result = self.resume("--policy", "bsp", "--steps", 0)
        self.assertEqual(len(result.lines("the policy changes from window to bsp")), 1, result)
        self.assert_each_sample_once(EPOCHS)

    def test_other_ranks(self):
        """What a rank keeps of its own is of no use to others: it is left behind, which is told."""
        own = {"easgd": ("weights", "slot:momentum"), "selsync": ("slot:momentum",)}
        for policy in ("easgd", "selsync", "local", "quorum", "window"):
            brief = BRIEF * (policy == "window")
            self.train("--policy", policy, "--steps", 6, "--epochs", EPOCHS, "--micro-batch", 4, *brief, *DELAYS, out=policy)
            result = self.resume("--steps", 0, ranks=3, out=policy)
            self.assertEqual(len(result.lines("checkpoint is of 4 ranks, this job has 3")), 1, result)
            warnings = result.lines("the checkpoint is of another number of ranks")
            self.assertEqual(len(warnings), len(own.get(policy, ())), result)
            for name in own.get(policy, ()):
                self.assertTrue(any(name in line and line.startswith("warning") for line in warnings), result)
            self.assert_each_sample_once(EPOCHS, out=policy, what=policy)

    def test_equal_ranks_keep_their_own(self):
        self.train("--policy", "easgd", "--steps", 6, "--epochs", EPOCHS)
        result = self.resume("--steps", 0)
        self.assertFalse(result.lines("starts anew"), result)


if __name__ == "__main__":
    policy_case.run()
