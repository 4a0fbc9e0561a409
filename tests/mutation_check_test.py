#!/usr/bin/env python3
"""scripts/mutation_check.py: its faults have their texts in the sources, and it says what is wrong with a fault that has
not, with a test that notices nothing, and with a program that never ends. Nothing is built here."""
import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "scripts" / "mutation_check.py"
SPEC = importlib.util.spec_from_file_location("mutation_check", SCRIPT)
check = importlib.util.module_from_spec(SPEC)
sys.modules["mutation_check"] = check  # dataclasses look their module up
SPEC.loader.exec_module(check)

FAULT = check.Fault("a fault", "models/foo.cc", "good", "bad", "foo_test", "Foo.*")


class FakeMutator:
    """Of a build whose tests notice only what `failed` says."""

    def __init__(self, failed):
        self.failed = failed

    def library(self, *_):
        return pathlib.Path("liblucid.so")

    def failed_test(self, *_):
        return self.failed, 0 if self.failed else 5


class MutationCheck(unittest.TestCase):
    def test_every_fault_has_its_text_once_in_its_file(self):
        for fault in check.FAULTS:
            text = (ROOT / "src" / fault.path).read_text()
            self.assertNotEqual(check.planted(fault, text), text)
            self.assertTrue((ROOT / "src" / (fault.unit or fault.path)).is_file())
        self.assertGreaterEqual(len(check.FAULTS), 10)
        self.assertEqual(len({fault.name for fault in check.FAULTS}), len(check.FAULTS))

    def test_a_text_that_is_not_there_once_is_named(self):
        self.assertEqual(check.planted(FAULT, "a good thing"), "a bad thing")
        for text, times in (("a fine thing", 0), ("good and good", 2)):
            with self.assertRaisesRegex(check.CheckFailed, f"src/models/foo.cc has the text 'good' {times} times"):
                check.planted(FAULT, text)

    def test_the_test_that_notices_is_named_and_so_is_a_survivor(self):
        self.assertEqual(check.check_fault(FakeMutator("Foo.Bar"), 0, FAULT, "")[0], True)
        self.assertIn("foo_test Foo.Bar", check.check_fault(FakeMutator("Foo.Bar"), 0, FAULT, "")[1])
        good, line = check.check_fault(FakeMutator(None), 0, FAULT, "")
        self.assertFalse(good)
        self.assertRegex(line, "^SURVIVED .*src/models/foo.cc: 5 tests of foo_test pass")
        with self.assertRaisesRegex(check.CheckFailed, "without any fault"):
            check.check_unchanged(FakeMutator("Foo.Bar"), [FAULT])

    def test_what_runs_ends_with_the_check(self):
        processes = check.Processes()
        results = []
        thread = threading.Thread(target=lambda: results.append(processes.run(["sh", "-c", "sleep 60; true"], ROOT)))
        thread.start()
        started = time.monotonic()
        while not processes._running:
            time.sleep(0.01)
        processes.stop()
        thread.join()
        self.assertLess(time.monotonic() - started, 30)
        self.assertEqual(results, [(-9, "")])
        with self.assertRaisesRegex(check.CheckFailed, "stopped"):
            processes.run(["true"], ROOT)

    def test_it_skips_without_the_reference_models(self):
        with tempfile.TemporaryDirectory() as folder:
            ran = subprocess.run([sys.executable, SCRIPT, folder, "--shared", folder], capture_output=True, text=True)
        self.assertEqual(ran.returncode, 77, ran.stderr)
        self.assertIn("the reference models are not at", ran.stdout)


unittest.main(verbosity=2)
