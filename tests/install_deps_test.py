#!/usr/bin/env python3
"""Without the rights to install, ./demo and ./test print the command to run, and stop.

Both go through scripts/install_deps.sh, which is run here with a dpkg-query that knows no package and an id that is not root.
"""
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent


class InstallDeps(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        for name, body in {"dpkg-query": "exit 0", "id": "echo 1000", "apt-get": "echo apt-get was run; exit 1"}.items():
            script = pathlib.Path(self.folder.name) / name
            script.write_text(f"#!/bin/sh\n{body}\n")
            script.chmod(0o755)
        self.environment = {**os.environ, "PATH": f"{self.folder.name}:{os.environ['PATH']}"}

    def run_script(self, *command, cwd=ROOT):
        return subprocess.run(command, cwd=cwd, env=self.environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)

    def check(self, ran):
        self.assertNotEqual(ran.returncode, 0)
        self.assertNotIn("apt-get was run", ran.stdout + ran.stderr)
        self.assertRegex(ran.stderr, r"apt-get update && apt-get install -y .*g\+\+.*cmake")

    def test_the_script_itself(self):
        self.check(self.run_script("bash", "scripts/install_deps.sh", "build"))

    def test_demo_and_test_stop_there(self):
        # A clone without a build, so that ./demo has to build.
        with tempfile.TemporaryDirectory() as clone:
            for item in ("demo", "test", "scripts", "src", "cmake", "CMakeLists.txt", "CMakePresets.json"):
                os.symlink(ROOT / item, pathlib.Path(clone) / item) if item not in ("demo", "test") else \
                    pathlib.Path(clone, item).write_bytes((ROOT / item).read_bytes())
            self.check(self.run_script("bash", "./demo", "hello", cwd=clone))
            self.check(self.run_script("bash", "./test", cwd=clone))


unittest.main(verbosity=2)
