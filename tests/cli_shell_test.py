#!/usr/bin/env python3
"""The command line as a shell user meets it: help of every command, exit codes, completion scripts.

usage: cli_shell_test.py [LUCID]   (default: $LUCID_BIN or build/release/lucid). Standard library only.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
LUCID = os.environ.get("LUCID_BIN", str(ROOT / "build" / "release" / "lucid"))
COMMANDS = ["run", "chat", "serve", "batch", "bench", "limits", "pack", "convert", "pull", "models", "show", "plan", "tokenize", "detokenize", "render", "logits",
            "trace", "explain", "perplexity", "selftest", "replay", "account", "profile", "completion", "help"]


def lucid(*args):
    done = subprocess.run([LUCID, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=60)
    return done.returncode, done.stdout, done.stderr


class HelpTest(unittest.TestCase):
    def test_lists_every_command_with_one_line(self):
        code, out, err = lucid("--help")
        self.assertEqual((code, err), (0, ""))
        for command in COMMANDS:
            self.assertRegex(out, rf"(?m)^  {command} +\S.+$")
        self.assertEqual(lucid("help")[1], out)

    def test_every_command_has_help(self):
        for command in COMMANDS:
            code, out, _ = lucid(command, "--help")
            self.assertEqual(code, 0, command)
            self.assertIn(f"Usage: lucid {command}", out)
            self.assertEqual(lucid("help", command)[1], out)

    def test_version(self):
        code, out, _ = lucid("--version")
        self.assertEqual(code, 0)
        declared = re.search(r"project\(lucid VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())
        self.assertEqual(out, f"lucid {declared[1]}\n")

    def test_environment_variables(self):
        out = lucid("help", "env")[1]
        for name in ("LUCID_HOME", "LUCID_ISA", "LUCID_HF_ENDPOINT", "LUCID_LOG", "HF_TOKEN"):
            self.assertIn(name, out)

    def test_no_variable_is_read_behind_the_table(self):
        """Everything goes through base/env.cc, so `help env` is complete."""
        found = [str(path.relative_to(ROOT)) for path in (ROOT / "src").rglob("*.cc")
                 if "getenv(" in path.read_text() and not path.name.endswith("_test.cc")]
        self.assertEqual(found, ["src/base/env.cc"])


class WrongUseTest(unittest.TestCase):
    def check_usage_error(self, args, *words):
        code, out, err = lucid(*args)
        self.assertEqual(code, 2, (args, out, err))
        self.assertEqual(out, "")
        self.assertEqual(len(err.splitlines()), 1, err)
        self.assertTrue(err.startswith("lucid: "), err)
        for word in words:
            self.assertIn(word, err)

    def test_unknown_words_and_flags(self):
        self.check_usage_error(["tokenise"], "'tokenise'", "lucid tokenize")
        self.check_usage_error(["qqqqqqqq"], "--help")
        self.check_usage_error(["--frobnicate"], "--frobnicate")
        self.check_usage_error(["help", "qqqqqqqq"], "qqqqqqqq")
        for command in COMMANDS:
            self.check_usage_error([command, "--frobnicate"], "--frobnicate", f"lucid {command} --help")

    def test_missing_and_wrong_arguments(self):
        self.check_usage_error(["pull"], "source")
        self.check_usage_error(["models", "rm"], "name", "lucid models rm --help")
        self.check_usage_error(["completion", "tcsh"], "tcsh")

    def test_no_argument_shows_the_help(self):
        code, out, err = lucid()
        self.assertEqual((code, out), (2, ""))
        self.assertIn("Usage: lucid", err)

    def test_an_argument_may_be_called_like_a_command(self):
        code, _, err = lucid("pull", "models")
        self.assertEqual(code, 1)
        self.assertIn("'models' is no built-in model", err)


@unittest.skipUnless(shutil.which("bash"), "no bash")
class BashCompletionTest(unittest.TestCase):
    def complete(self, *words):
        """The completions of the last word, as bash computes them from the script."""
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(LUCID, os.path.join(folder, "lucid"))
            script = ('source <(lucid completion bash); COMP_WORDS=("$@"); COMP_CWORD=$(($#-1)); '
                      '_lucid; printf "%s\\n" "${COMPREPLY[@]}"')
            done = subprocess.run(["bash", "-c", script, "bash", "lucid", *words], text=True,
                                  capture_output=True, cwd=folder,
                                  env={"PATH": f"{folder}:{os.environ['PATH']}", "LUCID_HOME": folder})
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_commands_flags_and_models(self):
        self.assertEqual(set(COMMANDS), {w for w in self.complete("") if w[0] != "-"})
        self.assertEqual(self.complete("tok"), ["tokenize"])
        self.assertIn("--sha256", self.complete("pull", "--"))
        self.assertIn("rm", self.complete("models", ""))
        self.assertEqual(self.complete("run", "-m", "smol"), ["smollm2"])

    def test_every_flag_of_every_help_is_offered(self):
        for command in COMMANDS:
            flags = set(re.findall(r"(?m)^  (?:-\w,)?(--[\w-]+)", lucid(command, "--help")[1]))
            self.assertLessEqual(flags, set(self.complete(command, "--")), command)


@unittest.skipUnless(shutil.which("zsh"), "no zsh")
class ZshCompletionTest(unittest.TestCase):
    def test_script_is_valid(self):
        script = lucid("completion", "zsh")[1]
        done = subprocess.run(["zsh", "-n", "/dev/stdin"], input=script, text=True, capture_output=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertTrue(script.startswith("#compdef lucid"))


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        LUCID = os.path.abspath(sys.argv.pop(1))
    if not os.access(LUCID, os.X_OK):
        sys.exit(f"there is no binary at {LUCID}; build it first or name it")
    unittest.main()
