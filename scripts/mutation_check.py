#!/usr/bin/env python3
"""Plants faults in copies of the sources, one at a time, and runs the tests that should notice them: a fault that no
test catches fails the check.

usage: mutation_check.py BUILD_DIR [--shared DIR] [--only WORD] [--jobs N] [--list]

FAULTS lists them. The file is copied to BUILD_DIR/mutation with its text changed and compiled as the build compiles it;
linked with the build's other objects it makes a liblucid that takes the place of the real one (LD_PRELOAD) while the
build's own test programs run. Neither the working tree nor the library of the build changes. A copy without a fault
goes first and must pass all that the faults are to fail.

A fault whose text its file has not exactly once, or whose copy does not compile, fails the check as well: the list must
follow the sources. Exit code 77, a skip: the reference models are not there (DIR, ../shared unless given).
"""
import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time

SOURCE = pathlib.Path(__file__).resolve().parent.parent / "src"
SKIP = 77
COMMAND_SECONDS = 600  # of one compilation, link or test program: what takes longer hangs

# Logits of the reference models, by name and instruction set.
LOGITS = "Models/Fixture.LogitsOfEveryPositionMatch/"


@dataclasses.dataclass(frozen=True)
class Fault:
    name: str
    path: str  # of the file under src/
    before: str  # its text, in one place only, ...
    after: str  # ... and what a developer might have written
    program: str  # the test program that should notice, ...
    tests: str  # ... and its tests
    unit: str = ""  # where `path` is a header: the one source that is compiled with the changed copy


FAULTS = (
    # The one of the vector kernels takes longest to compile: it goes first.
    Fault("a window that is one place too wide", "kernels/cpu/attention_keys-inl.h",
          "place - a.window + 1 : 0", "place - a.window : 0",
          "kernels_test", "Components.*:Attention.EqualsTheFixtures", unit="kernels/cpu/isa_generic.cc"),
    Fault("keys and values swapped", "models/parts.cc",
          "b.KvStore(kv, k, v)", "b.KvStore(kv, v, k)",
          "exec_test", LOGITS + "llama3_gqa_*"),
    Fault("neighbours rotated where halves should be, and halves for neighbours", "kernels/reference/rope.cc",
          "a.style == RopeStyle::kInterleaved", "a.style != RopeStyle::kInterleaved",
          "kernels_test", "Components.*"),
    Fault("scores without their scale", "models/parts.cc",
          ".scale = l.attn_scale > 0 ? l.attn_scale : c.attn_scale", ".scale = 1.0",
          "exec_test", LOGITS + "qwen2_*"),
    Fault("an epsilon that is not the config's", "models/config_readers_hf.cc",
          "c.norm_eps = h.Float(d.eps_key, d.norm_eps);", "c.norm_eps = d.norm_eps;",
          "exec_test", LOGITS + "*_reference"),
    Fault("gate and up swapped", "models/parts.cc",
          "b.Linear(b.Glu(gate, up, c.act)", "b.Linear(b.Glu(up, gate, c.act)",
          "exec_test", LOGITS + "mistral_swa_*"),
    Fault("weights of experts that are not normalised", "models/mixtral.cc",
          ".normalise = true", ".normalise = false",
          "exec_test", LOGITS + "mixtral_*"),
    Fault("ALiBi slopes in the opposite order", "plan/rope_spec.cc",
          "slopes[static_cast<size_t>(h)] =", "slopes[static_cast<size_t>(n_heads - 1 - h)] =",
          "exec_test", LOGITS + "bloom_*"),
    Fault("the bias of a linear dropped", "exec/bind.cc",
          ".bias = Vector(bias),\n            .x = Ptr(x)", ".bias = Vector({}),\n            .x = Ptr(x)",
          "exec_test", LOGITS + "gpt2_*"),
    Fault("latent attention without YaRN's factor of the scores", "models/deepseek.cc",
          "mscale * mscale / std::sqrt", "1.0 / std::sqrt",
          "exec_test", LOGITS + "deepseek_v2_lite_*"),
)


