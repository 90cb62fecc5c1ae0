"""Runs the program under mpirun for the end-to-end tests, and reads what a run leaves.

A test file defines subclasses of Case and ends with main(); CTest runs `FILE CLASS`, one entry a class (sources.cmake).
Environment: SIDESTEP_BIN (the program), SIDESTEP_SOURCE (root of the tree), MPIEXEC (default mpirun).
A class whose tests were all skipped exits with 77: put what may be skipped into a class of its own.
"""
import ctypes
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import h5py
import numpy as np

BINARY = os.environ.get("SIDESTEP_BIN", "sidestep")
SOURCE = Path(os.environ.get("SIDESTEP_SOURCE", Path(__file__).resolve().parents[2]))
MPIEXEC = os.environ.get("MPIEXEC") or "mpirun"
MPI_OPTIONS = ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]

DONE, SETTINGS, DATA, CHECKPOINT, COMMUNICATION, NUMBERS, DEVICE, STOPPED = 0, 2, 3, 4, 5, 6, 7, 75


class Result:
    """How a job ended: rc (128 + signal if mpirun itself was killed), out, err."""

    def __init__(self, rc, out, err):
        self.rc, self.out, self.err = rc, out, err

    @property
    def text(self):
        return self.out + self.err

    def lines(self, word):
        """The lines of both outputs that hold `word`."""
        return [line for line in self.text.splitlines() if word in line]

    def __repr__(self):
        return f"exit status {self.rc}\n--- stdout\n{self.out}\n--- stderr\n{self.err}\n"


class Job:
    """A started mpirun; its output goes to files, so nothing blocks and nothing is lost by a kill."""

    def __init__(self, command, env, cwd, log):
        self.log = log
        with open(f"{log}.out", "wb") as out, open(f"{log}.err", "wb") as err:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=env, cwd=cwd)

    def output(self):
        return tuple(Path(f"{self.log}.{kind}").read_text(errors="replace") for kind in ("out", "err"))

    def running(self):
        return self.process.poll() is None

    def descendants(self):
        """Process ids below mpirun: the ranks and their children."""
        return descendants(self.process.pid)

    def ranks(self):
        """Process ids of the program's processes, in no order."""
        return [pid for pid in self.descendants() if executable(pid) == os.path.realpath(BINARY)]

    def signal(self, number):
        """To mpirun alone, as a batch system does."""
        self.process.send_signal(number)

    def kill_all(self):
        """kill -9 of the ranks and of mpirun at once; returns when all are gone."""
        below = self.descendants()
        for pid in [*below, self.process.pid]:
            kill(pid)
        self.process.wait()
        for pid in below:
            await_end(pid)

    def wait(self, timeout=60):
        """The Result; a job that takes longer is killed and fails the test."""
        try:
            rc = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill_all()
            raise AssertionError(f"still running after {timeout} s: {self.process.args}\n{self.output()}") from None
        return Result(128 - rc if rc < 0 else rc, *self.output())


def stat_fields(pid):
    """Of /proc/PID/stat from the state on, or None: the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def descendants(root):
    parents = {}
    for entry in os.listdir("/proc"):
        fields = stat_fields(entry) if entry.isdigit() else None
        if fields:
            parents.setdefault(int(fields[1]), []).append(int(entry))
    found, queue = [], [root]
    while queue:
        children = parents.get(queue.pop(), [])
        found += children
        queue += children
    return found


def executable(pid):
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return None


def kill(pid, number=signal.SIGKILL):
    """To a process this test started; one that is gone already is no error."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def alive(pid):
    """Runs still; a zombie does not."""
    fields = stat_fields(pid)
    return bool(fields) and fields[0] not in "ZX"


def await_end(pid, timeout=20):
    """Waits for a process below us to end, and reaps it if it became our child (see adopt_orphans)."""
    wait_for(lambda: not alive(pid), f"process {pid} to end", timeout)
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass


