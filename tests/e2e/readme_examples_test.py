#!/usr/bin/env python3
"""Runs the README's examples that are marked <!-- run -->, in their order, in one empty folder.

usage: readme_examples_test.py ROOT PROGRAM WORK_DIR
A block of the language python is run by this interpreter, one of bash by bash -e.
"""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

BLOCK = re.compile(r"<!-- run -->\n+```(python|bash)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def main():
    root, program, work = (Path(argument).resolve() for argument in sys.argv[1:4])
    if subprocess.run([sys.executable, "-c", "import h5py"], capture_output=True, check=False).returncode:
        print("skipped: this Python has no h5py (python3-h5py)")
        return 77
    examples = BLOCK.findall((root / "README.md").read_text())
    if len(examples) < 3:
        print(f"only {len(examples)} marked examples found")
        return 1
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    # As root (containers) and on few cores Open MPI wants to be asked; users see this in the README.
    environment = dict(os.environ, PATH=f"{program.parent}:{os.environ['PATH']}", OMP_WAIT_POLICY="PASSIVE",
                       OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                       OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_hwloc_base_binding_policy="none")
    for language, text in examples:
        command = [sys.executable, "-c", text] if language == "python" else ["bash", "-euo", "pipefail", "-c", text]
        done = subprocess.run(command, cwd=work, env=environment, check=False)
        if done.returncode:
            print(f"exit status {done.returncode} of the README's example:\n{text}")
            return 1
    shutil.rmtree(work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
