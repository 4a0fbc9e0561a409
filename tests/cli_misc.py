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
        self.assertIn("lucid show MODEL", self.fails(2, "show"))

    def test_show_says_why_a_model_cannot_be_run(self):
        with tempfile.TemporaryDirectory(prefix="lucid-show-") as folder:
            folder = pathlib.Path(folder)
            for path in STORIES.iterdir():
                if path.name != "config.json":
                    (folder / path.name).symlink_to(path)
            config = json.loads((STORIES / "config.json").read_text())
            (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 1}))
            self.assertRegex(self.ok("show", folder).out, r"cannot be run .*tensor model\.layers\.1\..* is in the file, but nothing")
            self.assertIn("is in the file", self.fails(1, "run", "-m", folder, "-p", "a"))
            self.assertIn("name the folder", self.fails(1, "convert", folder / "config.json", "-o", folder / "m.gguf"))

    def test_rope_flags(self):
        show = lambda *flags: self.ok("show", STORIES, *flags).out
        self.assertRegex(show("--rope-scaling", "ntk", "--rope-scale", 4), r"positions .*, ntk by 4\n")
        # What llama.cpp's scripts pass for "as the model says".
        self.assertEqual(show(), show("--yarn-ext-factor", -1, "--yarn-attn-factor", -1, "--yarn-orig-ctx", 0, "--yarn-beta-fast", -1))
        for value in ("0", "-5", "abc", "nan", "inf"):
            self.assertIn(f"'{value}' is not a positive number", self.fails(2, "show", STORIES, f"--rope-freq-base={value}"))
        yarn = ("--rope-scaling", "yarn", "--rope-scale", 4)
        self.assertIn("betas 8 and 1, ext factor 0.5", show(*yarn, "--yarn-beta-fast", 8, "--yarn-ext-factor", 0.5))
        self.assertIn("--yarn-beta-fast must be above", self.fails(1, "show", STORIES, *yarn, "--yarn-beta-fast", 0.5))

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
        self.assertIn("--ids is empty", self.fails(1, "detokenize", "-m", STORIES, "--ids", "", stdin="1"))
        bytes_only = self.ok("tokenize", "-m", STORIES, "--json", stdin=b"\x80\x81a\xc3\xa9").json()
        self.assertEqual((bytes_only["n_chars"], bytes_only["n_bytes"]), (4, 5))

    def test_tokenize_says_which_bytes_it_left_out(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "tokenizer.json"
            path.write_text(json.dumps({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []},
                                        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False}}))
            ran = self.ok("tokenize", "-m", path, "--ids", stdin=b"a\xff\xfeb")
            self.assertEqual(ran.out, "0,1\n")
            self.assertIn("2 bytes of the text have no token in this vocabulary and were left out", ran.err)
            self.assertEqual(self.ok("tokenize", "-m", path, "--ids", stdin=b"ab").err, "")

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
            self.assertIn("m.json is not valid JSON: unexpected end of input",
                          self.fails(1, *args, "--chat-template", template))

    def test_render_refuses_what_it_cannot_use(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            template, messages, other = folder / "t.jinja", folder / "m.json", folder / "o.json"
            template.write_text("{{ messages[0].content }}")
            messages.write_text(json.dumps([{"role": "user", "content": PROMPT}]))
            args = ["render", "-m", STORIES, "-f", messages, "--chat-template", template]
            other.write_text('{"a": 1}')
            for flag in ("--tools", "--documents"):
                self.assertIn("o.json is not a JSON array", self.fails(1, *args, flag, other))
            self.assertIn("'tools' is not an array", self.fails(1, *args, "--chat-template-kwargs", '{"tools": 3}'))
            self.assertIn("'messages'", self.fails(1, *args, "--chat-template-kwargs", '{"messages": []}'))
            template.write_text("a\n\n{{ raise_exception('no') }}")
            self.assertIn("refused the messages at line 3: no", self.fails(1, *args))

    def test_deeply_nested_json_is_an_error(self):
        deep = "[" * 200_000 + "]" * 200_000
        said = "is nested deeper than 64 levels"
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            template, messages, bad = folder / "t.jinja", folder / "m.json", folder / "deep.json"
            template.write_text("{{ messages[0].content }}")
            messages.write_text(json.dumps([{"role": "user", "content": PROMPT}]))
            bad.write_text(deep)
            args = ["render", "-m", STORIES, "--chat-template", template]
            self.assertIn("deep.json " + said, self.fails(1, *args, "-f", bad))
            self.assertIn("standard input " + said, self.fails(1, *args, "-f", "-", stdin=deep))
            for flag in ("--tools", "--documents"):
                self.assertIn("deep.json " + said, self.fails(1, *args, "-f", messages, flag, bad))
            self.assertIn(said, self.fails(1, *args, "-f", messages, "--chat-template-kwargs", deep[:100_000]))
            self.assertIn(said, self.fails(1, "tokenize", "-m", STORIES, "--jsonl", stdin=deep))
            (folder / "tokenizer.json").write_bytes((STORIES / "tokenizer.json").read_bytes())
            for file, key in (("generation_config.json", "eos_token_id"), ("tokenizer_config.json", "chat_template")):
                (folder / file).write_text(f'{{"{key}": {deep}}}')
                self.assertIn(f"{file}: it {said}", self.fails(1, "tokenize", "-m", folder, "--text", "a"))
                (folder / file).unlink()

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
        text = self.ok("trace", "-m", STORIES, "--tokens", "0,431,435", "--run").out
        self.assertIn("# prefill: 3 tokens", text)
        self.assertIn("# decode: 1 token", text)
        self.assertIn("blk.0", self.ok("trace", "-m", STORIES, "--plan").out)


if __name__ == "__main__":
    e2e.main()
