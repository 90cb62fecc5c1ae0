#!/usr/bin/env python3
"""Training under mpirun: any number of ranks does the same work, and what a run leaves is right."""
import json
import re
import signal

import numpy as np

import runner
from runner import CHECKPOINT, DONE, SOURCE, STOPPED, Case, read_attributes, read_tensors, wait_for
from sample_order import index_digest, run_digests

# A model of 1,210 parameters on 8x8 pictures: a step is well below a millisecond.
SMALL = ["--model", "mlp", "--hidden", "16", "--seed", "1", "--threads", "1"]


def losses(metrics):
    return [line["loss"] for line in metrics]


def distance(one, other):
    return max(abs(a - b) for a, b in zip(losses(one), losses(other)))


def mix(values):
    """The finaliser of MurmurHash3, as record_golden.py has it."""
    h = np.asarray(values, dtype=np.uint64) & np.uint64(0xFFFFFFFF)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        h ^= h >> np.uint64(shift)
        h = (h * np.uint64(factor)) & np.uint64(0xFFFFFFFF)
    return h.astype(np.int64)


def digests(metrics):
    return [line["index_digest"] for line in metrics]


class RanksAgree(Case):
    """N ranks do what one rank does, at the same global batch."""

    def train(self, ranks, data, batch, *options, out=None):
        out = out or f"n{ranks}"
        self.mpirun(ranks, "train", *SMALL, "--data", data, "--batch", batch, "--out", out, *options, check=DONE)
        return self.metrics(out)

    def assert_same_training(self, one, other, tolerance, ranks):
        self.assertEqual(digests(one), digests(other))
        for key in ("step", "epoch", "samples_seen", "samples", "weight", "lr"):
            self.assertEqual([line[key] for line in one], [line[key] for line in other], key)
        self.assertLessEqual(distance(one, other), tolerance, f"losses of {ranks} ranks")

    def golden_data(self):
        """The data of the golden curves (record_golden.py)."""
        k, samples = np.arange(28 * 28), np.arange(512)
        labels = mix(samples) % 10
        pattern = mix(1000003 + labels[:, None] * 784 + k) >> 24
        noise = mix(2000003 + samples[:, None] * 784 + k) >> 24
        pixels = ((3 * pattern + noise - 510) / 256).astype(np.float32)
        return f"hdf5:{self.write_hdf5('golden.h5', x=pixels.reshape(512, 28, 28, 1), y=labels.astype(np.uint8))}"

    def compare_with_golden_rule(self, model):
        """The distance to one rank is at most three times PyTorch's distance to itself.

        A relu or a maximum that falls to the other side makes a visible step. That is rare, and depends on the
        machine; so a start that met one may be repeated once from other weights, where a fault would show again."""
        golden = json.loads((SOURCE / "tests/e2e/golden" / f"{model}.json").read_text())
        data = self.golden_data()
        for optimizer, curve in golden["curves"].items():
            tolerance = 3 * max(curve["spread"], 1e-5)
            options = ["--model", model, "--data", data, "--batch", golden["batch"], "--threads", 1, "--optimizer", optimizer,
                       "--lr", curve["lr"], "--weight-decay", curve["weight_decay"], "--steps", 50, "--eval-every", 0,
                       "--checkpoint-every", 1000]
            options += ["--momentum", curve["momentum"]] if optimizer == "sgd" else []
            options += ["--hidden", ",".join(map(str, golden["hidden"]))] if golden["hidden"] else []
            for seed in (1, 2):
                curves = {}
                for n in (1, 2, 3, 4):
                    out = f"{optimizer}{seed}{n}"
                    self.mpirun(n, "train", *options, "--seed", seed, "--out", out, check=DONE)
                    curves[n] = self.metrics(out)
                self.assertLess(losses(curves[1])[-1], 0.9 * losses(curves[1])[0], "nothing was learnt")
                far = {n: distance(curves[1], curves[n]) for n in (2, 3, 4)}
                print(f"{model} {optimizer} seed {seed}: distances to one rank {far}, allowed {tolerance:.2g}")
                for n in (2, 3, 4):
                    self.assert_same_training(curves[1], curves[n], 5e-3, n)
                if max(far.values()) <= tolerance:
                    break
            self.assertLessEqual(max(far.values()), tolerance)

    def test_N05_mlp_as_one_rank_within_the_golden_rule(self):
        self.compare_with_golden_rule("mlp")

    def test_N05_lenet_as_one_rank_within_the_golden_rule(self):
        self.compare_with_golden_rule("lenet")

    def test_batch_128_on_3_ranks(self):
        one, three = (self.train(n, "synthetic:640x8x8x1x10", 128, "--epochs", 2) for n in (1, 3))
        self.assertEqual([line["samples"] for line in three], [128] * 10)
        self.assertEqual([line["participants"] for line in three], [3] * 10)
        self.assert_same_training(one, three, 3e-5, 3)

    def test_D01_1001_samples_on_2_ranks(self):
        one, two = (self.train(n, "synthetic:1001x8x8x1x10", 20, "--epochs", 2) for n in (1, 2))
        self.assert_same_training(one, two, 3e-5, 2)
        for epoch in (0, 1):
            self.assertEqual(sum(line["samples"] for line in two if line["epoch"] == epoch), 1001)
        self.assertEqual([line["samples"] for line in two], ([20] * 50 + [1]) * 2)
        self.assertEqual([line["participants"] for line in two], ([2] * 50 + [1]) * 2)

    def test_D03_10_samples_on_4_ranks(self):
        one, four = (self.train(n, "synthetic:10x8x8x1x4", 8, "--epochs", 3) for n in (1, 4))
        self.assertEqual([line["samples"] for line in four], [8, 2] * 3)
        self.assertEqual([line["participants"] for line in four], [4, 2] * 3)
        self.assert_same_training(one, four, 3e-5, 4)

    def test_D03_3_samples_on_4_ranks(self):
        one, four = (self.train(n, "synthetic:3x8x8x1x2", 8, "--epochs", 4) for n in (1, 4))
        self.assertEqual([line["participants"] for line in four], [3] * 4)
        self.assert_same_training(one, four, 3e-5, 4)

    def test_D13_each_sample_once_an_epoch(self):
        metrics = self.train(4, "synthetic:333x8x8x1x4", 32, "--epochs", 2)
        self.assertEqual(digests(metrics), run_digests(333, 32, seed=1, epochs=2))
        for epoch in (0, 1):
            total = sum(int(line["index_digest"], 16) for line in metrics if line["epoch"] == epoch)
            self.assertEqual(f"{total % 2**64:016x}", index_digest(range(333), epoch))
        first, second = digests(metrics)[:11], digests(metrics)[11:]
        self.assertFalse(set(first) & set(second))

    def test_D13_a_drawn_seed_is_shared_and_told_once(self):
        result = self.mpirun(3, "train", "--model", "mlp", "--hidden", 16, "--data", "synthetic:90x8x8x1x4", "--batch", 30, "--epochs", 1,
                             "--out", "run", check=DONE)
        told = [re.match(r"seed +(\d+) \(drawn", line) for line in result.out.splitlines()]
        told = [match for match in told if match]
        self.assertEqual(len(told), 1, result)
        self.assertEqual(digests(self.metrics()), run_digests(90, 30, seed=int(told[0][1]), epochs=1))

    def test_same_job_twice_is_bit_identical(self):
        first = self.train(2, "synthetic:200x8x8x1x4", 30, "--epochs", 2, out="a")
        second = self.train(2, "synthetic:200x8x8x1x4", 30, "--epochs", 2, out="b")
        self.assertEqual(losses(first), losses(second))


