#!/usr/bin/env python3
"""Fails on a product file above 500 lines or a C++ function above 60.

Functions are found by their braces: outside of any function, a block whose heading holds a
parenthesis is a function. usage: size_test.py ROOT [--self-test]
"""
import re
import sys
from pathlib import Path

MAX_FILE, MAX_FUNCTION = 500, 60
SOURCES = {".h", ".cc", ".cu", ".cuh"}
OTHERS = {".py", ".sh", ".cmake"}
# Blanked before the braces are counted; newlines stay.
NOISE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"\(.*?\)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-zA-Z])\'(?:\\.|[^\'\\\n])+\''
    r'|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*', re.DOTALL | re.MULTILINE)
CONTAINER = re.compile(r"^(template\s*<.*>\s*)?(typedef\s+)?(inline\s+)?(namespace|class|struct|union|enum|extern)\b")
NOT_A_SIGNATURE = re.compile(r"alignas\s*\([^)]*\)|__attribute__\s*\(\(.*?\)\)")


def is_function(heading):
    heading = NOT_A_SIGNATURE.sub("", heading).strip()
    if "(" not in heading:
        return False
    # "struct Foo f(int) {" is a function, "struct Foo : Base<decltype(x)> {" is not
    return not (CONTAINER.match(heading) and not re.search(r"\)\s*(const|noexcept|override|final|\s)*$", heading))


def functions(text):
    """Yields (first line, number of lines) of each function."""
    text = NOISE.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)
    depth, inside, heading_start, line = 0, None, 0, 1
    first_line = 1
    for i, c in enumerate(text):
        if c == "\n":
            line += 1
        if inside is None and not text[heading_start:i].strip():
            first_line = line
        if c == "{":
            if inside is None and is_function(text[heading_start:i]):
                inside = (depth, first_line)
            depth += 1
        elif c == "}":
            depth -= 1
            if inside is not None and depth == inside[0]:
                yield inside[1], line - inside[1] + 1
                inside = None
        if inside is None and c in "{};":
            heading_start = i + 1


def check(name, text, suffix):
    errors = []
    lines = text.count("\n")
    if lines > MAX_FILE:
        errors.append(f"{name}: {lines} lines, at most {MAX_FILE}")
    if suffix in SOURCES:
        errors += [f"{name}:{first}: a function of {length} lines, at most {MAX_FUNCTION}"
                   for first, length in functions(text) if length > MAX_FUNCTION]
    return errors


def self_test():
    def body(n):
        return "{\n" + "  x = '{' + \"}\";  // }\n" * n + "}\n"
    cases = [  # text, number of errors
        ("namespace a {\nvoid f(int a,\n       int b) " + body(58) + "}\n", 1),
        ("namespace a {\nvoid f(int a) " + body(58) + "}\n", 0),
        ("struct A {\n  int f() const " + body(59) + "};\n", 1),
        ("struct alignas(8) A {\n" + "  int x;\n" * 70 + "};\n", 0),
        ("A::A(int x) : x_(x) " + body(80), 1),
        ("const Op op = {\n  .run = [](Ctx& c) " + body(61) + "};\n", 1),
        ("#define M(x) { \\\n  (\n" + "int table[] = {\n" + "  1,\n" * 80 + "};\n", 0),
        ("// a\n" * 501, 1),
        ("void f() {\n  if (a) {\n    b();\n  }\n" + "  c();\n" * 57 + "}\n", 1),
        ("".join(f"int f{i}() {{ return 1'000; }}\n" for i in range(100)), 0),
    ]
    return [f"case {i}: {check('x.cc', text, '.cc')}, expected {n} errors"
            for i, (text, n) in enumerate(cases) if len(check("x.cc", text, ".cc")) != n], len(cases)


def tree(root):
    errors, files = [], 0
    for top in ("core", "comm", "io", "app", "jobs"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix in SOURCES | OTHERS:
                files += 1
                errors += check(path.relative_to(root).as_posix(), path.read_text(), path.suffix)
    return errors, files


def main():
    errors, looked_at = self_test() if "--self-test" in sys.argv else tree(Path(sys.argv[1]))
    print("\n".join(errors))
    print(f"{looked_at} looked at, {len(errors)} wrong")
    return 1 if errors or not looked_at else 0


if __name__ == "__main__":
    sys.exit(main())
