#!/usr/bin/env python3
"""Checks the size limits of the house style: files of 600 lines at most (an error), functions of about 80 (a warning).

usage: check_limits.py [ROOT]
"""
import pathlib
import re
import sys

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 80
FOLDERS = ("src", "fuzz", "tests", "bench", "python", "scripts")
SUFFIXES = (".h", ".cc", ".py", ".sh")
# A name and an opening parenthesis, after types alone: what begins a function outside of any other.
FUNCTION = re.compile(r"[A-Za-z_][\w:<>,&*\s\[\]]*?([A-Za-z_~][\w:~]*)\(")
NO_FUNCTIONS = ("namespace", "struct", "class", "enum", "union")
COMMENT = re.compile(r"\s*//.*$")


def long_functions(lines):
    """Yields (line, name, length) of C++ functions and methods, whose bodies close where their first line begins."""
    start = None  # the line, name and indentation of a function that has begun
    has_body = False
    for number, line in enumerate(lines, 1):
        code = COMMENT.sub("", line).rstrip()
        if start is None:
            text = code.lstrip()
            match = FUNCTION.match(text)
            if not match or text.startswith(NO_FUNCTIONS):
                continue
            start, has_body = (number, match[1], line[:len(code) - len(text)]), False
        elif has_body and code.startswith(start[2] + "}"):
            length = number - start[0] + 1
            if length > MAX_FUNCTION_LINES:
                yield start[0], start[1], length
            start = None
            continue
        has_body = has_body or code.endswith("{")
        if not has_body and code.endswith((";", "}")):
            start = None  # a declaration, which may go over several lines, or a body on one line


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    count = too_long = warnings = 0
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in SUFFIXES or not path.is_file() or "corpus" in path.parts:
                continue
            count += 1
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            where = path.relative_to(root)
            if len(lines) > MAX_FILE_LINES:
                too_long += 1
                print(f"{where}:{len(lines)}: {len(lines)} lines; a file has {MAX_FILE_LINES} at most")
            if path.suffix in (".h", ".cc"):
                for number, name, length in long_functions(lines):
                    warnings += 1
                    print(f"{where}:{number}: warning: {name} has {length} lines")
    print(f"limits: {count} files, {too_long} too long, {warnings} functions above {MAX_FUNCTION_LINES} lines")
    return 1 if too_long or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
