#!/usr/bin/env python3
"""lucid explain, end to end: the list, a topic as text and as a page, the whole course as a site, and what it refuses."""
import os
import pathlib
import re

import e2e
from e2e import ROOT, STORIES, Case

CONFIGS = ROOT / "tests" / "data" / "configs"
TOPICS = ["tokens", "embedding", "qkv", "rope", "mask", "attention", "gqa", "softmax", "out-projection", "ffn", "moe", "norm", "kv-cache", "prefill-decode",
          "bandwidth", "roofline", "sampling", "perplexity", "batching", "paged-attention", "flash-attention", "graph", "speculative", "quantization",
          "distillation", "position-scaling", "kv-compression", "self-test", "token-birth"]


class Explain(Case):
    def test_the_list(self):
        listed = self.ok("explain").out
        self.assertEqual(self.ok("explain", "--list").out, listed)
        names = re.findall(r"(?m)^  (\S+) ", listed)
        self.assertEqual([t for t in TOPICS if t not in names], [])

    def test_a_topic_of_a_model(self):
        text = self.ok("explain", "tokens", "-m", STORIES, "-p", "The dog ran.").out
        self.assertTrue(text.startswith("Tokens: what the model reads\n===="))
        self.assertIn("The dog ran.", text)
        self.assertIn("See also:", text)
        self.assertLessEqual(max(map(len, text.splitlines())), 100)
        # Another word for it, and the same words twice: nothing random, nothing timed.
        self.assertEqual(self.ok("explain", "tokenizer", "-m", STORIES, "-p", "The dog ran.").out, text)
        sampled = self.ok("explain", "sampling", "-m", STORIES, "-p", "The dog ran.").out
        self.assertEqual(self.ok("explain", "sampling", "-m", STORIES, "-p", "The dog ran.", "-t", 1).out, sampled)

    def test_a_config_alone(self):
        text = self.ok("explain", "kv-cache", "-m", CONFIGS / "qwen2.5-7b.json", "-c", 2048).out
        self.assertIn("117,440,512 bytes", text)
        text = self.ok("explain", "bandwidth", "-m", CONFIGS / "qwen2.5-7b.json", "--type", "q4_k_m", "--hardware", "h100").out
        self.assertIn("4,370,558,976 bytes", text)
        self.assertIn("`lucid pull smollm2`", text)

    def test_this_machine(self):
        ran = self.ok("explain", "roofline", "-m", STORIES, "-t", 1)
        self.assertIn("ridge", ran.out)

    def test_a_page(self):
        out = pathlib.Path(os.environ["LUCID_HOME"]) / "page.html"
        self.assertEqual(self.ok("explain", "attention", "-m", STORIES, "--format", "html", "-o", out).out, "")
        page = out.read_text(encoding="utf-8")
        self.assertTrue(page.startswith("<!DOCTYPE html>"))
        self.assertEqual(page.count("<svg"), 2)
        self.assertEqual(page, self.ok("explain", "attention", "-m", STORIES, "--format", "html").out)

    def test_the_site(self):
        folder = pathlib.Path(os.environ["LUCID_HOME"]) / "course"
        said = self.ok("explain", "--all", "-m", STORIES, "--hardware", "h100", "--format", "html", "-o", folder).out
        names = {path.name for path in folder.iterdir()}
        self.assertIn(f"{len(names)} pages", said)
        self.assertLessEqual({f"{t}.html" for t in TOPICS} | {"index.html"}, names)
        for path in folder.iterdir():
            for link in re.findall(r'href="([^"]+)"', path.read_text(encoding="utf-8")):
                self.assertIn(link, names, path.name)

    def test_all_as_text(self):
        text = self.ok("explain", "--all", "-m", CONFIGS / "gpt2.json", "-c", 512, "--hardware", "a100").out
        self.assertGreater(text.count("===="), len(TOPICS))

    def test_refusals(self):
        self.assertIn("there is no topic 'samplin', but 'sampling'", self.fails(1, "explain", "samplin"))
        self.assertIn("there is no topic 'weather'; 'lucid explain' lists all", self.fails(1, "explain", "weather"))
        self.assertIn("'lucid pull smollm2' fetches a small one", self.fails(1, "explain", "tokens"))  # the store is empty
        self.assertIn("no model of that name", self.fails(1, "explain", "tokens", "-m", "nothing"))
        self.assertIn("name it with -o", self.fails(1, "explain", "--all", "--format", "html", "-m", STORIES))
        self.assertIn("pages show 1 to 96", self.fails(1, "explain", "tokens", "-m", STORIES, "-p", "word " * 200))
        self.assertIn("there is no hardware 'abacus'", self.fails(1, "explain", "roofline", "-m", STORIES, "--hardware", "abacus"))
        self.fails(2, "explain", "tokens", "--list")


if __name__ == "__main__":
    e2e.main()
