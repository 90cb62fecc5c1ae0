"""What the tests of the policies share: short trainings on 4 ranks, and the sums that must come out."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))
import runner  # noqa: E402
from runner import DONE, Case, read_tensors  # noqa: E402

POLICIES = ("bsp", "balance", "drop", "local", "bmuf", "slowmo", "diloco", "easgd", "selsync", "window", "backup", "quorum",
            "majority", "solo", "ssp")
RANKS = 4
SAMPLES = 808  # 13 steps an epoch, the last of 40 samples
# A model of 1,210 parameters on 8x8 pictures.
MODEL = ["--model", "mlp", "--hidden", "16", "--seed", "1", "--threads", "1"]
START = ["train", *MODEL, "--data", f"synthetic:{SAMPLES}x8x8x1x10", "--batch", 64]
# Equal ranks: real steps are so short that a busy machine would make some of them many times as long as others.
STEADY = ["--emulate-step", 8]
# In every step another rank, drawn at random, is late by two steps, and all are a little uneven.
DELAYS = ["--inject", "random=1:+2,noise=0.1", "--emulate-step", 4]


def total(lines, key):
    return sum(line[key] for line in lines)


class PolicyCase(Case):
    """Helpers; holds no tests."""

    def train(self, *options, ranks=RANKS, out="run", check=DONE, **more):
        return self.mpirun(ranks, *START, "--out", out, *options, check=check, **more)

    def resume(self, *options, ranks=RANKS, out="run", check=DONE, **more):
        return self.mpirun(ranks, "train", "--resume", "latest", "--out", out, *options, check=check, **more)

    def checkpoint(self, out, step):
        return self.folder / out / "checkpoints" / f"step-{step:08}.h5"

    def differences(self, file, other):
        """Datasets of two checkpoints whose bits differ, or that only one of them has."""
        one, two = read_tensors(file), read_tensors(other)
        self.assertTrue(any(path.startswith("/model/params/") for path in one))
        return sorted(path for path in {*one, *two} if path not in one or path not in two
                      or one[path].tobytes() != two[path].tobytes())

    def assert_same_tensors(self, file, other, what=""):
        self.assertEqual(self.differences(file, other), [], f"{what}: {file} and {other}")

    def assert_each_sample_once(self, epochs, out="run", what="", by_epoch=True):
        """Every epoch has applied its samples, each once, in time or late; returns the lines of metrics.jsonl."""
        lines = self.metrics(out)
        applied = {}
        for line in lines:
            applied[line["epoch"]] = applied.get(line["epoch"], 0) + line["samples"] + line["late_samples"]
            self.assertEqual(sum(line["rank_samples"]), line["samples"] + line["late_samples"], line)
            self.assertEqual(sum(line["ages"]), line["samples"] + line["late_samples"], line)
        self.assertEqual(sum(applied.values()), epochs * SAMPLES, what)
        if by_epoch:
            self.assertEqual(applied, {epoch: SAMPLES for epoch in range(epochs)}, what)
        summary = self.summary(out)
        self.assertEqual((summary["status"], summary["samples_seen"], summary["epoch"]), ("done", epochs * SAMPLES, epochs), what)
        return lines

    def assert_summary_adds_up(self, lines, out="run"):
        """Of a run that was never interrupted."""
        summary = self.summary(out)
        self.assertEqual(summary["rounds"], len(lines))
        self.assertEqual(summary["samples_applied"], total(lines, "samples") + total(lines, "late_samples"))
        self.assertEqual(summary["samples_applied_late"], total(lines, "late_samples"))
        self.assertEqual(summary["samples_written_off"], total(lines, "written_off"))
        for key, name in (("samples_by_rank", "rank_samples"), ("samples_by_age", "ages")):
            count = len(summary[key])
            sums = [sum(line[name][i] for line in lines if i < len(line[name])) for i in range(count)]
            self.assertEqual(summary[key], sums)


def run():
    """For the end of a test file."""
    runner.main()