class Evaluation(Case):
    """Figures of evaluations are exact for any number of ranks."""

    def train(self, ranks, *options, out="run", check=DONE):
        return self.mpirun(ranks, "train", *SMALL, "--data", "synthetic:1000x8x8x1x10", "--batch", 100, "--out", out,
                           *options, check=check)

    def test_D15_counts_are_equal_for_any_ranks(self):
        self.train(2, "--epochs", 2)
        counts = set()
        evals = []
        for ranks, batch in ((1, 1000), (1, 7), (3, 100), (4, 1000)):
            result = self.mpirun(ranks, "eval", "--checkpoint", self.checkpoints()[-1], "--eval-batch", batch, check=DONE)
            line = result.lines("accuracy")
            self.assertEqual(len(line), 1, result)
            correct, samples, loss = re.search(r"\((\d+) of (\d+)\), loss ([\d.]+)", line[0]).groups()
            counts.add((int(correct), int(samples)))
            evals.append(float(loss))
        # N07: the figure that the run itself logged.
        logged = self.metrics()[-1]
        self.assertEqual(counts, {(logged["eval_correct"], logged["eval_samples"])})
        self.assertEqual(logged["eval_samples"], 250)
        for loss in evals:
            self.assertAlmostEqual(loss, logged["eval_loss"], delta=2e-6)
        summary = self.summary()
        self.assertEqual((summary["test_correct"], summary["test_samples"]), next(iter(counts)))

    def test_eval_of_other_data(self):
        self.train(1, "--epochs", 1)
        test = self.write_hdf5("test.h5", count=77, size=8)
        result = self.mpirun(2, "eval", "--checkpoint", self.checkpoints()[-1], "--data", f"hdf5:{test}", check=DONE)
        self.assertRegex(result.out, r"\(\d+ of 77\)")

    def test_eval_every(self):
        self.train(2, "--epochs", 2, "--eval-every", "4steps")
        self.assertEqual([line["step"] for line in self.metrics() if line["eval_samples"]], [4, 8, 12, 16, 20])
        self.train(2, "--epochs", 3, "--eval-every", "2", out="b")
        self.assertEqual([line["step"] for line in self.metrics("b") if line["eval_samples"]], [20, 30])

    def test_keep_best(self):
        # A rate so large at the end that the best figure lies before the last.
        self.train(2, "--epochs", 4, "--lr", "0.2", "--schedule", "step", "--step-epochs", "2", "--gamma", "0.0001",
                   "--keep-best", "loss")
        evals = {line["step"]: line["eval_loss"] for line in self.metrics() if line["eval_samples"]}
        self.assertEqual(sorted(evals), [10, 20, 30, 40])
        best = min(evals, key=evals.get)
        file = self.folder / "run/checkpoints/best.h5"
        self.assertEqual(read_attributes(file, "/run")["step"], best)
        result = self.mpirun(2, "eval", "--checkpoint", file, check=DONE)
        self.assertIn(f"loss {evals[best]:.6f}"[:-1], result.out)

    def test_keep_best_survives_a_restart(self):
        self.train(2, "--epochs", 2, "--keep-best", "accuracy", "--lr", "0.2")
        best = read_tensors(self.folder / "run/checkpoints/best.h5")
        accuracy = max(line["eval_accuracy"] for line in self.metrics() if line["eval_samples"])
        # Goes on with a rate that ruins the weights: the best file must stay the old one.
        self.train(2, "--epochs", 3, "--resume", "latest", "--lr", "40", "--clip-norm", "5")
        after = [line["eval_accuracy"] for line in self.metrics() if line["eval_samples"]][-1]
        self.assertLess(after, accuracy)
        for path, values in read_tensors(self.folder / "run/checkpoints/best.h5").items():
            np.testing.assert_array_equal(values, best[path], path)