def wait_for(condition, what, timeout=30, job=None):
    """Polls until condition() is true and returns its value; fails early when `job` ends before."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        over = job is not None and not job.running()
        value = condition()
        if value:
            return value
        if over:
            raise AssertionError(f"the job ended before {what}: {job.wait()!r}")
        time.sleep(0.005)
    raise AssertionError(f"waited {timeout} s for {what}" + (f": {job.output()}" if job else ""))


def adopt_orphans():
    """Ranks whose mpirun was killed become our children, so that no zombies stay behind."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


class Case(unittest.TestCase):
    """A test with a folder of its own, `self.folder`."""

    maxDiff = None
    longMessage = True

    @classmethod
    def setUpClass(cls):
        adopt_orphans()
        cls.class_folder = Path(tempfile.mkdtemp(prefix="e2e-"))  # short: sockets lie below
        cls.addClassCleanup(shutil.rmtree, cls.class_folder, ignore_errors=True)
        cls.shared_memory = tempfile.mkdtemp(prefix="e2e-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        cls.addClassCleanup(shutil.rmtree, cls.shared_memory, ignore_errors=True)

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(dir=self.class_folder))
        self.jobs = 0

    # --- running ---

    def environment(self, env=None):
        """This process' variables without what would change a run, and `env` (None removes one)."""
        drop = ("OMPI_", "PMIX_", "OMP_", "SLURM_", "GOMP_", "OPENBLAS_", "HDF5_")
        variables = {k: v for k, v in os.environ.items() if not k.startswith(drop)}
        variables["TMPDIR"] = str(self.class_folder)
        variables["OMPI_MCA_btl_vader_backing_directory"] = self.shared_memory
        if os.geteuid() == 0:
            variables.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        for name, value in (env or {}).items():
            if value is None:
                variables.pop(name, None)
            else:
                variables[name] = str(value)
        return variables

    def start_parts(self, *parts, env=None):
        """Starts `mpirun PART : PART …`; a part is (ranks, arguments) or (ranks, arguments, words before the program)."""
        command = [MPIEXEC, *MPI_OPTIONS]
        for i, part in enumerate(parts):
            ranks, arguments, before = (*part, ())[:3]
            command += [":"] * (i > 0) + ["-n", str(ranks), *map(str, before), BINARY, *map(str, arguments)]
        self.jobs += 1
        job = Job(command, self.environment(env), self.folder, self.folder / f"job{self.jobs}")
        self.addCleanup(lambda: job.kill_all() if job.running() else None)
        return job

    def start(self, ranks, *arguments, env=None, before=()):
        """Starts the program under mpirun in self.folder; returns the Job."""
        return self.start_parts((ranks, arguments, before), env=env)

    def mpirun(self, ranks, *arguments, check=None, env=None, before=(), timeout=60):
        """Runs the program to its end; `check` is the exit status it must have. Returns the Result."""
        return self.finish(self.start(ranks, *arguments, env=env, before=before), check, timeout)

    def mpirun_parts(self, *parts, check=None, env=None, timeout=60):
        return self.finish(self.start_parts(*parts, env=env), check, timeout)

    def finish(self, job, check=None, timeout=60):
        result = job.wait(timeout)
        if check is not None:
            self.assertEqual(result.rc, check, f"\n{' '.join(job.process.args)}\n{result!r}")
        return result

    def alone(self, *arguments, check=None, env=None, timeout=60):
        """Runs the program without mpirun. Returns the Result."""
        done = subprocess.run([BINARY, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors="replace", env=self.environment(env), cwd=self.folder, timeout=timeout, check=False)
        result = Result(128 - done.returncode if done.returncode < 0 else done.returncode, done.stdout, done.stderr)
        if check is not None:
            self.assertEqual(result.rc, check, f"\n{arguments}\n{result!r}")
        return result

    # --- what a run leaves; `out` is the folder of --out, relative to self.folder or absolute ---

    def json_lines(self, out, name):
        return [json.loads(line) for line in (self.folder / out / name).read_text().splitlines()]

    def metrics(self, out="run"):
        return self.json_lines(out, "metrics.jsonl")

    def rank_times(self, out="run"):
        return self.json_lines(out, "ranks.jsonl")

    def summary(self, out="run"):
        return json.loads((self.folder / out / "summary.json").read_text())

    def trace(self, out="run"):
        return json.loads((self.folder / out / "trace.json").read_text())

    def checkpoints(self, out="run"):
        """Published checkpoints of steps, oldest first."""
        return sorted((self.folder / out / "checkpoints").glob("step-*.h5"))

    def leftovers(self, out="run"):
        return sorted((self.folder / out / "checkpoints").glob(".*.tmp-*"))

    def tree(self, out="run"):
        """Every file below with its content, to show that nothing changed."""
        root = self.folder / out
        return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}

    # --- small data ---

    def write_idx(self, folder, train=64, test=32, size=28, classes=10, compress=False, seed=1):
        """The four files of an IDX data set with random pictures; returns the folder."""
        root = self.folder / folder
        root.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(seed)
        for part, count in (("train", train), ("t10k", test)):
            pictures, labels = random_samples(random, count, size, size, classes)
            for name, values in ((f"{part}-images-idx3-ubyte", pictures), (f"{part}-labels-idx1-ubyte", labels)):
                data = idx_bytes(values)
                (root / (name + ".gz" * compress)).write_bytes(gzip.compress(data) if compress else data)
        return root

    def write_hdf5(self, name, x=None, y=None, count=64, size=8, classes=10, seed=1):
        """An HDF5 file with datasets x and y, random 8-bit pictures unless given; returns its path."""
        made_x, made_y = random_samples(np.random.default_rng(seed), count, size, size, classes)
        path = self.folder / name
        with h5py.File(path, "w") as file:
            file["x"] = made_x[..., None] if x is None else x
            file["y"] = made_y if y is None else y
        return path

    # --- means that not every machine has ---

    def mount_tmpfs(self, name, size):
        """A memory file system of `size` (as mount has it: "2m") at self.folder/name; skips without the right to mount."""
        path = self.folder / name
        path.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(path)], capture_output=True,
                              text=True, check=False)
        if done.returncode:
            self.skipTest(f"needs the right to mount: {done.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", "-l", str(path)], check=False)
        return path

    def need_private_mounts(self):
        """Skips where a process cannot have mounts of its own."""
        done = subprocess.run(["unshare", "--mount", "sh", "-c", "mount -t tmpfs none /mnt"], capture_output=True,
                              text=True, check=False)
        if done.returncode:
            self.skipTest(f"needs mount namespaces: {done.stderr.strip()}")


