#!/usr/bin/env python3
"""Checkpoints and restarts: exact, from any step, after any kind of end, on another number of ranks."""
import fcntl
import random
import shutil
import time

import h5py
import numpy as np

import runner
from runner import CHECKPOINT, DONE, SETTINGS, Case, hide_folder, read_attributes, read_tensors, wait_for

DATA = ["--data", "synthetic:100x8x8x1x4", "--batch", 12]  # 9 steps an epoch, the last of 4 samples
MODEL = ["--model", "mlp", "--hidden", "16", "--seed", "1", "--threads", "1"]
START = ["train", *MODEL, *DATA]


class RestartCase(Case):
    """Helpers of this file; holds no tests."""

    def assert_same_tensors(self, file, other):
        one, two = read_tensors(file), read_tensors(other)
        self.assertEqual(sorted(one), sorted(two))
        self.assertTrue(any(path.startswith("/optimizer/") for path in one))
        for path, values in one.items():
            self.assertEqual(values.tobytes(), two[path].tobytes(), f"{path} of {file} and {other}")

    def series(self, out, *keys):
        return [[line[key] for key in keys] for line in self.metrics(out)]

    def checkpoint(self, out, step):
        return self.folder / out / "checkpoints" / f"step-{step:08}.h5"


class ExactRestart(RestartCase):
    """A resumed run is bit for bit the run that never stopped and saved at the same steps."""

    STEPS = 20

    def resume_at_any_step(self, ranks, *options):
        common = [*options, "--checkpoint-every", 1, "--keep", 0, "--steps", self.STEPS]
        self.mpirun(ranks, *START, *common, "--out", "unbroken", check=DONE)
        unbroken = self.series("unbroken", "loss", "lr", "epoch", "index_digest", "samples_seen", "eval_loss")
        # In an epoch, before and after its short last step, and before the run's last step.
        for step in (1, 5, 8, 9, 19):
            out = f"from{step}"
            result = self.mpirun(ranks, *START, *common, "--out", out, "--resume", self.checkpoint("unbroken", step), check=DONE)
            self.assertTrue(result.lines(f"at step {step} "), result)
            self.assertEqual(self.series(out, "loss", "lr", "epoch", "index_digest", "samples_seen", "eval_loss"),
                             unbroken[step:])
            self.assert_same_tensors(self.checkpoint(out, self.STEPS), self.checkpoint("unbroken", self.STEPS))

    def test_K09_K13_sgd_in_and_after_warm_up(self):
        self.resume_at_any_step(2, "--optimizer", "sgd", "--schedule", "cosine", "--warmup-epochs", "1", "--lr", "0.05")

    def test_K09_K13_adamw(self):
        self.resume_at_any_step(2, "--optimizer", "adamw", "--lr", "0.002", "--weight-decay", "0.01", "--warmup-epochs", "0.7")

    def test_one_rank_with_clipping_and_step_schedule(self):
        self.resume_at_any_step(1, "--clip-norm", "0.5", "--schedule", "step", "--step-epochs", "1")

    def test_lenet_latest(self):
        common = ["train", "--model", "lenet", "--seed", "3", "--threads", "1", "--data", "synthetic:96x28x28x1x10", "--batch",
                  32, "--checkpoint-every", 2]
        self.mpirun(2, *common, "--steps", 6, "--out", "unbroken", check=DONE)
        self.mpirun(2, *common, "--steps", 4, "--out", "run", check=DONE)
        self.mpirun(2, "train", "--resume", "latest", "--out", "run", "--steps", 6, check=DONE)
        self.assert_same_tensors(self.checkpoint("run", 6), self.checkpoint("unbroken", 6))
        self.assertEqual(self.series("run", "loss", "index_digest"), self.series("unbroken", "loss", "index_digest"))

    def test_saving_does_not_change_training(self):
        for every in (1, 1000):
            self.mpirun(2, *START, "--steps", 20, "--checkpoint-every", every, "--out", f"every{every}", check=DONE)
        self.assert_same_tensors(self.checkpoint("every1", 20), self.checkpoint("every1000", 20))


