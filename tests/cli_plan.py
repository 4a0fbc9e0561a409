#!/usr/bin/env python3
"""`lucid plan`: the graph of fixtures in every format, traces, and what is said of wrong command lines.

usage: cli_plan.py [LUCID [SHARED]]

The page is opened in a browser where there is one (chromium), the drawing made where Graphviz is (dot).
"""
import html.parser
import json
import re
import shutil
import subprocess
import tempfile
import unittest
import pathlib

import e2e
from e2e import SHARED, STORIES

MODELS = SHARED / "fixtures" / "models"
DEEPSEEK = MODELS / "deepseek_v2"


class Page(html.parser.HTMLParser):
    """What a page is made of: ids, links within it, and whatever it would fetch."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.outside, self.rows = [], [], [], 0
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if "id" in attrs:
            self.ids.append(attrs["id"])
        if attrs.get("class") == "row op":
            self.rows += 1
            self.links += attrs["data-in"].split() + attrs["data-out"].split()
        if attrs.get("href", "").startswith("#"):
            self.links.append(attrs["href"][1:])
        self.outside += [attrs[name] for name in ("src", "href") if not attrs.get(name, "#").startswith("#")]


class Plan(e2e.Case):
    def test_text(self):
        text = self.ok("plan", STORIES).out
        self.assertIn("prefill: 1 sequence of 10 tokens (S = 1, T = 10)", text)
        self.assertRegex(text, r"\n  attn_q +linear +\[T, \d+\] = \[10, \d+\] +x=attn_norm, w=attn_q \[\d+, \d+\] \w+\n")
        self.assertEqual(self.ok("plan", "-m", STORIES).out, text)
        decode = self.ok("plan", STORIES, "--phase", "decode", "-B", "3", "-p", "20").out
        self.assertIn("decode: 3 sequences of 1 token (S = 3, T = 3), 3 rows of logits (R = 3), room for 21 keys (C = 21)", decode)

    def test_every_model_in_every_format(self):
        folders = [folder for folder in sorted(MODELS.iterdir()) if (folder / "config.json").exists()]
        self.assertGreater(len(folders), 30)
        for folder in folders:
            for phase in ("prefill", "decode"):
                with self.subTest(model=folder.name, phase=phase):
                    plan = self.ok("plan", folder, "--phase", phase, "--format", "json").json()
                    self.assertEqual(plan["ops"][-1]["name"], "logits")
                    layers = sorted(layer for block in plan["blocks"] for layer in block["layers"])
                    self.assertEqual(layers, list(range(plan["n_layers"])))
        for form in ("text", "dot", "mermaid", "html"):
            for folder in folders[::7]:
                with self.subTest(model=folder.name, format=form):
                    self.assertIn("logits", self.ok("plan", folder, "--format", form, "--fused").out)

    def test_json_agrees_with_the_trace(self):
        ids = "0,431,435,17"
        traced = self.ok("trace", "-m", STORIES, "--tokens", ids, "--backend", "reference", "--json").json()
        for phase, flags in ((0, ["-p", 4]), (1, ["-p", 4, "--phase", "decode"])):
            plan = self.ok("plan", STORIES, "--full", "--format", "json", *flags).json()
            ran = traced["phases"][phase]["ops"]
            self.assertEqual([op["name"] for op in plan["ops"]], [op["name"] for op in ran])
            for op, was in zip(plan["ops"], ran):
                self.assertEqual(op["attributes"], was["attributes"])
                for mine, theirs in zip(op["inputs"] + op["outputs"], was["inputs"] + was["outputs"]):
                    self.assertEqual(mine["name"], theirs["name"])
                    self.assertEqual(mine["shape"], theirs["shape"], op["name"])
                    if mine["dtype"]:
                        self.assertEqual(mine["dtype"], theirs["dtype"])

    def test_forms_of_the_phases(self):
        prefill = self.ok("plan", DEEPSEEK).out
        decode = self.ok("plan", DEEPSEEK, "--phase", "decode").out
        self.assertIn("mla_attention", prefill)
        self.assertNotIn("head_linear", prefill)
        self.assertIn("head_linear", decode)
        self.assertNotIn("mla_attention", decode)
        # The trace says of the other phase's form that it rested.
        traced = self.ok("trace", "-m", DEEPSEEK, "--tokens", "5,6,7", "--json").json()
        for phase, kind in ((0, "head_linear"), (1, "mla_attention")):
            ops = traced["phases"][phase]["ops"]
            self.assertTrue(all(op["idle"] for op in ops if op["op"] == kind))
            self.assertIn("attention", {op["op"].replace("mla_", "") for op in ops if not op["idle"]})
        self.assertRegex(self.ok("trace", "-m", DEEPSEEK, "--tokens", "5,6,7", "--run").out,
                         r"mla_attention  idle in this step \(.*expanded form: given tokens only\)")

    def test_layers(self):
        plan = self.ok("plan", STORIES, "--format", "json").json()
        n = plan["n_layers"]
        full = self.ok("plan", STORIES, "--format", "json", "--full").json()
        self.assertEqual(len(full["ops"]), plan["n_ops"])
        self.assertEqual(len(full["blocks"]), n + 2)
        one = self.ok("plan", STORIES, "--format", "json", "--layers", "1").json()
        self.assertIn([1], [block["layers"] for block in one["blocks"]])
        self.assertIn(f"the model has layers 0 to {n - 1}, not {n}", self.fails(1, "plan", STORIES, "--layers", n))
        self.assertIn("--layers '1-' is neither", self.fails(1, "plan", STORIES, "--layers", "1-"))
        self.assertIn("--layers '2-1' is neither", self.fails(1, "plan", STORIES, "--layers", "2-1"))

    def test_trace_back(self):
        text = self.ok("plan", STORIES, "--trace-back", "logits").out
        self.assertRegex(text, r"trace  logits depends on \d+ ops, which read tokens, ")
        self.assertRegex(text, r"\n +0  logits  linear")
        depths = [int(depth) for depth in re.findall(r"\n +(\d+)  \S+  \w+  \[", text)]
        self.assertEqual(depths, sorted(depths))
        self.assertIn("cache: what earlier steps stored", text)
        traced = self.ok("plan", STORIES, "--trace-back", "blk.0.attn", "--format", "json").json()
        self.assertEqual(traced["trace_back"], "blk.0.attn")
        self.assertEqual(traced["ops"][-1]["depth"], 0)
        self.assertNotIn("logits", [op["name"] for op in traced["ops"]])
        self.assertRegex(self.fails(1, "plan", STORIES, "--trace-back", "blk.0.atn"),
                         "no op is called 'blk.0.atn'; these are like it: blk.0.attn, ")
        self.assertIn("the name of an op", self.fails(2, "plan", STORIES, "--trace-back", ""))
        self.assertIn("only in decode", self.fails(1, "plan", DEEPSEEK, "--trace-back", "blk.0.attn"))

    def test_config_alone(self):
        config = json.loads((DEEPSEEK / "config.json").read_text(encoding="utf-8"))
        whole = self.ok("plan", DEEPSEEK, "--format", "json").json()

        def matrices(plan):
            return [o["dtype"] for op in plan["ops"] for o in op["inputs"] if o["kind"] == "weight" and len(o["shape"]) > 1]

        with tempfile.TemporaryDirectory(prefix="lucid-e2e-") as folder:
            path = pathlib.Path(folder) / "config.json"
            for key, dtype in (("bfloat16", "BF16"), ("float16", "F16"), (None, "F32")):
                path.write_text(json.dumps({**config, "torch_dtype": key, "dtype": key}), encoding="utf-8")
                for model in (path, folder):
                    alone = self.ok("plan", model, "--format", "json").json()
                    self.assertEqual([op["name"] for op in alone["ops"]], [op["name"] for op in whole["ops"]])
                    self.assertEqual(set(matrices(alone)), {dtype})
            self.ok("plan", path, "--fused", "--format", "html")
            typed = self.ok("plan", path, "--type", "q8_0", "--format", "json").json()
            self.assertIn("Q8_0", matrices(typed))
            self.assertIn("there are no weights of type 'q9'", self.fails(1, "plan", path, "--type", "q9"))
            path.write_text(json.dumps({**config, "architectures": ["MambaForCausalLM"]}), encoding="utf-8")
            self.assertIn("'MambaForCausalLM' is not supported", self.fails(1, "plan", path))
            path.write_text("[]", encoding="utf-8")
            self.assertIn("config.json: it is not a JSON object", self.fails(1, "plan", folder))

    def test_wrong_command_lines(self):
        self.assertIn("a model, as in 'lucid plan MODEL'", self.fails(2, "plan"))
        self.fails(2, "plan", STORIES, "--phase", "both")
        self.fails(2, "plan", STORIES, "--format", "pdf")
        self.fails(2, "plan", STORIES, "-p", "0")
        self.assertIn("a context of 5 does not hold the 10 tokens", self.fails(1, "plan", STORIES, "-c", "5"))
        self.assertIn("does_not_exist", self.fails(1, "plan", "does_not_exist"))

    def test_dot(self):
        dot = shutil.which("dot")
        if not dot:
            self.skipTest("Graphviz is not installed")
        for model, flags in ((STORIES, []), (DEEPSEEK, ["--phase", "decode", "--full"])):
            text = self.ok("plan", model, "--format", "dot", *flags).raw
            drawn = subprocess.run([dot, "-Tsvg"], input=text, capture_output=True, check=False)
            self.assertEqual((drawn.returncode, drawn.stderr), (0, b""))
            self.assertIn(b"logits", drawn.stdout)

    def test_page(self):
        for flags in ([], ["--phase", "decode", "--fused"], ["--trace-back", "logits"]):
            text = self.ok("plan", DEEPSEEK, "--format", "html", *flags).out
            page = Page(text)
            self.assertEqual(page.outside, [])
            self.assertEqual(len(page.ids), len(set(page.ids)))
            self.assertGreater(page.rows, 30)
            self.assertEqual(set(page.links) - set(page.ids), set())
            self.assertNotRegex(text, r"https?:|url\(|@import")

    def test_page_in_a_browser(self):
        browser = shutil.which("chromium")
        if not browser:
            self.skipTest("chromium is not installed")
        page = self.ok("plan", DEEPSEEK, "--format", "html").out
        # What a reader would do: point, click, search; the outcome goes into the title.
        probe = """<script>
          window.onerror = (message) => { document.title = 'error: ' + message; };
          addEventListener('load', () => {
            const row = document.querySelector('.row.op[data-name="blk.0.attn_output"]');
            row.click();
            const panel = document.getElementById('panel');
            const search = document.getElementById('search');
            search.value = 'attn_norm rms';
            search.dispatchEvent(new Event('input'));
            document.title = JSON.stringify({
              panel: !panel.hidden && panel.querySelector('h2').textContent,
              from: document.querySelectorAll('.row.from').length,
              to: document.querySelectorAll('.row.to').length,
              found: document.querySelectorAll('.row.found').length,
              wide: document.documentElement.scrollWidth > innerWidth,
            });
          });
        </script>"""
        with tempfile.TemporaryDirectory(prefix="lucid-e2e-") as folder:
            path = pathlib.Path(folder) / "plan.html"
            path.write_text(page.replace("</head>", probe + "</head>"), encoding="utf-8")
            done = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile",
                                   "--virtual-time-budget=3000", "--enable-logging=stderr", "--dump-dom", path.as_uri()],
                                  capture_output=True, text=True, timeout=e2e.TIMEOUT_S, check=False)
        self.assertNotIn("CONSOLE", done.stderr)
        title = re.search(r"<title>(.*?)</title>", done.stdout).group(1)
        seen = json.loads(title.replace("&quot;", '"'))
        self.assertEqual(seen["panel"], "blk.0.attn_output")
        self.assertGreaterEqual(seen["from"], 1)
        self.assertGreaterEqual(seen["to"], 1)
        self.assertGreaterEqual(seen["found"], 1)
        self.assertFalse(seen["wide"])


if __name__ == "__main__":
    e2e.main()
