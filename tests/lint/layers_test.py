#!/usr/bin/env python3
"""Fails on an include that goes against the arrows of the layout.

app -> comm, io -> core; comm and io do not know each other; inside core:
model, optim -> ops -> graph -> device -> base. MPI and NCCL headers only in comm, HDF5 only in io.
usage: layers_test.py ROOT [--self-test]
"""
import re
import sys
import tempfile
from pathlib import Path

CORE = ["core/base", "core/device", "core/graph", "core/ops", "core/optim", "core/model"]
ALLOWED = {
    "core/base": ["core/base"],
    "core/device": ["core/base", "core/device"],
    "core/graph": ["core/base", "core/device", "core/graph"],
    "core/ops": ["core/base", "core/device", "core/graph", "core/ops"],
    "core/optim": ["core/base", "core/device", "core/graph", "core/ops", "core/optim"],
    "core/model": ["core/base", "core/device", "core/graph", "core/ops", "core/model"],
    "comm": CORE + ["comm"],
    "io": CORE + ["io"],
    "app": CORE + ["comm", "io", "app"],
}
# Autodiff appends two ops (the seed of backward and the sum of a value's uses).
EXCEPTIONS = {("core/graph/autodiff.cc", "core/ops/ops.h")}
FOREIGN = [  # header pattern, folders that may include it
    (re.compile(r"mpi(-ext)?\.h|mpi/|nccl"), ["comm"]),
    (re.compile(r"hdf5|H5\w+\.h|highfive"), ["io"]),
    (re.compile(r"cuda|cublas|cudnn|cub/|nvtx"), ["core/base", "core/device", "core/ops", "core/optim", "comm"]),
    (re.compile(r"dnnl|oneapi/dnnl|cblas\.h|openblas"), ["core/ops"]),
    (re.compile(r"boost/program_options"), ["app"]),
]
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
SUFFIXES = {".h", ".cc", ".cu", ".cuh", ".hpp", ".cpp"}


def folder_of(path):
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] == "core" else parts[0]


def violations(root):
    """(problems, number of files read)"""
    found, files = [], 0
    for top in ("core", "comm", "io", "app"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix not in SUFFIXES:
                continue
            files += 1
            name = path.relative_to(root).as_posix()
            folder = folder_of(name)
            if folder not in ALLOWED:
                found.append(f"{name}: no such folder in the layout: {folder}")
                continue
            for kind, target in INCLUDE.findall(path.read_text()):
                found += [f"{name}: includes {target}: {why}"
                          for why in [problem(name, folder, kind, target, root)] if why]
    return found, files


def problem(name, folder, kind, target, root):
    for pattern, where in FOREIGN:
        if pattern.match(target) and folder not in where and not target.startswith(folder + "/"):
            return f"only {', '.join(where)} may"
    if kind == '"':
        if not (root / target).is_file():
            return "not a file of the tree (paths start at the repository root)"
        if folder_of(target) not in ALLOWED[folder] and (name, target) not in EXCEPTIONS:
            return f"{folder} may use only {', '.join(ALLOWED[folder])}"
    return ""


PLANTED = [  # file, its include line; each must be reported
    ("core/base/a.h", '#include "core/device/device.h"'),
    ("core/graph/executor.cc", '#include "core/ops/ops.h"'),
    ("core/ops/a.cc", '#include "core/model/model.h"'),
    ("core/optim/a.cc", '#include "core/model/model.h"'),
    ("core/model/a.cc", "#include <mpi.h>"),
    ("core/device/a.cu", "#include <hdf5.h>"),
    ("core/device/b.cu", "#include <nccl.h>"),
    ("core/ops/b.cc", '#include "comm/communicator.h"'),
    ("comm/policies/a.cc", '#include "io/dataset.h"'),
    ("comm/a.cc", '  #  include <hdf5.h>'),
    ("io/a.cc", '#include "comm/communicator.h"'),
    ("io/b.cc", "#include <mpi.h>"),
    ("app/a.cc", "#include <mpi.h>"),
    ("app/b.cc", "#include <nccl.h>"),
    ("comm/b.cc", '#include "app/options.h"'),
    ("io/c.cc", '#include "dataset.h"'),
    ("util/a.h", ""),  # below core: a folder the layout does not know
]
CLEAN = ["core/device/device.h", "core/ops/ops.h", "core/model/model.h", "comm/communicator.h",
         "io/dataset.h", "app/options.h"]


def self_test():
    errors = []
    for planted, line in PLANTED:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            planted = "core/" + planted if planted.startswith("util/") else planted
            for name in CLEAN:
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text("#include <vector>\n")
            autodiff = root / "core/graph/autodiff.cc"
            autodiff.parent.mkdir(parents=True, exist_ok=True)
            autodiff.write_text('#include "core/ops/ops.h"\n')
            if violations(root)[0]:
                errors.append(f"a clean tree was reported: {violations(root)[0]}")
            (root / planted).parent.mkdir(parents=True, exist_ok=True)
            (root / planted).write_text(f"// text\n{line}\n#include <vector>\n")
            found = violations(root)[0]
            if len(found) != 1 or not found[0].startswith(planted):
                errors.append(f"planted in {planted}: {line!r}: reported {found}")
    return errors, len(PLANTED)


def main():
    errors, looked_at = self_test() if "--self-test" in sys.argv else violations(Path(sys.argv[1]))
    print("\n".join(errors))
    print(f"{looked_at} looked at, {len(errors)} wrong")
    return 1 if errors or not looked_at else 0


if __name__ == "__main__":
    sys.exit(main())
