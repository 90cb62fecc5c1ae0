#!/usr/bin/env python3
"""The README agrees with the program: options table, options in examples, exit codes, paths.

usage: readme_test.py ROOT PROGRAM [--write]    --write puts the program's table into the README
"""
import os
import re
import subprocess
import sys
from pathlib import Path

MARKERS = re.compile(r"(<!-- options -->\n)(.*?)(<!-- /options -->)", re.DOTALL)


def program_table(program):
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    return subprocess.run([program, "options", "--markdown"], env=environment, check=True,
                          capture_output=True, text=True).stdout.strip()


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def wrong_options(text, table):
    known = set(re.findall(r"--[a-z][a-z0-9-]*", table)) | {"--help", "--version"}
    for block in blocks(text, "bash"):
        for line in block.replace("\\\n", " ").splitlines():
            # What follows the program's name or the wrapper's; mpirun's own options come before.
            call = re.search(r"\b(sidestep|run\.sh \d+) +(train|eval|inspect|bench|options)\b([^#]*)", line)
            for option in re.findall(r"(?<!\S)--[a-z][a-z0-9-]*", call.group(3) if call else ""):
                if option not in known:
                    yield f"an example uses {option}, which the program does not know: {line.strip()}"


def wrong_exit_codes(text, root):
    source = (root / "core/base/error.h").read_text()
    codes = re.findall(r"^\s*\w+ = (\d+),", re.search(r"enum class Exit.*?};", source, re.DOTALL).group(), re.MULTILINE)
    if len(codes) < 8:
        yield f"only {len(codes)} exit codes found in core/base/error.h"
    section = re.search(r"^## Exit codes\n(.*?)^## ", text, re.DOTALL | re.MULTILINE).group(1)
    listed = re.findall(r"^\| (\d+) \|", section, re.MULTILINE)
    if listed != codes:
        yield f"exit codes: the README lists {listed}, core/base/error.h {codes}"


def wrong_paths(text, root):
    for path in sorted(set(re.findall(r"`((?:core|comm|io|app|jobs|tests)/[\w./-]*)`", text))):
        if not (root / path).exists():
            yield f"no such file or folder: {path}"


def main():
    root, program = Path(sys.argv[1]), sys.argv[2]
    readme = root / "README.md"
    text = readme.read_text()
    table = program_table(program)
    found = MARKERS.search(text)
    errors = []
    if len(table.splitlines()) < 20:
        errors.append(f"the program's table has only {len(table.splitlines())} lines")
    if "--write" in sys.argv:
        text = MARKERS.sub(lambda m: m.group(1) + table + "\n" + m.group(3), text)
        readme.write_text(text)
    elif not found or found.group(2).strip() != table:
        errors.append("the options table is not the program's: run tests/lint/readme_test.py . PROGRAM --write")
    errors += [*wrong_options(text, table), *wrong_exit_codes(text, root), *wrong_paths(text, root)]
    print("\n".join(errors))
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