class Checkpoints(Case):
    """What is saved, how long it is kept, and how other commands use it."""

    def train(self, ranks, *options, out="run", check=DONE, data="synthetic:240x8x8x1x4"):
        return self.mpirun(ranks, "train", *SMALL, "--data", data, "--batch", 24, "--out", out, *options, check=check)

    def steps(self, out="run"):
        return [int(path.stem[5:]) for path in self.checkpoints(out)]

    def test_keep_last_k(self):
        self.train(2, "--epochs", 2, "--checkpoint-every", 3, "--keep", 2)
        self.assertEqual(self.steps(), [18, 20])
        self.train(2, "--epochs", 2, "--checkpoint-every", 5, "--keep", 0, out="all")
        self.assertEqual(self.steps("all"), [5, 10, 15, 20])
        self.train(1, "--epochs", 4, out="standard")
        self.assertEqual(self.steps("standard"), [20, 30, 40])

    def test_h5py_reads_it_with_user_shapes(self):
        self.train(2, "--epochs", 1)
        tensors = read_tensors(self.checkpoints()[-1])
        shapes = {path: values.shape for path, values in tensors.items()}
        self.assertEqual({path: shape for path, shape in shapes.items() if path.startswith("/model/params/")},
                         {"/model/params/fc1.weight": (16, 64), "/model/params/fc1.bias": (16,),
                          "/model/params/fc2.weight": (4, 16), "/model/params/fc2.bias": (4,)})
        slots = [path for path in shapes if path.startswith("/optimizer/")]
        self.assertEqual(len(slots), 4)
        self.assertTrue(all(np.isfinite(values).all() for values in tensors.values()))
        run = read_attributes(self.checkpoints()[-1], "/run")
        self.assertEqual((run["step"], run["epoch"], run["samples_seen"], run["ranks"], run["seed"]), (10, 1, 240, 2, 1))
        self.assertIn("hidden = 16", run["config"])

    def test_inspect(self):
        self.train(2, "--epochs", 1)
        for verify in ((), ("--verify",)):
            result = self.alone("inspect", self.checkpoints()[-1], *verify, check=DONE)
            self.assertRegex(result.out, r"fc1\.weight +f\w*32 +\[16, 64\]")
            self.assertRegex(result.out, r"step = 10\n")
            self.assertIn("8 datasets", result.out)
        self.assertIn("verified: every dataset", result.out)

    def test_init_from_takes_the_weights_alone(self):
        self.train(2, "--epochs", 2, out="first")
        last = self.checkpoints("first")[-1]
        result = self.train(2, "--init-from", last, "--steps", 1, "--lr", "1e-30", "--momentum", "0.5", out="second")
        self.assertTrue(result.lines("with the weights of"), result)
        then, now = read_tensors(last), read_tensors(self.checkpoints("second")[-1])
        weights = [path for path in then if path.startswith("/model/params/")]
        for path in weights:
            np.testing.assert_array_equal(then[path], now[path], path)
        self.assertEqual(read_attributes(self.checkpoints("second")[-1], "/run")["step"], 1)
        # The momentum began at zero: after one step it is that step's gradient, far below the old one's sum.
        changed = [path for path in then if path.startswith("/optimizer/") and not np.array_equal(then[path], now[path])]
        self.assertTrue(changed)
        self.assertEqual(self.metrics("second")[0]["step"], 1)

    def test_C11_a_second_run_in_the_folder_is_refused(self):
        self.train(2, "--epochs", 1)
        before = self.tree()
        result = self.train(2, "--epochs", 1, check=runner.SETTINGS)
        self.assertEqual(len(result.lines("already holds a run")), 1, result)
        self.assertRegex(result.err, r"started \d{4}-\d\d-\d\d .*last step 10.*--resume latest.*--replace")
        self.assertEqual(self.tree(), before)
        self.train(2, "--steps", 4, "--replace")
        self.assertEqual((self.steps(), len(self.metrics())), ([4], 4))

    def test_resume_auto(self):
        self.train(2, "--steps", 4, "--resume", "auto")
        self.assertEqual(self.steps(), [4])
        self.train(2, "--steps", 9, "--resume", "auto")
        self.assertEqual([line["step"] for line in self.metrics()], list(range(1, 10)))
        self.assertEqual(self.summary()["step"], 9)

    def test_resume_latest_without_a_run_is_an_error(self):
        result = self.train(2, "--steps", 4, "--resume", "latest", check=CHECKPOINT)
        self.assertEqual(len(result.lines("no run to resume")), 1, result)
        self.assertFalse((self.folder / "run").exists())

    def test_nothing_left_to_do(self):
        self.train(2, "--steps", 4)
        before = read_tensors(self.checkpoints()[-1])
        result = self.train(2, "--steps", 4, "--resume", "latest")
        self.assertTrue(result.lines("nothing to do"), result)
        self.assertEqual(self.steps(), [4])
        for path, values in read_tensors(self.checkpoints()[-1]).items():
            np.testing.assert_array_equal(values, before[path], path)


