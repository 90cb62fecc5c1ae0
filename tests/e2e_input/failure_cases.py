#!/usr/bin/env python3
"""Wrong launches, and what fails while a job runs: it ends for all ranks, soon, with the cause told once."""
import os
import shutil
import signal
import subprocess
import threading
from pathlib import Path

import numpy as np

import refusal
from refusal import NOISE, SMALL, RefusalCase, runner
from runner import DATA, DEVICE, DONE, NUMBERS, SETTINGS, alive, await_end, hide_folder, read_tensors, wait_for

# A run that trains until it is ended; steps take long enough to be met by a signal.
ENDLESS = ["train", "--model", "mlp", "--hidden", "256,256", "--seed", "1", "--threads", "1", "--lr", "0.0001", "--data",
           "synthetic:640x16x16x1x4", "--batch", 128, "--epochs", 1000000, "--eval-every", 0, "--checkpoint-every", 20,
           "--out", "run"]


class Launch(RefusalCase):
    """L01, L11, M05: jobs that were started wrongly."""

    def test_L01_copies_that_believe_to_be_alone(self):
        results = {}

        def copy(rank):
            env = {"SLURM_NTASKS": 4, "SLURM_PROCID": rank, "SLURM_JOB_ID": 1, "SLURM_LOCALID": rank}
            results[rank] = self.alone(*self.train(), env=env)

        copies = [threading.Thread(target=copy, args=(rank,)) for rank in range(4)]
        for thread in copies:
            thread.start()
        for thread in copies:
            thread.join()
        for rank in range(4):
            self.assert_refused(results[rank], SETTINGS, "job of 4 ranks", "SLURM_NTASKS", f"copy {rank} of 4", '"mpirun ',
                                "srun --mpi=pmix", "--allow-single")
        self.assert_absent("run")

    def test_L01_also_for_eval_and_bench_and_on_purpose(self):
        env = {"SLURM_STEP_NUM_TASKS": 2, "SLURM_PROCID": 1}
        self.refused_alone(["bench", *SMALL[:4], "--data", "synthetic:64x8x8x1x4"], SETTINGS, "job of 2 ranks", env=env)
        self.refused_alone(["eval", "--checkpoint", "x.h5"], SETTINGS, "job of 2 ranks", env=env)
        self.alone(*self.train("--steps", 1, "--allow-single"), env=env, check=DONE)
        # mpirun within such an allocation is right, also with one rank.
        super(RefusalCase, self).mpirun(1, *self.train("--steps", 1, out="b"), env=env, check=DONE)

    def test_L11_another_hdf5_at_run_time(self):
        compiler = shutil.which("cc") or shutil.which("gcc")
        if not compiler:
            self.skipTest("needs a C compiler")
        source = self.folder / "other.c"
        source.write_text("int H5get_libversion(unsigned* a, unsigned* b, unsigned* c) { *a = 1; *b = 8; *c = 99; return 0; }\n")
        shim = self.folder / "other.so"
        subprocess.run([compiler, "-shared", "-fPIC", "-o", shim, source], check=True)
        env = {"LD_PRELOAD": shim}
        message = self.refused(3, self.train(), SETTINGS, "HDF5", "loaded 1.8.99", before=["env", f"LD_PRELOAD={shim}"])
        told = [line.split() for line in self.alone("--version", env=env, check=DONE).out.splitlines()]
        hdf5 = next(words for words in told if words[0] == "HDF5")
        self.assertEqual(hdf5[2], "1.8.99")
        self.assertIn(f"compiled with {hdf5[1]}", message)
        self.refused_alone(["inspect", "x.h5"], SETTINGS, "loaded 1.8.99", env=env)
        self.assert_absent("run")

    def test_versions_are_listed(self):
        told = self.alone("--version", check=DONE).out
        for name in ("MPI", "HDF5", "oneDNN", "zlib", "Boost", "fmt", "spdlog", "nlohmann-json"):
            self.assertRegex(told, rf"(?m)^{name} +\S+")

    def parts_refused(self, first, second, *words, code=SETTINGS):
        message = self.assert_refused(self.mpirun_parts((1, first), (2, second)), code, *words)
        self.assert_absent("run")
        return message

    def test_M05_settings_that_differ(self):
        message = self.parts_refused(self.other("64", 5), self.other("128", 7),
                                     "ranks disagree", '--hidden: "128" on ranks 1-2, "64" on rank 0',
                                     '--epochs: "5" on rank 0, "7" on ranks 1-2')
        self.assertNotIn("--lr", message)

    def other(self, hidden, epochs, data="synthetic:64x8x8x1x4"):
        return ["train", "--model", "mlp", "--hidden", hidden, "--epochs", epochs, "--data", data, "--out", "run"]

    def test_M05_commands_and_options_that_only_one_rank_has_wrong(self):
        self.parts_refused(self.train(), ["eval", "--checkpoint", "x.h5"], "command", '"train" on rank 0', '"eval" on ranks 1-2')
        self.parts_refused(self.train(), self.train("--epoch", "3"), "ranks 1-2: --epoch: unknown option")

    def test_M05_data_that_differ(self):
        for folder, count, seed in (("a", 64, 1), ("b", 65, 1), ("c", 64, 2)):
            (self.folder / folder).mkdir()
            self.write_hdf5(f"{folder}/d.h5", count=count, seed=seed)
        start = self.train(data="hdf5:d.h5", out=self.folder / "run")
        for folder, words in (("b", ["data size", '"64" on rank 0', '"65" on rank 1', "data digest"]), ("c", ["data digest"])):
            parts = [(1, start, ["env", "-C", self.folder / where]) for where in ("a", folder)]
            message = self.assert_refused(self.mpirun_parts(*parts), SETTINGS, "ranks disagree", *words)
            self.assertEqual("data size" in message, folder == "b")
            self.assert_absent("run")

    def test_M05_builds_that_differ(self):
        other = self.folder / "sidestep"
        shutil.copy(runner.BINARY, other)
        with open(other, "ab") as file:
            file.write(b"x")
        # The words before the program run the other build; the program's own path is then dropped.
        before = ["sh", "-c", f'shift; exec "{other}" "$@"', "sh"]
        result = self.mpirun_parts((1, self.train()), (1, self.train(), before))
        self.assert_refused(result, SETTINGS, "ranks disagree", "build")
        self.assert_absent("run")