class CheckFailed(Exception):
    """With one sentence of what is wrong."""


class Processes:
    """Runs programs, each in a session of its own, so that all they started can be ended with them."""

    def __init__(self):
        self._lock = threading.Lock()
        self._running = set()
        self._stopped = False

    def run(self, command, cwd, env=None):
        """(exit status, output). A program that hangs is ended: its status is that of the signal."""
        with self._lock:
            if self._stopped:
                raise CheckFailed("stopped")
            process = subprocess.Popen(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True)
            self._running.add(process)
        try:
            output, _ = process.communicate(timeout=COMMAND_SECONDS)
        except subprocess.TimeoutExpired:
            self._end(process)
            output, _ = process.communicate()
        finally:
            with self._lock:
                self._running.discard(process)
        return process.returncode, output

    def stop(self):
        with self._lock:
            self._stopped = True
            for process in self._running:
                self._end(process)

    @staticmethod
    def _end(process):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def planted(fault, text):
    """`text` with the fault in it."""
    found = text.count(fault.before)
    if found != 1:
        raise CheckFailed(f"src/{fault.path} has the text {fault.before!r} {found} times, not once: the fault "
                          f"'{fault.name}' in scripts/mutation_check.py must follow the source")
    return text.replace(fault.before, fault.after)


class Mutator:
    """Makes libraries with a changed file, by the commands of a build that is up to date."""

    def __init__(self, build, processes):
        self.build = build
        self.folder = build / "mutation"
        self._processes = processes
        self._compile = {}  # by source
        status, output = processes.run(["ninja", "-t", "commands", "liblucid.so"], build)
        if status != 0:
            raise CheckFailed(f"{build} is no build of Ninja: {output.strip()}")
        for line in output.splitlines():
            words = shlex.split(line)
            if "-c" in words:
                self._compile[words[words.index("-c") + 1]] = words
            elif "-shared" in words and any(word.startswith("liblucid.so") for word in words):
                self._link = [word for word in words if word not in (":", "&&")]

    def library(self, name, path, text, unit):
        """Path of a liblucid in which src/`path` is `text`; src/`unit` is the source that is compiled for it."""
        folder = self.folder / name
        copy = folder / "src" / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text)
        source = str(SOURCE / unit)
        if source not in self._compile:
            raise CheckFailed(f"the build does not compile {source}")
        words = list(self._compile[source])
        old, new = words[words.index("-o") + 1], str(folder / "changed.o")
        words[words.index("-o") + 1] = new
        for flag in ("-MF", "-MT"):
            if flag in words:
                words[words.index(flag) + 1] = new + ".d"
        if path == unit:
            words[words.index("-c") + 1] = str(copy)
        else:
            words.insert(words.index("-c"), f"-I{folder / 'src'}")  # before the real headers, whose place is src/
            first = next(i for i, word in enumerate(words) if word.startswith("-I"))
            words.insert(first, words.pop(words.index("-c") - 1))
        self._must(words, f"the copy of src/{path} does not compile")
        library = folder / "liblucid.so"
        link = [new if word == old else word for word in self._link]
        link[link.index("-o") + 1] = str(library)
        self._must(link, f"the library with the copy of src/{path} does not link")
        return library

    def _must(self, command, sentence):
        status, output = self._processes.run(command, self.build)
        if status != 0:
            raise CheckFailed(f"{sentence}:\n{output[-3000:]}")

    def failed_test(self, library, program, tests):
        """(the first test that fails with this library or None, how many passed)."""
        env = dict(os.environ, LD_PRELOAD=str(library))
        status, output = self._processes.run(
            [str(self.build / "src" / program), f"--gtest_filter={tests}", "--gtest_fail_fast"], self.build, env)
        if status == 0:
            passed = re.search(r"^\[  PASSED  \] (\d+) test", output, re.MULTILINE)
            return None, int(passed[1]) if passed else 0
        if status == -signal.SIGKILL:
            raise CheckFailed(f"{program} was killed or hung, which says nothing of its tests")
        failed = re.search(r"^\[  FAILED  \] ([^\s,]+)", output, re.MULTILINE)
        started = re.findall(r"^\[ RUN      \] (\S+)", output, re.MULTILINE)
        if not failed and not started:
            raise CheckFailed(f"{program} did not start: {output[-2000:]}")
        return failed[1] if failed else f"{started[-1]} (which ended the program, status {status})", 0