class Stopping(Case):
    """Requests to stop, by signal or by time."""

    def endless(self, save_every, out="run"):
        """Arguments of a run that trains until it is stopped; the rate is small, so that it stays finite."""
        return ["train", *SMALL, "--lr", "0.001", "--data", "synthetic:640x8x8x1x4", "--batch", 32, "--epochs", 100000,
                "--eval-every", 0, "--checkpoint-every", save_every, "--out", out]

    def lines_written(self):
        path = self.folder / "run/metrics.jsonl"
        return path.exists() and path.read_bytes().count(b"\n")

    def stopped_step(self, result):
        self.assertEqual(result.rc, STOPPED, result)
        self.assertEqual(len(result.lines("stopped on request")), 1, result)
        step = self.summary()["step"]
        self.assertEqual(self.summary()["status"], "stopped")
        self.assertEqual(read_attributes(self.checkpoints()[-1], "/run")["step"], step)
        self.assertEqual(self.metrics()[-1]["step"], step)
        return step

    def assert_resumes_like_unbroken(self, step):
        """Goes on for 7 steps and compares with a run that saved at the same step without a stop."""
        until = ["--steps", step + 7, "--checkpoint-every", step]
        self.mpirun(2, "train", "--resume", "latest", "--out", "run", *until, check=DONE)
        self.mpirun(2, *self.endless(step, out="unbroken"), "--steps", step + 7, check=DONE, timeout=120)
        files = self.checkpoints()[-1], self.checkpoints("unbroken")[-1]
        self.assertEqual(files[0].name, files[1].name)
        resumed, unbroken = map(read_tensors, files)
        self.assertEqual(sorted(resumed), sorted(unbroken))
        for path, values in resumed.items():
            self.assertEqual(values.tobytes(), unbroken[path].tobytes(), path)
        self.assertEqual(losses(self.metrics()), losses(self.metrics("unbroken")))
        self.assertEqual(digests(self.metrics()), digests(self.metrics("unbroken")))

    def stop_by(self, number):
        job = self.start(2, *self.endless(100000))
        wait_for(self.lines_written, "the first lines of metrics.jsonl", job=job)
        job.signal(number)
        return self.stopped_step(job.wait(30))

    def test_L07_USR1_saves_and_resumes(self):
        self.assert_resumes_like_unbroken(self.stop_by(signal.SIGUSR1))

    def test_L07_USR2_saves(self):
        self.stop_by(signal.SIGUSR2)

    def test_max_time_saves_and_resumes(self):
        result = self.mpirun(2, *self.endless(100000), "--max-time", "1s")
        self.assert_resumes_like_unbroken(self.stopped_step(result))

    def ends_without_damage(self, number):
        """mpirun leaves about a second; whatever was published is whole, and the run goes on from there."""
        job = self.start(2, *self.endless(20))
        wait_for(lambda: len(self.checkpoints()) >= 2, "two checkpoints", job=job)
        job.signal(number)
        self.assertNotEqual(job.wait(30).rc, DONE)
        for file in self.checkpoints():
            self.alone("inspect", file, "--verify", check=DONE)
        step = read_attributes(self.checkpoints()[-1], "/run")["step"]
        result = self.mpirun(2, "train", "--resume", "latest", "--out", "run", "--steps", step + 3, check=DONE)
        self.assertTrue(result.lines(f"at step {step} "), result)
        self.assertEqual([line["step"] for line in self.metrics()], list(range(1, step + 4)))

    def test_L07_TERM_leaves_no_damaged_file(self):
        self.ends_without_damage(signal.SIGTERM)

    def test_L07_INT_leaves_no_damaged_file(self):
        self.ends_without_damage(signal.SIGINT)


if __name__ == "__main__":
    runner.main()