class Memory(RefusalCase):
    """M09."""

    def test_M09_not_enough_memory(self):
        # 37 million weights take 440 MB with gradients, momenta and those that evaluation looks at.
        start = ["train", "--model", "mlp", "--hidden", "6000,6000", "--threads", "1", "--data", "synthetic:64x8x8x1x4",
                 "--steps", 1, "--eval-every", 0, "--out", "run"]
        limit = ["sh", "-c", f'ulimit -v {self.address_space_of_a_small_run() + 10000} && exec "$0" "$@"']
        for befores, where in (((limit, limit), ""), (((), limit), "rank 1: ")):
            result = self.mpirun_parts(*[(1, start, before) for before in befores])
            message = self.assert_refused(result, DEVICE, where, "memory", "fewer ranks a host")
            self.assertEqual("rank 1: " in message, bool(where), message)
            self.assert_absent("run")

    def address_space_of_a_small_run(self):
        """The most that a rank of a small run took, in kB."""
        job = self.start(2, *ENDLESS)
        metrics = self.folder / "run/metrics.jsonl"
        wait_for(lambda: metrics.exists() and metrics.stat().st_size, "the first metrics", job=job)
        peaks = []
        for pid in job.ranks():
            status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
            peaks.append(int(status["VmPeak"].split()[0]))
        job.kill_all()
        shutil.rmtree(self.folder / "run")
        return max(peaks)

    def test_M09_the_plan_is_told(self):
        result = self.mpirun(2, *self.train("--steps", 1), check=DONE)
        told = [line for line in result.out.splitlines() if line.startswith("memory")]
        self.assertEqual(len(told), 1)
        self.assertRegex(told[0], r"planned [\d.]+ \w?B per rank, [\d.]+ \w?B on the fullest host")