def check_unchanged(mutator, faults):
    """The tests pass without a fault: what fails later, fails by it."""
    path = "models/parts.cc"
    library = mutator.library("unchanged", path, (SOURCE / path).read_text(), path)
    for program in sorted({fault.program for fault in faults}):
        tests = ":".join(dict.fromkeys(fault.tests for fault in faults if fault.program == program))
        failed, passed = mutator.failed_test(library, program, tests)
        if failed:
            raise CheckFailed(f"{program} fails {failed} without any fault")
        print(f"without a fault: {passed} tests of {program} pass", flush=True)


def check_fault(mutator, index, fault, text):
    """(whether a test caught it, a line about it)."""
    started = time.monotonic()
    library = mutator.library(str(index), fault.path, text, fault.unit or fault.path)
    failed, passed = mutator.failed_test(library, fault.program, fault.tests)
    seconds = time.monotonic() - started
    if failed:
        return True, f"caught    {fault.name}: {fault.program} {failed} ({seconds:.0f} s)"
    return False, (f"SURVIVED  {fault.name} in src/{fault.path}: {passed} tests of {fault.program} pass with it; "
                   f"one of '{fault.tests}' must notice it")


def run(arguments, processes, faults):
    build = arguments.build.resolve()
    texts = [planted(fault, (SOURCE / fault.path).read_text()) for fault in faults]
    targets = ["lucid", *sorted({fault.program for fault in faults})]
    status, output = processes.run(["cmake", "--build", str(build), "--target", *targets], SOURCE.parent)
    if status != 0:
        raise CheckFailed(f"the build in {build} fails: {output[-3000:]}")
    mutator = Mutator(build, processes)
    shutil.rmtree(mutator.folder, ignore_errors=True)
    try:
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            caught = 0
            try:
                unchanged = pool.submit(check_unchanged, mutator, faults)
                pending = [pool.submit(check_fault, mutator, i, faults[i], texts[i]) for i in range(len(faults))]
                unchanged.result()
                for future in concurrent.futures.as_completed(pending):
                    good, line = future.result()
                    caught += good
                    print(line, flush=True)
            finally:
                processes.stop()  # those that still run when a problem ends the check
    finally:
        shutil.rmtree(mutator.folder, ignore_errors=True)
    print(f"{caught} of {len(faults)} faults caught")
    return 0 if caught == len(faults) else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, metavar="BUILD_DIR", help="of the release preset, with tests")
    parser.add_argument("--shared", type=pathlib.Path, default=SOURCE.parent.parent / "shared",
                        help="the folder that has fixtures/")
    parser.add_argument("--only", default="", metavar="WORD", help="only faults with this word in their name or file")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="faults at a time")
    parser.add_argument("--list", action="store_true", help="print the faults")
    arguments = parser.parse_args()
    faults = [fault for fault in FAULTS if arguments.only in fault.name + " " + fault.path]
    if arguments.list:
        for fault in faults:
            print(f"{fault.name}: src/{fault.path}, noticed by {fault.program} {fault.tests}")
        return 0
    if not faults:
        parser.error(f"no fault has '{arguments.only}' in its name or file")
    if not (arguments.shared / "fixtures" / "models").is_dir():
        print(f"skipped: the reference models are not at {arguments.shared / 'fixtures'}")
        return SKIP
    processes = Processes()

    def stop(number, _):
        processes.stop()
        sys.exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    try:
        return run(arguments, processes, faults)
    except CheckFailed as problem:
        print(f"mutation check: {problem}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
