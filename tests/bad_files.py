#!/usr/bin/env python3
"""Runs the built binary on malformed and truncated model files.

usage: bad_files.py LUCID_BINARY SHARED_DIR

Three sweeps; each command must end with exit code 0 or 1 (never a signal), in time and within a
memory limit, and say what is wrong in one line on stderr when it refuses:
  1. `lucid show` on every file of SHARED_DIR/cases/make_bad_gguf.py and make_bad_safetensors.py.
     What `show` may accept although no model can be made of it is in SHOWN below.
  2. `lucid run` on the GGUF files: here the manifest's expectation holds for every file.
  3. `lucid show` on a valid model cut at every length of a sweep: each must be refused.
Exit code 77 (skip, for CTest) where SHARED_DIR is absent.
"""
import json
import os
import resource
import subprocess
import sys
import tempfile

TIMEOUT_S = 20  # generous: the sanitizer builds run this too, on busy machines
MEMORY_LIMIT = 256 << 20
SKIP = 77
# Well-formed files that are not usable models: `show` prints them, `run` refuses them.
SHOWN = {"arch_missing.gguf", "arch_unknown.gguf", "arch_is_u32.gguf",
         "head_count_missing.gguf", "tensor_missing.gguf", "tensor_wrong_shape.gguf"}


class Sweep:
    def __init__(self, binary):
        self.binary = binary
        self.runs = 0
        self.failures = []

    def run(self, command, path, expect, limit_memory=True):
        """Runs one command on one file; expect: reject, accept or either."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        argv = [self.binary] + [path if word == "{file}" else word for word in command]
        self.runs += 1
        label = f"{command[0]} {os.path.basename(path)}"
        try:
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True,
                                  timeout=TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            return self.fail(label, "hangs")
        after = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        error = done.stderr.decode("utf-8", "replace").strip()
        if done.returncode not in (0, 1):
            return self.fail(label, f"exit code {done.returncode}: {error[-400:]}")
        if limit_memory and after > before and after << 10 > MEMORY_LIMIT:
            return self.fail(label, f"used {after >> 10} MiB")
        if expect == "accept" and done.returncode != 0:
            return self.fail(label, f"is refused: {error}")
        if expect == "reject" and done.returncode != 1:
            return self.fail(label, "is accepted")
        if done.returncode == 1 and (not error or "\n" in error):
            return self.fail(label, f"gives no one-line message: {error!r}")
        return None

    def fail(self, label, what):
        self.failures.append(f"{label} {what}")
        print(f"FAIL {label} {what}")


def make(shared, script, folder):
    subprocess.run([sys.executable, os.path.join(shared, "cases", script), folder], check=True,
                   stdout=subprocess.DEVNULL)
    with open(os.path.join(folder, "manifest.json"), encoding="utf-8") as manifest:
        items = json.load(manifest)
    return [(os.path.join(folder, item["file"]), item["expect"]) for item in items]


def truncations(size):
    """Every length up to 4096 in steps of 7 (and all of the first 256), then every 997 bytes."""
    yield from range(0, min(256, size))
    yield from range(256, min(4096, size), 7)
    yield from range(4096, size, 997)


def main():
    binary, shared = os.path.abspath(sys.argv[1]), sys.argv[2]
    if not os.path.exists(os.path.join(shared, "cases", "make_bad_gguf.py")):
        print(f"skipped: no cases in {shared}")
        return SKIP
    # AddressSanitizer's own bookkeeping would count as memory.
    libraries = subprocess.run(["ldd", binary], capture_output=True, check=False).stdout
    sanitized = b"libasan" in libraries
    sweep = Sweep(binary)
    with tempfile.TemporaryDirectory() as temp:
        os.environ["LUCID_HOME"] = os.path.join(temp, "home")  # packed weights go there, not to the user's
        gguf = make(shared, "make_bad_gguf.py", os.path.join(temp, "gguf"))
        safetensors = make(shared, "make_bad_safetensors.py", os.path.join(temp, "safetensors"))
        for path, expect in gguf + safetensors:
            shown = "accept" if os.path.basename(path) in SHOWN else expect
            sweep.run(["show", "{file}"], path, shown, limit_memory=not sanitized)
        for path, expect in gguf:
            command = ["run", "-m", "{file}", "-p", "a", "-n", "2", "--raw", "-t", "1"]
            sweep.run(command, path, expect, limit_memory=not sanitized)
        with open(os.path.join(temp, "gguf", "ok_tiny_model.gguf"), "rb") as model:
            content = model.read()
        cut = os.path.join(temp, "cut.gguf")
        for length in truncations(len(content)):
            with open(cut, "wb") as out:
                out.write(content[:length])
            sweep.run(["show", "{file}"], cut, "reject", limit_memory=not sanitized)
    print(f"{sweep.runs - len(sweep.failures)} of {sweep.runs} runs are right")
    return 1 if sweep.failures else 0


if __name__ == "__main__":
    sys.exit(main())