class LostRanks(RefusalCase):
    """L09, M01: processes that are killed, and failures that one rank alone meets."""

    def started(self, ranks):
        job = self.start(ranks, *ENDLESS)
        metrics = self.folder / "run/metrics.jsonl"
        wait_for(lambda: metrics.exists() and metrics.stat().st_size, "the first metrics", job=job)
        pids = wait_for(lambda: len(found := job.ranks()) == ranks and found, "all ranks", job=job)
        return job, pids

    def test_L09_mpirun_is_killed(self):
        job, pids = self.started(3)
        below = job.descendants()
        job.signal(signal.SIGKILL)
        job.process.wait()
        for pid in set(pids) | set(below):
            await_end(pid, timeout=10)
        self.assertFalse([pid for pid in pids if alive(pid)])

    def test_L09_mpirun_is_killed_while_ranks_wait_in_an_exchange(self):
        job, pids = self.started(3)
        stopped = pids[-1]
        os.kill(stopped, signal.SIGSTOP)  # the others now wait for its gradients
        lines = self.folder / "run/metrics.jsonl"
        wait_for(lambda: (size_now := lines.stat().st_size) == self.seen(size_now), "the job to stand still", job=job)
        job.signal(signal.SIGKILL)
        job.process.wait()
        for pid in pids:
            if pid != stopped:
                await_end(pid, timeout=10)
        os.kill(stopped, signal.SIGCONT)
        await_end(stopped, timeout=10)

    seen_size = (0, -1)

    def seen(self, size):
        """`size` once it has been the same for 50 looks, else something else."""
        count, before = self.seen_size
        self.seen_size = (count + 1, size) if size == before else (0, size)
        return size if self.seen_size[0] > 50 else None

    def test_M01_one_of_four_is_killed(self):
        job, pids = self.started(4)
        os.kill(pids[2], signal.SIGKILL)
        result = job.wait(20)
        self.assertEqual(result.rc, 128 + signal.SIGKILL, result)
        self.assertEqual([pid for pid in pids if alive(pid)], [])
        # Nobody knows more than mpirun says: no follow-up errors of the others.
        self.assertEqual([line for line in result.err.splitlines() if line.startswith("error")], [], result)
        for word in NOISE[:6]:
            self.assertNotIn(word, result.text)
        self.alone("inspect", "--verify", *[self.checkpoints()[-1]] if self.checkpoints() else ["--help"], check=DONE)

    def test_M01_a_failure_that_only_rank_2_meets(self):
        self.need_private_mounts()
        data = self.folder / "data"
        data.mkdir()
        self.write_hdf5("data/d.h5")
        start = self.train(data=f"hdf5:{data}/d.h5")
        result = self.mpirun_parts((2, start), (1, start, hide_folder(data)), (1, start))
        self.assert_refused(result, DATA, "rank 2: ", "d.h5")
        self.assert_absent("run")


class Numbers(RefusalCase):
    """N01: numbers that are not finite end the job at the same step for all ranks."""

    def diverge(self, ranks, out):
        arguments = ["train", *SMALL[:4], "--seed", "3", "--threads", "1", "--lr", "1e6", "--data", "synthetic:640x8x8x1x4",
                     "--batch", 64, "--epochs", 20, "--eval-every", 0, "--checkpoint-every", 1, "--keep", 0, "--out", out]
        result = self.mpirun(ranks, *arguments, timeout=30)
        message = self.assert_refused(result, NUMBERS, "not finite", "--lr")
        step = int(message.partition("step ")[2].partition(":")[0])
        return step, message

    def test_N01_a_rate_that_is_too_large(self):
        steps = set()
        for i in range(5):
            for ranks in (2, 4):
                step, message = self.diverge(ranks, f"n{ranks}-{i}")
                steps.add(step)
                self.assertIn("rank 0: loss", message)
                self.check_what_is_kept(f"n{ranks}-{i}", step, message)
        self.assertEqual(len(steps), 1, steps)

    def check_what_is_kept(self, out, step, message):
        files = self.checkpoints(out)
        if not files:
            self.assertIn("no checkpoint", message)
        for file in files:
            for path, values in read_tensors(file).items():
                self.assertTrue(np.all(np.isfinite(values)), f"{path} of {file}")
            self.assertLess(int(file.stem[5:]), step)
        if files:
            self.assertIn(f"last finite checkpoint: {out}/checkpoints/{files[-1].name}", message)
            self.alone("inspect", "--verify", files[-1], check=DONE)


if __name__ == "__main__":
    refusal.run()