def hide_folder(folder):
    """Words before the program under which it sees `folder` empty (need_private_mounts first)."""
    return ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs none "{folder}" && exec "$0" "$@"']


def random_samples(random, count, height, width, classes):
    """8-bit pictures whose brightness tells the label, and labels."""
    labels = random.integers(0, classes, count).astype(np.uint8)
    noise = random.integers(0, 64, (count, height, width))
    return (noise + labels[:, None, None] * (190 // max(classes - 1, 1))).astype(np.uint8), labels


def idx_bytes(values):
    """An IDX file of unsigned bytes."""
    header = bytes([0, 0, 8, values.ndim]) + b"".join(int(n).to_bytes(4, "big") for n in values.shape)
    return header + values.astype(np.uint8).tobytes()


def read_tensors(path):
    """Every dataset of a checkpoint: its path -> array."""
    tensors = {}
    with h5py.File(path, "r") as file:
        file.visititems(lambda name, item: tensors.__setitem__("/" + name, item[()])
                        if isinstance(item, h5py.Dataset) else None)
    return tensors


def read_attributes(path, group):
    with h5py.File(path, "r") as file:
        return {name: value.decode() if isinstance(value, bytes) else value for name, value in file[group].attrs.items()}


def main():
    """Runs the classes named on the command line, or all."""
    names = sys.argv[1:] or None
    loader, module = unittest.defaultTestLoader, sys.modules["__main__"]
    suite = loader.loadTestsFromNames(names, module) if names else loader.loadTestsFromModule(module)
    outcome = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(suite)
    for test, reason in outcome.skipped:
        print(f"skipped: {test.id()}: {reason}")
    if not outcome.wasSuccessful() or outcome.testsRun == 0:
        sys.exit(1)
    sys.exit(77 if len(outcome.skipped) == outcome.testsRun else 0)
