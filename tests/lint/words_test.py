#!/usr/bin/env python3
"""Fails on unfinished work and on paths of one person's machine in the tree.

usage: words_test.py ROOT [--self-test]
"""
import re
import sys
from pathlib import Path

TOPS = ("core", "comm", "io", "app", "jobs", "tests", ".ci", "CMakeLists.txt", "README.md")
SUFFIXES = {".h", ".cc", ".cu", ".cuh", ".py", ".sh", ".cmake", ".txt", ".md", ".in", ".supp", ""}
# Put together from pieces, so that this file does not find itself.
PATTERNS = [
    (re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX|HA" r"CK)\b"), "unfinished work: do it or file an issue"),
    (re.compile(r"(?<![\w.$})/-])/(ho" r"me|ro" r"ot|wo" r"rk|Us" r"ers|scr" r"atch)/\w"), "a path of one machine"),
    (re.compile(r"(?<![\w.$})/-])/t" r"mp/\w"), "a fixed temporary path: use mktemp or a build folder"),
]


def check(name, text):
    return [f"{name}:{number}: {match.group()}: {why}"
            for number, line in enumerate(text.splitlines(), 1)
            for pattern, why in PATTERNS for match in [pattern.search(line)] if match]


def tree(root):
    errors, files = [], 0
    for top in TOPS:
        start = root / top
        for path in [start] if start.is_file() else sorted(start.rglob("*")):
            if path.is_file() and path.suffix in SUFFIXES and "__pycache__" not in path.parts:
                files += 1
                errors += check(path.relative_to(root).as_posix(), path.read_text(errors="replace"))
    return errors, files


def self_test():
    bad = ["// TO" "DO: later", "x;  // FIX" "ME", 'open("/ho' 'me/me/a")', "cd /wo" "rk/b", "/t" "mp/x"]
    good = ["mktemp -d x.XX" "XXXX", "todo_list", '"$HOME/t' 'mp/x"', "network/b", "build/tmp/x"]
    errors = [f"not reported: {line}" for line in bad if len(check("a", line)) != 1]
    return errors + [f"reported: {line}" for line in good if check("a", line)], len(bad) + len(good)


def main():
    errors, looked_at = self_test() if "--self-test" in sys.argv else tree(Path(sys.argv[1]))
    print("\n".join(errors))
    print(f"{looked_at} looked at, {len(errors)} wrong")
    return 1 if errors or not looked_at else 0


if __name__ == "__main__":
    sys.exit(main())
