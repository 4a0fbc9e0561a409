#!/usr/bin/env python3
"""A first use of each command that reads a model, and output that nobody takes. What a command's figures mean is
checked by tests of its own; help, completion and wrong command lines by cli_shell_test.py."""
import json
import pathlib
import struct
import subprocess
import tempfile

import e2e
from e2e import LUCID, SHARED, STORIES, Case

PROMPT = "Once upon a time there was a little cat named Mia."
TWINS = SHARED / "fixtures" / "gguf" / "models"


class Output(Case):
    def test_a_full_disk_is_an_error(self):
        for args in (["run", "-m", STORIES, "--raw", "-n", "4", "-p", PROMPT],
                     ["run", "-m", STORIES, "--raw", "-n", "4", "-p", PROMPT, "--json"]):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([LUCID, *map(str, args)], stdout=full, stderr=subprocess.PIPE,
                                      timeout=e2e.TIMEOUT_S, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn(b"cannot write to standard output", done.stderr)

    def test_a_reader_that_goes_away_ends_the_program(self):
        with subprocess.Popen([LUCID, "run", "-m", str(STORIES), "--raw", "-p", PROMPT, "-c", "100000", "--ignore-eos"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            process.stdout.read(10)
            process.stdout.close()
            process.wait(timeout=e2e.TIMEOUT_S)
            self.assertNotEqual(process.returncode, 0)


class Commands(Case):
    def test_models(self):
        self.assertEqual(self.ok("models", "--json").json(), [])
        self.assertIn("smollm2", self.ok("models", "--names").out.split())
        self.assertIn("lucid pull", self.ok("models").out)
        self.assertIn("no-such-model", self.fails(1, "models", "rm", "no-such-model"))

    def test_pull_names_what_it_cannot_fetch(self):
        self.assertIn("no-such-model", self.fails(1, "pull", "no-such-model", "--offline"))

    def test_show(self):
        for path in (STORIES, TWINS / "stories_llama.q8_0.gguf"):
            with self.subTest(path.name):
                shown = self.ok("show", path, "--json").json()
                self.assertEqual(len(shown["tensors"]), 47)
                self.assertGreater(shown["bits_per_weight"], 1)
                self.assertIn("tensors (47", self.ok("show", path).out)
        self.assertIn("no-such-model", self.fails(1, "show", "no-such-model"))

    def test_tokenize_and_detokenize(self):
        prompt = e2e.reference()["prompts"][0]
        ids = ",".join(map(str, prompt["ids"]))
        for path in (STORIES, STORIES / "tokenizer.json", TWINS / "stories_llama.q8_0.gguf"):
            with self.subTest(path.name):
                # The GGUF file adds the first token by itself, tokenizer.json does not.
                args, text = ["tokenize", "-m", path, "--no-add-special"], "<|bos|>" + prompt["text"]
                self.assertEqual(self.ok(*args, "--text", text, "--json").json()["ids"], prompt["ids"])
                self.assertEqual(self.ok(*args, "--ids", stdin=text).out, ids + "\n")
                back = self.ok("detokenize", "-m", path, "--ids", ids, "--skip-special").out
                self.assertEqual(back.rstrip("\n"), prompt["text"])
        self.assertIn("16 tokens, 50 characters, 50 bytes", self.ok("tokenize", "-m", STORIES, "--text", prompt["text"]).out)
        self.assertIn("'x'", self.fails(1, "detokenize", "-m", STORIES, "--ids", "1,x"))

    def test_render(self):
        with tempfile.TemporaryDirectory() as folder:
            template, messages = pathlib.Path(folder) / "t.jinja", pathlib.Path(folder) / "m.json"
            template.write_text("{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}")
            messages.write_text(json.dumps([{"role": "user", "content": PROMPT}]))
            args = ["render", "-m", STORIES, "-f", messages]
            self.assertIn(PROMPT, self.ok(*args, "--chat-template", template).out)
            got = self.ok(*args, "--chat-template", template, "--json").json()
            self.assertEqual(got["ids"], e2e.reference()["prompts"][0]["ids"])
            self.assertIn("--chat-template", self.fails(1, *args))
            messages.write_text("[")
            self.fails(1, *args, "--chat-template", template)

    def test_logits(self):
        ids = e2e.reference()["prompts"][1]["ids"]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "logits.safetensors"
            self.ok("logits", "-m", STORIES, "--tokens", ",".join(map(str, ids)), "--out", path, "--hidden")
            data = path.read_bytes()
            header = json.loads(data[8:8 + struct.unpack_from("<Q", data)[0]])
            self.assertEqual(header["logits"]["shape"], [len(ids), 512])
            self.assertEqual(header["hidden.layer4"]["shape"], [len(ids), 96])
            self.assertIn("context", self.fails(1, "logits", "-m", STORIES, "--tokens", "1,2,3", "-c", "2", "--out", path))
            self.assertIn("512", self.fails(1, "logits", "-m", STORIES, "--tokens", "512", "--out", path))
        self.fails(2, "logits", "-m", STORIES, "--out", "x")

    def test_trace(self):
        got = self.ok("trace", "-m", STORIES, "--tokens", "0,431,435", "--json").json()
        self.assertEqual([(p["phase"], p["tokens"]) for p in got["phases"]], [("prefill", 3), ("decode", 1)])
        for phase in got["phases"]:
            self.assertGreater(len(phase["ops"]), 20)
        text = self.ok("trace", "-m", STORIES, "--tokens", "0,431,435").out
        self.assertIn("# prefill: 3 tokens", text)
        self.assertIn("# decode: 1 token", text)
        self.assertIn("blk.0", self.ok("trace", "-m", STORIES, "--plan").out)


if __name__ == "__main__":
    e2e.main()
