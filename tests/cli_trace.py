#!/usr/bin/env python3
"""`lucid trace`: the flow of shapes from a config.json and from models, in every format, and runs: values, invariants.

usage: cli_trace.py [LUCID [SHARED]]

The page is opened in a browser where there is one (chromium).
"""
import html.parser
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import e2e
from e2e import ROOT, SHARED, STORIES

MODELS = SHARED / "fixtures" / "models"
DEEPSEEK = MODELS / "deepseek_v2"
LLAMA3 = ROOT / "tests" / "data" / "configs" / "llama-3-8b.json"
IDS = ["residual-shape", "qkv-shapes", "cache-appended", "rope-on-qk", "causal-mask", "softmax-rows"]


class Page(html.parser.HTMLParser):
    """What a page would fetch, its blocks and which of them are open, and its tags that were not closed."""

    def __init__(self, text):
        super().__init__()
        self.outside, self.open, self.rows, self.stack = [], [], 0, []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.outside += [attrs[name] for name in ("src", "href") if name in attrs]
        if "block" in (attrs.get("class") or "").split():
            self.open.append("open" in attrs)
        self.rows += tag == "tr"
        if tag not in ("meta", "br"):
            self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag, tag


class Trace(e2e.Case):
    def steps(self, flow):
        return {step["name"]: step for block in flow["blocks"] for step in block["steps"]}

    def test_llama3_from_its_config(self):
        text = self.ok("trace", LLAMA3).out
        self.assertIn("prefill  2 sequences x 10 tokens, 10 keys each", text)
        self.assertIn("decode   2 sequences x 1 token, 11 keys each", text)
        for line in (r"input_ids +\[B, S\] +\[2, 10\] +\[2, 1\]",
                     r"embed +\[B, S, H\] +\[2, 10, 4096\] +\[2, 1, 4096\]",
                     r"attn_k +\[B, S, n_kv\*d\] +\[2, 10, 1024\] +\[2, 1, 1024\]",
                     r"attn_q\.rope +\[B, n_q, S, d\] +\[2, 32, 10, 128\] +\[2, 32, 1, 128\]",
                     r"  K_full +\[B, n_kv, C, d\] +\[2, 8, 10, 128\] +\[2, 8, 11, 128\]",
                     r"  scores +\[B, n_q, S, C\] +\[2, 32, 10, 10\] +\[2, 32, 1, 11\]",
                     r"ffn_gate\.glu +\[B, S, I\] +\[2, 10, 14336\] +\[2, 1, 14336\]",
                     r"logits +\[B, V\] +\[2, 128256\] +\[2, 128256\]",
                     r"next_token +\[B, 1\] +\[2, 1\] +\[2, 1\]",
                     r"    w: blk\.0\.attn_q BF16 \[4096, 4096\]",
                     r"    linear: x W\^T \(\+ bias\)",
                     r"== layers 0 to 31 \(32 times\)"):
            self.assertRegex(text, r"(?m)^" + line)
        self.assertLessEqual(max(len(line) for line in text.splitlines()), 100)
        later = self.ok("trace", LLAMA3, "--cache", "2047").out
        self.assertRegex(later, r"(?m)^  scores +\S.*\[2, 32, 1, 2048\]$")
        typed = self.ok("trace", LLAMA3, "--type", "q4_k_m").out
        self.assertIn("w: blk.0.attn_q Q4_K [4096, 4096]", typed)
        self.assertIn("linear_group", self.ok("trace", LLAMA3, "--fused").out)

    def test_json_agrees_with_text_and_account(self):
        flow = self.ok("trace", LLAMA3, "--format", "json", "-B", "1", "--prompt-tokens", "2048", "--cache", "2047").json()
        self.assertEqual(flow["prefill"]["tokens"], 2048)
        q = self.steps(flow)["attn_q"]
        self.assertEqual(q["tensors"], [{"name": "", "symbolic": "[B, S, n_q*d]", "prefill": [1, 2048, 4096],
                                         "decode": [1, 1, 4096], "note": ""}])
        self.assertEqual((q["prefill"]["flops"], q["decode"]["flops"]), (68719476736, 33554432))
        self.assertEqual(q["weights"][0]["bytes"], 33554432)
        account = self.ok("account", LLAMA3, "-c", "2048", "--prompt", "2048", "--hardware", "h100", "--format", "json").json()
        for phase in ("prefill", "decode"):
            self.assertIn(str(flow[phase]["flops"]), json.dumps(account[phase]))
        self.assertEqual({s["symbol"]: s["decode"] for s in flow["symbols"]}["C"], 2048)
        blocks = flow["blocks"]
        self.assertEqual([len(block["layers"]) for block in blocks], [0, 32, 0])
        for phase in ("prefill", "decode"):
            self.assertEqual(sum(block[phase]["flops"] for block in blocks), flow[phase]["flops"])

    def test_layers(self):
        n = len(self.ok("trace", STORIES, "--format", "json", "--full").json()["blocks"]) - 2
        self.assertGreater(n, 1)
        self.assertRegex(self.ok("trace", STORIES, "--layers", "1").out, r"(?m)^== layer 1  ")
        self.assertIn(f"the model has layers 0 to {n - 1}, not {n}", self.fails(1, "trace", STORIES, "--layers", n))

    def test_prompt_of_ones_own(self):
        flow = self.ok("trace", STORIES, "--tokens", "0,431,435", "--format", "json").json()
        self.assertEqual((flow["batch"], flow["prefill"]["tokens"]), (1, 3))
        spoken = self.ok("trace", STORIES, "-p", "Once upon a time", "--format", "json").json()
        self.assertGreater(spoken["prefill"]["tokens"], 1)
        self.fails(1, "trace", LLAMA3, "-p", "no tokenizer beside a config")

    def test_every_reference_model_in_every_format(self):
        folders = sorted(path.parent for path in MODELS.glob("*/config.json"))
        self.assertGreater(len(folders), 30)
        for folder in folders:
            with self.subTest(model=folder.name):
                flow = self.ok("trace", folder, "--format", "json", "--invariants", "--values").json()
                self.assertEqual([i["id"] for i in flow["invariants"]], IDS)
                self.assertLessEqual({i["verdict"] for i in flow["invariants"]}, {"PASS", "n/a"})
                for block in flow["blocks"]:
                    for step in block["steps"]:
                        self.assertTrue(step["formula"])
                        if not step["op"] or step["kind"] == "kv_store":
                            continue
                        for phase in ("prefill", "decode"):
                            self.assertEqual(bool(step[phase]["values"]), step[phase]["runs"], step["name"])
        for folder in folders[::5]:
            with self.subTest(model=folder.name):
                self.assertIn("next_token", self.ok("trace", folder).out)
                page = Page(self.ok("trace", folder, "--format", "html").out)
                self.assertEqual((page.outside, page.stack), ([], []))

    def test_values(self):
        text = self.ok("trace", STORIES, "--tokens", "0,431,435", "--values").out
        self.assertRegex(text, r"prefill  embed \[3, \d+\]  min -?\d\S*  max \d\S*  mean \S+  rms \d\S*\n      row 0    ")
        rows = re.search(r"prefill  weights of head 0.*\n((?:      position.*\n)+)", text).group(1)
        weights = [[float(w) for w in row.split()[2:]] for row in rows.splitlines()]
        self.assertEqual([len(row) for row in weights], [1, 2, 3])
        for row in weights:
            self.assertAlmostEqual(sum(row), 1, delta=0.003)
        flow = self.ok("trace", STORIES, "--tokens", "0,431,435", "--values", "--format", "json").json()
        attention = next(s for s in flow["blocks"][1]["steps"] if s["kind"] == "attention")
        for query in attention["prefill"]["attention"]:
            for head in query["weights"]:
                self.assertEqual(len(head), query["position"] + 1)
                self.assertAlmostEqual(sum(head), 1, delta=1e-4)

    def test_invariants(self):
        text = self.ok("trace", STORIES, "--invariants").out
        self.assertEqual(re.findall(r"(?m)^(\S+)  (\S+)", text), [("PASS", name) for name in IDS])
        learned = self.ok("trace", MODELS / "gpt2", "--invariants").out
        self.assertRegex(learned, r"(?m)^n/a   rope-on-qk .*no rotation: .*learned")
        self.assertRegex(self.ok("trace", MODELS / "bloom", "--invariants").out, r"(?m)^n/a   rope-on-qk .*ALiBi")
        self.ok("trace", DEEPSEEK, "--invariants", "--backend", "reference", "--kv", "f32")

    def test_runs(self):
        text = self.ok("trace", STORIES, "--tokens", "0,431,435", "--run", "-B", "2").out
        self.assertIn("# prefill: 6 tokens", text)
        self.assertIn("# decode: 2 tokens at position 3", text)
        page = self.ok("trace", STORIES, "--tokens", "0,431,435", "--run", "--format", "html").out
        self.assertRegex(page, r"<td class=\"num p\"[^>]*>[\d.]+ \w+s</td>")

    def test_wrong_command_lines(self):
        self.assertIn("a model, as in 'lucid trace MODEL'", self.fails(2, "trace"))
        self.fails(2, "trace", STORIES, "--format", "pdf")
        self.fails(2, "trace", STORIES, "-p", "a", "--tokens", "1")
        self.fails(2, "trace", STORIES, "-p", "a", "--prompt-tokens", "3")
        self.fails(2, "trace", STORIES, "--values", "--cache", "20")
        self.fails(2, "trace", STORIES, "--run", "--type", "q8_0")
        self.fails(2, "trace", STORIES, "--json", "--values")
        self.fails(2, "trace", STORIES, "--prompt-tokens", "0")
        self.assertIn("--layers '1-' is neither", self.fails(1, "trace", STORIES, "--layers", "1-"))
        self.assertIn("does_not_exist", self.fails(1, "trace", "does_not_exist"))
        self.fails(1, "trace", LLAMA3, "--invariants")
        self.assertIn("375750000 attention weights", self.fails(1, "trace", STORIES, "--values", "-B", "100", "--prompt-tokens", "500"))

    def test_page(self):
        text = self.ok("trace", DEEPSEEK, "--format", "html", "--invariants", "--values").out
        page = Page(text)
        self.assertEqual((page.outside, page.stack), ([], []))
        # Before the layers, the first kind of layer and what comes behind them are open.
        self.assertEqual(page.open, [True, True, False, True])
        self.assertGreater(page.rows, 60)
        self.assertNotRegex(text, r"https?:|url\(|@import")

    def test_page_in_a_browser(self):
        browser = shutil.which("chromium")
        if not browser:
            self.skipTest("chromium is not installed")
        page = self.ok("trace", DEEPSEEK, "--format", "html", "--invariants", "--values").out
        probe = """<script>
          window.onerror = (message) => { document.title = 'error: ' + message; };
          addEventListener('load', () => {
            const open = () => document.querySelectorAll('details.block[open]').length;
            const counts = [open()];
            document.getElementById('fold').click();
            counts.push(open());
            document.getElementById('open').click();
            counts.push(open());
            document.title = JSON.stringify({ counts, wide: document.documentElement.scrollWidth > innerWidth });
          });
        </script>"""
        with tempfile.TemporaryDirectory(prefix="lucid-e2e-") as folder:
            path = pathlib.Path(folder) / "trace.html"
            path.write_text(page.replace("</head>", probe + "</head>"), encoding="utf-8")
            done = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile",
                                   "--virtual-time-budget=3000", "--enable-logging=stderr", "--dump-dom", path.as_uri()],
                                  capture_output=True, text=True, timeout=e2e.TIMEOUT_S, check=False)
        self.assertNotIn("CONSOLE", done.stderr)
        title = re.search(r"<title>(.*?)</title>", done.stdout).group(1)
        seen = json.loads(title.replace("&quot;", '"'))
        self.assertEqual(seen["counts"], [3, 0, 4])
        self.assertFalse(seen["wide"])


if __name__ == "__main__":
    e2e.main()
