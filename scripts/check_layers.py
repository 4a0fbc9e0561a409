#!/usr/bin/env python3
"""Checks the include direction of src/ against the layers of ARCHITECTURE.md.

usage: check_layers.py [ROOT]       exit code 1 and file:line of each include that points up or sideways

A module includes itself and modules of lower lines; modules of one line never include each other. Tests
(*_test.cc, test_util.h) may include anything: they check modules against each other.
"""
import pathlib
import re
import sys

# Lowest first, as in ARCHITECTURE.md.
LAYERS = [
    ["base"],
    ["tensor"],
    ["plan", "kernels", "format", "text", "store", "dist"],
    ["models", "kv", "decode", "quant"],
    ["exec"],
    ["sched", "spec", "account", "distill"],
    ["engine"],
    ["server", "explain"],
    ["cli"],
]
# Modules that may see less than their line allows, and why.
ONLY = {
    "text": {"base"},            # the tokenizer is testable without a tensor
    "store": {"base"},           # the store moves files; it does not read them
    "dist": {"base"},
    "decode": {"base", "tensor", "kernels"},  # sampling is testable without a model
    "plan": {"base", "tensor"},  # never sees kernels
    "models": {"base", "tensor", "plan", "format"},  # a model is a plan: no kernels, no tokenizers
    "kv": {"base", "tensor", "plan"},
    "sched": {"base", "tensor", "plan", "text", "models", "kv", "decode", "exec"},  # never sees kernels
    # What a user of the library may see: not how it is executed.
    "cli": {"server", "explain", "engine", "account", "text", "quant", "format", "store", "decode", "base", "tensor", "plan"},
    "server": {"engine", "account", "text", "quant", "format", "decode", "base"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')


def allowed(module):
    line = next(i for i, names in enumerate(LAYERS) if module in names)
    lower = {name for names in LAYERS[:line] for name in names}
    return {module} | (ONLY[module] & lower if module in ONLY else lower)


def is_test(path):
    return path.name.endswith("_test.cc") or "test_util" in path.name


def check(root):
    modules = {name for names in LAYERS for name in names}
    problems = []
    files = sorted(p for p in (root / "src").rglob("*") if p.suffix in (".h", ".cc", ".inc"))
    for path in files:
        where = path.relative_to(root)
        module = where.parts[1]
        if module not in modules:
            problems.append(f"{where}:1: the module '{module}' has no line in {__file__}")
            continue
        if is_test(path):
            continue
        for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            match = INCLUDE.match(text)
            if not match:
                continue
            target = match[1].split("/")[0]
            if "/" not in match[1] or target not in modules:
                problems.append(f"{where}:{number}: \"{match[1]}\" does not name its module")
            elif target not in allowed(module):
                problems.append(f"{where}:{number}: {module} may not include {target} ({match[1]})")
    return len(files), problems


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    count, problems = check(root)
    for problem in problems:
        print(problem)
    print(f"layers: {count} files, {len(problems)} includes in the wrong direction")
    return 1 if problems or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
