#!/usr/bin/env python3
"""Training between two hosts, made of network namespaces; skipped where this user may not make any."""
import os
import subprocess

import refusal
from refusal import SMALL, RefusalCase, runner
from runner import DONE, SOURCE, Job


class TwoHosts(RefusalCase):
    """K03 and the transport between hosts."""

    HOSTS = SOURCE / "tests/hosts/hosts.sh"

    def hosts(self, *arguments):
        return subprocess.run([self.HOSTS, *map(str, arguments)], env=self.names(), capture_output=True, text=True, check=False)

    def names(self):
        return {**self.environment(), "SIDESTEP_HOSTS": f"t{os.getpid()}h"}

    def setUp(self):
        super().setUp()
        up = self.hosts("up", 2, "1gbit")
        if up.returncode == 77:
            self.skipTest(up.stderr.strip())
        self.addCleanup(self.hosts, "down")
        self.assertEqual(up.returncode, 0, up.stderr)

    def on_hosts(self, ranks_per_host, *arguments):
        self.jobs += 1
        command = [str(self.HOSTS), "mpirun", str(ranks_per_host), "-n", str(2 * ranks_per_host), runner.BINARY, *map(str, arguments)]
        job = Job(command, self.names(), self.folder, self.folder / f"job{self.jobs}")
        self.addCleanup(lambda: job.kill_all() if job.running() else None)
        return self.finish(job, DONE, 60)

    def test_two_hosts_do_what_one_does(self):
        start = ["train", *SMALL, "--data", "synthetic:240x8x8x1x4", "--batch", 24, "--epochs", 2]
        self.mpirun(2, *start, "--out", "one", check=DONE)
        result = self.on_hosts(1, *start, "--out", "two")
        self.assertRegex(result.out, r"2 ranks on 2 hosts \(1 on t\d+h0, 1 on t\d+h1\)")
        keys = ("step", "loss", "index_digest", "samples_seen", "eval_loss")
        one, two = ([[line[key] for key in keys] for line in self.metrics(out)] for out in ("one", "two"))
        self.assertEqual(one, two)
        # One writer, and what it wrote is the same.
        self.assertEqual([file.name for file in self.checkpoints("one")], [file.name for file in self.checkpoints("two")])
        for path, values in runner.read_tensors(self.checkpoints("one")[-1]).items():
            self.assertEqual(values.tobytes(), runner.read_tensors(self.checkpoints("two")[-1])[path].tobytes(), path)

    def test_K03_two_ranks_on_each_host(self):
        start = ["train", *SMALL, "--data", "synthetic:240x8x8x1x4", "--batch", 24, "--epochs", 1, "--checkpoint-every", 2]
        result = self.on_hosts(2, *start, "--out", "run")
        self.assertIn("4 ranks on 2 hosts", result.out)
        self.assertEqual(len(self.checkpoints()), 3)
        self.assertEqual(self.leftovers(), [])
        self.assertEqual({line["host"][-1] for line in self.rank_times()}, {"0", "1"})


if __name__ == "__main__":
    refusal.run()
