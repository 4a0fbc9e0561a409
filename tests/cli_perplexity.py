#!/usr/bin/env python3
"""lucid perplexity, end to end: llama-perplexity's figures on published models, bases, choices, complaints."""
import json
import pathlib
import tempfile

import e2e
from e2e import SHARED, STORIES, Case

WIKI = SHARED / "data" / "wikitext-2" / "wiki.test.raw"
# llama-perplexity -c 512 --chunks 16 on files with float32 weights and cache.
FLOAT_PPL = {"smollm2": 28.4854, "gemma3-270m": 19.7198}
MODELS = {name: e2e.stored_model(name) for name in FLOAT_PPL} if WIKI.exists() else {}


class Published(Case):
    def setUp(self):
        if not WIKI.exists():
            self.skipTest(f"there is no {WIKI}")

    def test_figures_and_distance_of_the_default_numerics_and_of_fast(self):
        for name, wanted in FLOAT_PPL.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                base = pathlib.Path(folder) / "base.lkl"
                chunks = 16 if name == "smollm2" else 4
                args = ["perplexity", "-m", MODELS[name], "-f", WIKI, "-c", 512, "--json", "--chunks", chunks]
                exact = self.ok(*args, "--numerics", "float", "--kv", "f32", "--save-base", base).json()
                # With the default cache, float16.
                against = ["perplexity", "-m", MODELS[name], "-f", WIKI, "--kl-base", base, "--json"]
                got, fast = self.ok(*against).json(), self.ok(*against, "--numerics", "fast").json()
                for row in (got, fast):
                    print(f"{name}, {row['tokens']} tokens, --numerics {row['numerics']}: mean KL divergence {row['kld_mean']:.6f}, "
                          f"same top token {100 * row['same_top1']:.2f} %")
                if chunks == 16:
                    self.assertAlmostEqual(exact["perplexity"], wanted, delta=0.0005 * wanted)
                    self.assertAlmostEqual(exact["stderr"], 1.3690, delta=0.002)
                self.assertEqual(exact["tokens"], 255 * chunks)
                self.assertAlmostEqual(got["perplexity"], exact["perplexity"], delta=0.001 * exact["perplexity"])
                self.assertAlmostEqual(got["base_perplexity"], exact["perplexity"], delta=1e-6)
                self.assertLess(got["kld_mean"], 0.001)
                self.assertGreater(got["same_top1"], 0.97)
                self.assertLess(fast["kld_mean"], 0.016)
                self.assertGreater(fast["same_top1"], 0.9)

    def test_float_numerics_are_those_of_the_reference(self):
        with tempfile.NamedTemporaryFile(suffix=".lkl") as base:
            args = ["perplexity", "-m", MODELS["smollm2"], "-f", WIKI, "--json", "--kv", "f32"]
            exact = self.ok(*args, "-c", 512, "--chunks", 1, "--backend", "reference", "--save-base", base.name).json()
            got = self.ok(*args, "--kl-base", base.name, "--numerics", "float").json()
            self.assertEqual(exact["backend"], "reference")
            self.assertAlmostEqual(got["perplexity"], exact["perplexity"], delta=1e-4 * exact["perplexity"])
            self.assertLess(got["kld_mean"], 1e-5)  # the file keeps 16 bits of a probability


class Stories(Case):
    def setUp(self):
        self.text = STORIES.parent / "held_out.txt"

    def test_estimate_runs_along_and_json_agrees_with_the_table(self):
        args = ["perplexity", "-m", STORIES, "-f", self.text, "-c", 64]
        ran = self.ok(*args)
        got = self.ok(*args, "--json").json()
        self.assertIn(f"PPL              {got['perplexity']:.4f} +/- {got['stderr']:.4f}", ran.out)
        self.assertIn(f"[{got['windows']}]{got['perplexity']:.4f}", ran.err)
        self.assertIn("left", ran.err)
        self.assertEqual(got["tokens"], 31 * got["windows"])
        stride = self.ok(*args, "--stride", 16, "--chunks", 3, "--json").json()
        self.assertEqual(stride["tokens"], 48)

    def test_multiple_choice(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            for label in (0, 1):
                endings = ["xyz qq of.", "xyz qq of."]
                endings[label] = "cat named Mia."
                file.write(json.dumps({"ctx": "Once upon a time there was a little", "endings": endings, "label": label}))
                file.write("\n\n")
            file.flush()
            got = self.ok("perplexity", "-m", STORIES, "--multiple-choice", file.name, "--json").json()
            self.assertEqual((got["tasks"], got["acc"], got["acc_norm"]), (2, 1, 1))
            self.assertEqual(self.ok("perplexity", "-m", STORIES, "--multiple-choice", file.name, "--tasks", 1,
                                     "--json").json()["tasks"], 1)

    def test_complaints(self):
        with tempfile.TemporaryDirectory() as folder:
            base, short = pathlib.Path(folder) / "base.lkl", pathlib.Path(folder) / "short.txt"
            short.write_text("A cat.")
            for wanted, args in {
                "a text (-f)": [],
                "too few for one window of 512": ["-f", short],
                "cannot open": ["-f", "/nowhere"],
                "is no file of distributions": ["--kl-base", short],
                "No such file": ["--kl-base", "/nowhere"],
                "excludes": ["--multiple-choice", short, "-f", short],
                "line 1": ["--multiple-choice", short],
            }.items():
                with self.subTest(wanted):
                    ran = e2e.run("perplexity", "-m", STORIES, *args)
                    self.assertNotEqual(ran.code, 0)
                    self.assertIn(wanted, ran.err)
            self.ok("perplexity", "-m", STORIES, "-f", self.text, "-c", 64, "--chunks", 2, "--save-base", base)
            short.write_text("A cat. " * 200)
            ran = e2e.run("perplexity", "-m", STORIES, "-f", short, "--kl-base", base)
            self.assertIn("is of another text", ran.err)
            self.assertEqual(sorted(p.name for p in pathlib.Path(folder).iterdir()), ["base.lkl", "short.txt"])


if __name__ == "__main__":
    e2e.main()
