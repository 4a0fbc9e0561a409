"""What the end-to-end tests (cli_*.py) share: where the program and the fixtures are, running one, a terminal.

usage: cli_NAME.py [LUCID [SHARED]] [unittest's own arguments]

Standard library only. LUCID is the binary (default $LUCID_BIN or build/release/lucid), SHARED the folder with the
large fixtures (default $LUCID_SHARED or ../shared). The exit code is 0 (passed), 77 (skipped: something that is
needed is absent) or 1.
"""
import json
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent


def _argument(variable, default):
    """The next path of the command line, else the environment's, else the default."""
    if len(sys.argv) > 1 and "/" in sys.argv[1]:
        return os.path.abspath(sys.argv.pop(1))
    return os.environ.get(variable, str(default))


LUCID = _argument("LUCID_BIN", ROOT / "build" / "release" / "lucid")
SHARED = pathlib.Path(_argument("LUCID_SHARED", ROOT.parent / "shared"))
STORIES = SHARED / "fixtures" / "trained" / "stories_llama"

TIMEOUT_S = float(os.environ.get("LUCID_E2E_TIMEOUT", 300))  # a debug build under a sanitizer on a busy machine still ends within it


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


def stored_model(name):
    """The path of a model of the user's store; it is pulled if it is not there yet. Call it before main()."""
    def find():
        listed = run("models", "--json")
        return next((m["path"] for m in listed.json() if m["name"] == name), None) if listed.code == 0 else None
    if not os.access(LUCID, os.X_OK):
        skip(f"there is no program {LUCID}; build it, or name it in LUCID_BIN")
    path = find()
    if path is None:
        pulled = run("pull", name)
        path = find()
        if path is None:
            skip(f"the model {name} is not in the store and cannot be pulled: {pulled.err.strip()}")
    return path


def main(need_shared=True):
    """Runs the caller's unittest cases."""
    if not os.access(LUCID, os.X_OK):
        skip(f"there is no program {LUCID}; build it, or name it in LUCID_BIN")
    if need_shared and not STORIES.is_dir():
        skip(f"the fixture {STORIES} is absent; name the folder that holds fixtures/ in LUCID_SHARED")
    with tempfile.TemporaryDirectory(prefix="lucid-e2e-") as home:
        # Tests see neither the user's models nor the user's history.
        os.environ["LUCID_HOME"] = home
        os.environ.pop("LUCID_ISA", None)
        os.environ["LC_ALL"] = "C.UTF-8"
        program = unittest.main(module="__main__", exit=False, verbosity=2)
    sys.exit(0 if program.result.wasSuccessful() else 1)


class Ran:
    """What a finished command left: exit code, output, complaints."""

    def __init__(self, code, out, err):
        self.code, self.raw, self.err = code, out, err.decode("utf-8", "backslashreplace")
        self.out = out.decode("utf-8", "backslashreplace")

    def json(self):
        return json.loads(self.raw)

    def __repr__(self):
        return f"exit code {self.code}\nstdout: {self.out}\nstderr: {self.err}"


def run(*args, stdin=b"", env=None):
    """Runs lucid with these arguments and standard input, its output piped."""
    if isinstance(stdin, str):
        stdin = stdin.encode()
    done = subprocess.run([LUCID, *map(str, args)], input=stdin, capture_output=True, timeout=TIMEOUT_S,
                          env={**os.environ, **(env or {})}, check=False)
    return Ran(done.returncode, done.stdout, done.stderr)


def reference(folder=STORIES):
    return json.loads((folder / "reference.json").read_text(encoding="utf-8"))


class Case(unittest.TestCase):
    """Assertions about a command that ran."""

    def ok(self, *args, stdin=b"", env=None):
        ran = run(*args, stdin=stdin, env=env)
        self.assertEqual(ran.code, 0, ran)
        return ran

    def fails(self, code, *args, stdin=b"", env=None):
        """Runs a command that must fail, and returns its complaint: one line that begins with 'lucid: '."""
        ran = run(*args, stdin=stdin, env=env)
        self.assertEqual(ran.code, code, ran)
        self.assertEqual(ran.out, "", ran)
        self.assertRegex(ran.err, r"\Alucid: [^\n]+\n\Z", ran)
        return ran.err


class Terminal:
    """lucid under a pseudo-terminal. expect() waits for a text; what came before it is dropped."""

    def __init__(self, *args, env=None):
        self.seen = ""    # output that no expect() has consumed
        self.all = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(env or {})
            os.environ["TERM"] = "xterm"
            os.execv(LUCID, [LUCID, *map(str, args)])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)

    def _read(self, seconds):
        """Reads what is there within that time; False at the end of the output."""
        ready, _, _ = select.select([self.fd], [], [], seconds)
        if not ready:
            return True
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # what Linux says once the other side is closed
            return False
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", data.decode("utf-8", "replace")).replace("\r", "")
        self.seen += text
        self.all += text
        return bool(data)

    def expect(self, pattern, seconds=TIMEOUT_S):
        """Waits until the regular expression occurs; returns the match."""
        deadline = time.monotonic() + seconds
        while True:
            match = re.search(pattern, self.seen)
            if match:
                self.seen = self.seen[match.end():]
                return match
            if time.monotonic() > deadline or not self._read(0.1):
                raise AssertionError(f"{pattern!r} did not come; the terminal shows:\n{self.all}")

    def send(self, text):
        data = text.encode() if isinstance(text, str) else text
        while data:  # in pieces, reading between them: a terminal that is full both ways would block for good
            self._read(0)
            data = data[os.write(self.fd, data[:64]):]

    def line(self, text):
        self.send(text + "\r")

    def leave(self):
        """Presses Ctrl-D until the program ends: one that comes between two prompts is not seen. Returns the exit code."""
        for _ in range(int(TIMEOUT_S)):
            try:
                self.send("\x04")
                return self.end(1)
            except AssertionError:
                continue
            except OSError:  # it ended between the two
                break
        return self.end()

    def end(self, seconds=TIMEOUT_S):
        """Waits for the program to end; returns its exit code, or minus the signal that killed it."""
        deadline = time.monotonic() + seconds
        while self._read(0.1):
            if time.monotonic() > deadline:
                raise AssertionError(f"the program did not end; the terminal shows:\n{self.all}")
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)
