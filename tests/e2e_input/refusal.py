"""What every refusal has to look like: one clear line for the whole job, first, and the right exit status."""
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))
import runner  # noqa: E402

ERROR = re.compile(r"^error( \[rank \d+, host [^\]]+\])?: ")
# What libraries and languages print when a program lets them speak. Open MPI's own notice after the end is its
# right, but nothing of it may come before the program's line.
NOISE = ("HDF5-DIAG", "HDF5 library version", "terminate called", "what():", "Traceback", "Assertion", "bad_alloc",
         "received signal", "internal error", "report it", "MPI_ABORT was invoked", "mpirun detected", "Primary job")

# A model of about 1,200 parameters on 8x8 pictures.
SMALL = ["--model", "mlp", "--hidden", "16", "--seed", "1", "--threads", "1"]
TINY = ["--data", "synthetic:64x8x8x1x4", "--batch", 16]


def run():
    """For the end of a test file."""
    runner.main()


class RefusalCase(runner.Case):
    """Helpers; holds no tests."""

    def assert_refused(self, result, code, *words):
        """The exit status, and one message (a line, perhaps with indented ones below it) that holds all words."""
        self.assertEqual(result.rc, code, result)
        lines = result.err.splitlines()
        at = [i for i, line in enumerate(lines) if ERROR.match(line)]
        self.assertEqual(len(at), 1, result)
        before = "\n".join([result.out, *lines[:at[0]]])
        end = at[0] + 1
        while end < len(lines) and lines[end].startswith("  "):
            end += 1
        message = "\n".join(lines[at[0]:end])
        for word in NOISE:
            self.assertNotIn(word, before + message, result)
        for word in words:
            self.assertIn(str(word), message, result)
        return message

    def refused(self, ranks, arguments, code, *words, **options):
        return self.assert_refused(self.mpirun(ranks, *arguments, **options), code, *words)

    def refused_alone(self, arguments, code, *words, **options):
        return self.assert_refused(self.alone(*arguments, **options), code, *words)

    def assert_absent(self, *names):
        for name in names:
            self.assertFalse((self.folder / name).exists(), name)

    def mpirun(self, ranks, *arguments, check=None, env=None, **options):
        """As Case has it; a single rank without mpirun, which starts sooner."""
        if ranks == 1 and not options:
            return self.alone(*arguments, check=check, env={"OMPI_MCA_ess_singleton_isolated": 1, **(env or {})})
        return super().mpirun(ranks, *arguments, check=check, env=env, **options)

    def train(self, *options, out="run", data=None):
        return ["train", *SMALL, *(TINY if data is None else ["--data", data, "--batch", 16]), "--out", out, *options]