class OtherRanks(RestartCase):
    """A checkpoint of some ranks goes on on others."""

    def test_K09_2_ranks_then_3_at_the_same_sample(self):
        self.mpirun(2, *START, "--steps", 18, "--out", "unbroken", check=DONE)
        self.mpirun(2, *START, "--steps", 7, "--out", "run", check=DONE)
        result = self.mpirun(3, "train", "--resume", "latest", "--out", "run", "--steps", 18, check=DONE)
        self.assertEqual(len(result.lines("checkpoint is of 2 ranks, this job has 3")), 1, result)
        exact = ("step", "epoch", "samples_seen", "samples", "index_digest", "lr")
        self.assertEqual(self.series("run", *exact), self.series("unbroken", *exact))
        np.testing.assert_allclose(self.series("run", "loss"), self.series("unbroken", "loss"), atol=3e-5, rtol=0)

    def test_back_to_1_rank(self):
        self.mpirun(3, *START, "--steps", 7, "--out", "run", check=DONE)
        self.mpirun(1, "train", "--resume", "latest", "--out", "run", "--steps", 18, check=DONE)
        self.mpirun(1, *START, "--steps", 18, "--out", "unbroken", check=DONE)
        self.assertEqual(self.series("run", "index_digest"), self.series("unbroken", "index_digest"))


class KillDuringSaves(RestartCase):
    """K01."""

    def test_K01_kill_during_saves(self):
        """20 random kills of all processes; large weights, so that much of the time is spent in saves."""
        generator = random.Random(1)
        start = ["train", "--model", "mlp", "--hidden", "400,400", "--seed", "1", "--threads", "1", *DATA, "--lr", "0.001",
                 "--checkpoint-every", 1, "--eval-every", 0, "--epochs", 100000, "--out", "run"]
        last, interrupted = 0, 0
        for kill in range(20):
            job = self.start(2, *(start if kill == 0 else [*start, "--resume", "latest"]))
            # Progress is certain: killed at some moment after a save of this job was published.
            wait_for(lambda: any(self.step_of(file) > last for file in self.checkpoints()), "a new checkpoint", job=job)
            time.sleep(generator.uniform(0, 0.03))
            job.kill_all()
            interrupted += bool(self.leftovers())
            newest = self.checkpoints()[-1]
            self.alone("inspect", newest, "--verify", check=DONE)
            self.assertGreater(self.step_of(newest), last)
            last = self.step_of(newest)
        self.assertGreater(interrupted, 0, "no kill met a save: this tested nothing")
        result = self.mpirun(2, *start, "--resume", "latest", "--steps", last + 2, check=DONE)
        self.assertTrue(result.lines(f"at step {last} "), result)
        self.assertFalse(result.lines("skipped"), result)
        self.assertEqual(self.leftovers(), [])
        self.assertEqual([line["step"] for line in self.metrics()], list(range(1, last + 3)))
        self.assertEqual(len(self.checkpoints()), 3)

    @staticmethod
    def step_of(file):
        return int(file.stem[5:])


