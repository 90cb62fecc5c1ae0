#!/usr/bin/env python3
"""The exchange hides behind the computation, read off the traces of two ranks."""

import runner
from runner import DONE, Case

FIRST, LAST = 3, 22  # traced steps; the first steps of a run are not typical


class Overlap(Case):
    """mlp 784-1024-1024-10 with buckets of 1 MB on two ranks."""

    def traced_steps(self, overlap):
        """{(rank, step): {row: its spans in order of their begin}} of a run."""
        out = f"run-{overlap}"
        self.mpirun(2, "train", "--model", "mlp", "--hidden", "1024,1024", "--data", "synthetic:1024x28x28x1x10", "--batch",
                    64, "--seed", 1, "--threads", 1, "--update-thread", "own", "--bucket-mb", 1, "--overlap", overlap,
                    "--steps", LAST + 2, "--eval-every", 0, "--checkpoint-every", 1000, "--trace", f"{FIRST}:{LAST + 1}",
                    "--out", out, check=DONE, timeout=120)
        events = self.trace(out)["traceEvents"]
        rows = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
        steps = {}
        for event in events:
            if event["ph"] == "X":
                spans = steps.setdefault((event["pid"], event["args"]["step"]), {})
                spans.setdefault(rows[event["pid"], event["tid"]], []).append(event)
        for spans in steps.values():
            for row in spans.values():
                row.sort(key=lambda span: span["ts"])
        self.assertEqual(len(steps), 2 * (LAST - FIRST + 1))
        return steps

    @staticmethod
    def end(spans):
        return max(span["ts"] + span["dur"] for span in spans)

    def sent_during_backward(self, spans):
        """The first bucket is on its way before the last backward node ends."""
        buckets = [span for span in spans["communication"] if span["name"].startswith("all-reduce bucket")]
        return buckets[0]["ts"] < self.end(spans["compute"])

    def overlaps(self, steps):
        """Of how many steps that have a successor the exchange overlaps backward and the next forward."""
        followed = [(spans, steps[rank, step + 1]) for (rank, step), spans in steps.items() if (rank, step + 1) in steps]
        self.assertEqual(len(followed), len(steps) - 2)
        both = [self.sent_during_backward(spans) and after["compute"][0]["ts"] < self.end(spans["update"])
                for spans, after in followed]
        return sum(both), len(both)

    def assert_forward_waits_for_updates(self, steps):
        """No layer runs before the weights it reads are updated: the first layer's gradient is the last to come."""
        for (rank, step), spans in steps.items():
            if (rank, step + 1) in steps:
                first_layer = next(span for span in steps[rank, step + 1]["compute"] if span["name"] == "fc1")
                self.assertGreaterEqual(first_layer["ts"], spans["update"][-1]["ts"] + spans["update"][-1]["dur"])

    def test_overlap_full(self):
        steps = self.traced_steps("full")
        good, of = self.overlaps(steps)
        self.assertGreater(good, of / 2)
        self.assert_forward_waits_for_updates(steps)

    def test_overlap_backward(self):
        steps = self.traced_steps("backward")
        self.assertGreater(sum(map(self.sent_during_backward, steps.values())), len(steps) / 2)
        self.assert_forward_waits_for_updates(steps)

    def test_the_same_checks_fail_without_overlap(self):
        steps = self.traced_steps("off")
        self.assertEqual(self.overlaps(steps)[0], 0)
        self.assertEqual(sum(map(self.sent_during_backward, steps.values())), 0)
        self.assert_forward_waits_for_updates(steps)


if __name__ == "__main__":
    runner.main()
