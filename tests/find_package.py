#!/usr/bin/env python3
"""cmake --install gives a binary and a library that another project finds with find_package(lucid) and runs.

usage: find_package.py LUCID SHARED; the build folder is the one that holds LUCID.
"""
import pathlib
import subprocess
import tempfile

import e2e

BUILD = pathlib.Path(e2e.LUCID).parent
CONSUMER = e2e.ROOT / "tests" / "consumer"
PROMPT = "Once upon a time there was a little cat named Mia."


class FindPackage(e2e.Case):
    def shell(self, *command, **options):
        ran = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        return ran.stdout

    def test_an_installed_copy_is_found_and_works(self):
        with tempfile.TemporaryDirectory(prefix="lucid-install-") as folder:
            prefix, build = pathlib.Path(folder, "prefix"), pathlib.Path(folder, "build")
            self.shell("cmake", "--install", BUILD, "--prefix", prefix)
            self.assertIn("lucid", self.shell(prefix / "bin" / "lucid", "--version"))
            self.shell("cmake", "-S", CONSUMER, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
            self.shell("cmake", "--build", build)
            said = self.shell(build / "consumer", e2e.STORIES, PROMPT)
            want = self.ok("run", "-m", e2e.STORIES, "--raw", "-p", PROMPT, "-n", 16, "--temp", 0).out
            self.assertEqual(said.strip(), want.strip())
            self.assertTrue(said.strip())


e2e.main()