class DamagedFiles(RestartCase):
    """What is damaged is found; the newest whole file is used."""

    def setUp(self):
        super().setUp()
        self.mpirun(2, *START, "--steps", 9, "--checkpoint-every", 3, "--out", "run", check=DONE)
        self.newest = self.checkpoint("run", 9)

    def flip_bytes_in_weights(self):
        """Four bytes inside a dataset, as a failing disk does it."""
        with h5py.File(self.newest) as file:
            offset = file["/model/params/fc1.weight"].id.get_offset()
        with open(self.newest, "r+b") as file:
            file.seek(offset + 400)
            old = file.read(4)
            file.seek(offset + 400)
            file.write(bytes(255 - byte for byte in old))

    def resume_latest(self, **options):
        return self.mpirun(2, "train", "--resume", "latest", "--out", "run", "--steps", 12, **options)

    def assert_skips_newest(self):
        result = self.resume_latest(check=DONE)
        self.assertEqual(len(result.lines("skipped")), 1, result)
        self.assertIn(self.newest.name, result.lines("skipped")[0])
        self.assertTrue(result.lines("at step 6 "), result)
        self.assertEqual([line["step"] for line in self.metrics()], list(range(1, 13)))

    def assert_refused(self, *words):
        """As an explicit file: exit 4, one line, nothing written."""
        before = self.tree()
        result = self.mpirun(2, "train", "--resume", self.newest, "--out", "other", "--steps", 12, check=CHECKPOINT)
        lines = [line for line in result.err.splitlines() if line.startswith("error")]
        self.assertEqual(len(lines), 1, result)
        for word in (self.newest.name, *words):
            self.assertIn(word, lines[0])
        self.assertEqual(self.tree(), before)
        self.assertFalse((self.folder / "other").exists())

    def test_K19_flipped_bytes_latest(self):
        self.flip_bytes_in_weights()
        self.assert_skips_newest()

    def test_K19_flipped_bytes_explicit_file(self):
        self.flip_bytes_in_weights()
        self.assert_refused("fc1.weight", "damaged")
        for command in (["inspect", self.newest, "--verify"], ["eval", "--checkpoint", self.newest],
                        ["train", *MODEL, *DATA, "--out", "init", "--init-from", self.newest]):
            self.mpirun(1, *command, check=CHECKPOINT)

    def test_cut_short(self):
        size = self.newest.stat().st_size
        for left in (size - 1000, size // 2, 0):
            with open(self.newest, "r+b") as file:
                file.truncate(left)
            self.assert_refused()
        self.assert_skips_newest()

    def test_not_hdf5(self):
        self.newest.write_text("<html>quota exceeded</html>")
        self.assert_refused("not an HDF5 file")
        self.assert_skips_newest()

    def test_K11_momentum_removed(self):
        """Another program may edit a checkpoint; what is absent is named, never taken as zero."""
        with h5py.File(self.newest, "r+") as file:
            slots = [name for name in file["/optimizer"] if isinstance(file["/optimizer"][name], h5py.Group)]
            for slot in slots:
                del file["/optimizer"][slot]
        self.assertTrue(slots)
        result = self.mpirun(2, "train", "--resume", self.newest, "--out", "other", check=CHECKPOINT)
        lines = [line for line in result.err.splitlines() if line.startswith("error")]
        self.assertEqual(len(lines), 1, result)
        for slot in slots:
            self.assertIn(f"/optimizer/{slot}/fc1.weight is missing", lines[0])
        self.assertIn("--init-from", lines[0])
        # The explicit way to the weights alone works.
        self.mpirun(2, *START, "--init-from", self.newest, "--steps", 1, "--out", "weights", check=DONE)

    def test_nothing_usable(self):
        for file in self.checkpoints():
            file.write_bytes(b"x" * 100)
        before = self.tree()
        result = self.resume_latest(check=CHECKPOINT)
        self.assertEqual(len(result.lines("no usable checkpoint")), 1, result)
        self.assertEqual(self.tree(), before)

    def test_best_is_no_latest(self):
        self.newest.rename(self.newest.with_name("best.h5"))
        self.assertTrue(self.resume_latest(check=DONE).lines("at step 6 "))


class Locks(RestartCase):
    """K15: somebody else has the file or the folder."""

    def setUp(self):
        super().setUp()
        self.mpirun(2, *START, "--steps", 3, "--out", "run", check=DONE)

    def test_K15_checkpoint_open_for_writing_elsewhere(self):
        file = self.checkpoint("run", 3)
        with open(file, "r+b") as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            result = self.mpirun(2, "train", "--resume", file, "--out", "other", "--steps", 5, check=CHECKPOINT)
            lines = [line for line in result.err.splitlines() if line.startswith("error")]
            self.assertEqual(len(lines), 1, result)
            for word in (file.name, "HDF5_USE_FILE_LOCKING"):
                self.assertIn(word, lines[0])
            self.mpirun(2, "train", "--resume", file, "--out", "forced", "--steps", 5, check=DONE,
                        env={"HDF5_USE_FILE_LOCKING": "FALSE"})
        self.mpirun(2, "train", "--resume", file, "--out", "free", "--steps", 5, check=DONE)

    def test_K15_two_jobs_in_one_folder(self):
        job = self.start(2, *START, "--lr", "0.001", "--epochs", 1000000, "--eval-every", 0, "--checkpoint-every", 100000,
                         "--out", "busy")
        metrics = self.folder / "busy/metrics.jsonl"
        wait_for(lambda: metrics.exists() and metrics.stat().st_size, "the first metrics", job=job)
        for option in (["--resume", "latest"], ["--replace"], []):
            result = self.mpirun(1, *START, "--out", "busy", *option, check=CHECKPOINT)
            self.assertEqual(len(result.lines("in use by another job")), 1, result)
            self.assertRegex(result.err, r"host \S+, pid \d+")
        self.assertTrue(job.running())
        job.kill_all()
        # The lock of a killed job binds nobody.
        self.mpirun(1, *START, "--out", "busy", "--replace", "--steps", 2, check=DONE)


class Views(RestartCase):
    """K05."""

    def test_K05_a_rank_that_does_not_see_the_folder(self):
        self.need_private_mounts()
        self.mpirun(2, *START, "--steps", 5, "--out", "run", check=DONE)
        shutil.copytree(self.folder / "run", self.folder / "unbroken")
        self.mpirun(2, "train", "--resume", "latest", "--steps", 9, "--out", "unbroken", check=DONE)
        arguments = ["train", "--resume", "latest", "--steps", 9, "--out", "run"]
        blind = hide_folder(self.folder / "run")
        result = self.mpirun_parts((1, arguments), (1, arguments, blind), check=DONE)
        self.assertTrue(result.lines("at step 5 "), result)
        self.assert_same_tensors(self.checkpoint("run", 9), self.checkpoint("unbroken", 9))
        # When it is rank 0 that sees nothing, all end alike.
        result = self.mpirun_parts((1, arguments, blind), (1, arguments), check=CHECKPOINT)
        self.assertEqual(len(result.lines("no run to resume")), 1, result)


class DiskFull(RestartCase):
    """K07."""

    def test_K07_disk_full_while_saving(self):
        out = self.mount_tmpfs("disk", "2500k")
        # A checkpoint takes 1.5 MB, so that the second does not fit.
        start = ["train", "--model", "mlp", "--hidden", "400,400", "--seed", "1", "--threads", "1", *DATA, "--lr", "0.001",
                 "--checkpoint-every", 3, "--eval-every", 0, "--steps", 30, "--out", out / "run"]
        result = self.mpirun(2, *start, check=CHECKPOINT)
        lines = [line for line in result.err.splitlines() if line.startswith("error")]
        self.assertEqual(len(lines), 1, result)
        for word in ("step-00000006.h5", "bytes needed", "bytes free", "No space left"):
            self.assertIn(word, lines[0])
        self.assertEqual([path.name for path in self.checkpoints(out / "run")], ["step-00000003.h5"])
        self.assertEqual(self.leftovers(out / "run"), [])
        self.alone("inspect", "--verify", out / "run/checkpoints/step-00000003.h5", check=DONE)
        # With space again the same command goes on.
        larger = self.folder / "larger"
        shutil.copytree(out / "run", larger)
        result = self.mpirun(2, "train", "--resume", "latest", "--out", larger, "--steps", 6, check=DONE)
        self.assertTrue(result.lines("at step 3 "), result)


class Resuming(RestartCase):
    """What may change at a restart, and what may not."""

    def setUp(self):
        super().setUp()
        self.mpirun(2, *START, "--steps", 4, "--out", "run", check=DONE)

    def test_settings_that_must_match(self):
        before = self.tree()
        result = self.mpirun(2, "train", "--resume", "latest", "--out", "run", "--batch", 10, "--optimizer", "adamw",
                             check=CHECKPOINT)
        for word in ('--batch: checkpoint "12", now "10"', '--optimizer: checkpoint "sgd", now "adamw"'):
            self.assertEqual(len(result.lines(word)), 1, result)
        self.assertEqual(self.tree(), before)

    def test_settings_that_may_change_are_told(self):
        result = self.mpirun(2, "train", "--resume", "latest", "--out", "run", "--lr", "0.01", "--steps", 6, check=DONE)
        self.assertEqual(len(result.lines('--lr: checkpoint "0.05", now "0.01"')), 1, result)
        self.assertEqual([line["lr"] for line in self.metrics()], [0.05] * 4 + [0.01] * 2)

    def test_going_back_in_the_same_folder_loses_nothing(self):
        self.mpirun(2, "train", "--resume", "latest", "--out", "run", "--steps", 9, "--checkpoint-every", 1,
                    "--keep", 3, check=DONE)
        names = sorted(file.name for file in self.checkpoints())
        back = self.checkpoints()[-3]
        result = self.mpirun(2, "train", "--resume", back, "--out", "run", "--steps", 8, check=DONE)
        self.assertEqual(len(result.lines("set-aside-")), 2, result)
        self.assertEqual(sorted(file.name for file in self.checkpoints()), names[:2], result)
        aside = sorted(file.name for file in back.parent.glob("set-aside-*"))
        self.assertEqual(aside, [f"set-aside-{name}" for name in names[1:]])
        self.assertEqual(self.metrics()[-1]["step"], 8)

    def test_a_missing_file(self):
        result = self.mpirun(2, "train", "--resume", "nowhere.h5", "--out", "other", check=CHECKPOINT)
        self.assertEqual(len(result.lines("nowhere.h5")), 1, result)
        self.assertFalse((self.folder / "other").exists())

    def test_resume_and_replace_exclude_each_other(self):
        self.mpirun(2, "train", "--resume", "latest", "--replace", "--out", "run", check=SETTINGS)

    def test_step_counters_continue(self):
        self.mpirun(2, "train", "--resume", "latest", "--out", "run", "--steps", 12, check=DONE)
        run = read_attributes(self.checkpoint("run", 12), "/run")
        self.assertEqual((run["step"], run["epoch"], run["samples_seen"]), (12, 1, 136))
        self.assertEqual([line["epoch"] for line in self.metrics()], [0] * 9 + [1] * 3)


if __name__ == "__main__":
    runner.main()
