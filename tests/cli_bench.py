#!/usr/bin/env python3
"""lucid bench, end to end: the shape of its three formats, its lists, its complaints."""
import csv
import io
import json
import re

import e2e
from e2e import STORIES, Case

FIELDS = {"build_commit", "build_version", "cpu_info", "isa", "model_filename", "model_type", "model_size", "model_n_params",
          "n_batch", "n_threads", "n_threads_batch", "type_k", "type_v", "kv_block_size", "n_prompt", "n_gen", "n_depth", "n_seqs", "test_time",
          "avg_ns", "stddev_ns", "avg_ts", "stddev_ts", "median_ts", "samples_ns", "samples_ts", "numerics",
          "limit_ts", "limit_fraction", "limit_by", "limit_weight_bytes", "limit_kv_bytes", "limit_macs",
          "read_bytes_per_second", "peak_macs_per_second", "peak_unit", "limit_assumes", "limit_disturbance"}
BENCH = ["bench", "-m", STORIES, "-t", 1, "-r", 3]


class Bench(Case):
    def test_json(self):
        rows = self.ok(*BENCH, "-p", 48, "-n", 8, "-d", "0,40", "--batch", "1,3", "--kv", "f16,int8", "-o", "json").json()
        self.assertEqual([(r["type_k"], r["n_depth"], r["n_seqs"], r["n_prompt"], r["n_gen"]) for r in rows],
                         [(kv, d, b, p, n) for kv in ("f16", "int8") for d in (0, 40) for b in (1, 3)
                          for p, n in ((48, 0), (0, 8))])
        for row in rows:
            self.assertEqual(set(row), FIELDS)
            self.assertEqual((row["n_threads"], row["n_batch"], row["type_v"]), (1, 512, row["type_k"]))
            self.assertRegex(row["test_time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
            self.assertEqual(len(row["samples_ns"]), 3)
            tokens = (row["n_prompt"] + row["n_gen"]) * row["n_seqs"]
            for ns, rate in zip(row["samples_ns"], row["samples_ts"]):
                self.assertAlmostEqual(rate, tokens / ns * 1e9, delta=rate * 1e-3)
            self.assertAlmostEqual(row["avg_ts"], sum(row["samples_ts"]) / 3, delta=row["avg_ts"] * 1e-6)
            self.assertEqual(row["median_ts"], sorted(row["samples_ts"])[1])
            self.assertEqual(row["model_n_params"], 541728)
            self.check_limit(row)

    def check_limit(self, row):
        """The limit follows from its inputs: exactly for a prompt, closely for a generation, which has the mean of its steps."""
        self.assertAlmostEqual(row["limit_fraction"], row["median_ts"] / row["limit_ts"], delta=row["limit_fraction"] * 1e-6)
        memory = (row["limit_weight_bytes"] + row["limit_kv_bytes"]) / row["read_bytes_per_second"]
        arithmetic = row["limit_macs"] / row["peak_macs_per_second"]
        self.assertEqual(row["limit_by"], "memory" if memory > arithmetic else "arithmetic")
        tokens = row["n_seqs"] * (row["n_prompt"] or 1)
        self.assertAlmostEqual(row["limit_ts"], tokens / max(memory, arithmetic), delta=row["limit_ts"] * 0.02)
        self.assertGreater(row["limit_macs"], tokens * 300_000)  # the model has 541,728 parameters, some in the embedding

    def test_sides_of_the_cache_differ(self):
        rows = self.ok(*BENCH, "-p", 8, "-n", 0, "-ctk", "int8,f32", "-ctv", "bf16", "--isa", "generic", "-o", "json").json()
        self.assertEqual([(r["type_k"], r["type_v"], r["isa"]) for r in rows], [("int8", "bf16", "generic"), ("f32", "bf16", "generic")])

    def test_the_limit_is_of_what_the_kernels_multiply(self):
        quantised = e2e.SHARED / "fixtures" / "gguf" / "models" / "stories_llama.q4_0.gguf"
        for model, flags, numerics, assumes in ((quantised, [], "default", "activations of 8 bits"),
                                                (quantised, ["--numerics", "fast"], "fast", "activations of 8 bits"),
                                                (quantised, ["--numerics", "float"], "float", "activations of 32 bits"),
                                                (quantised, ["--backend", "reference"], "reference", "activations of 32 bits"),
                                                (STORIES, ["--numerics", "float"], "float", "activations of 32 bits")):
            with self.subTest(flags):
                [row] = self.ok("bench", "-m", model, "-t", 1, "-r", 1, "-p", 0, "-n", 4, "-o", "json", *flags).json()
                self.assertEqual((row["numerics"], row["limit_assumes"]), (numerics, assumes))
                if assumes.endswith(" 32 bits"):
                    self.assertTrue(row["peak_unit"].startswith("float32 "), row["peak_unit"])

    def test_threads_of_prompts_and_pages(self):
        ran = self.ok(*BENCH, "-p", 8, "-n", 4, "--threads-batch", 2, "--huge-pages", "off", "--numa", "distribute", "-o", "json")
        self.assertEqual({(r["n_threads"], r["n_threads_batch"]) for r in ran.json()}, {(1, 2)})
        self.assertIn("measuring how fast 2 threads read", ran.err)  # for the prompt's limit
        self.assertIn("| 1/2 |", self.ok(*BENCH, "-p", 8, "-n", 0, "-tb", 2).out)

    def test_csv(self):
        out = self.ok(*BENCH, "-p", "16,32", "-n", 0, "-b", "8,64", "-o", "csv").out
        rows = list(csv.DictReader(io.StringIO(out)))
        self.assertEqual([(r["n_batch"], r["n_prompt"]) for r in rows], [("8", "16"), ("8", "32"), ("64", "16"), ("64", "32")])
        self.assertEqual(set(rows[0]), FIELDS - {"samples_ns", "samples_ts"})

    def test_table(self):
        lines = self.ok(*BENCH, "-p", 16, "-n", 4, "-d", 8).out.splitlines()
        self.assertEqual(len(lines), 4)
        self.assertEqual(len({line.count("|") for line in lines}), 1)
        self.assertRegex(lines[2], r"\| llama .*\| pp16 @ d8 \| [\d.]+ ± [\d.]+ \| [\d.]+ \| [\d.]+ \| [\d.]+ % \| .* at [\d.]+ G\S+/s")
        self.assertIn("| tg4 @ d8 |", lines[3])

    def test_verbose_names_the_kernels(self):
        ran = self.ok(*BENCH, "-p", 8, "-n", 0, "--isa", "generic", "-v", "-o", "json")
        self.assertEqual(len(ran.json()), 1)
        self.assertRegex(ran.err, r"\| blk\.\*\.attn_q \| \w+ \| \d+ x \d+ \| \d+ \| \S+\.generic \|")
        self.assertRegex(ran.err, r"\| attention \| 5 \| attention\.generic \|")
        self.assertIn("there is no ", ran.err)  # figures stored by lucid limits
        self.assertRegex(ran.err, r"measuring how fast 1 thread reads [\d.]+ MB")

    def test_every_ceiling_names_what_runs(self):
        """Below a ceiling, the row and every kernel are of it or of a set under it, and no table under it is passed over for an op that it has."""
        rows = json.loads(self.ok("limits", "--dispatch", "-o", "json").out)
        used = [r for r in rows if r["used"]]
        for i, ceiling in enumerate(used[:-1]):
            ran = self.ok(*BENCH, "-r", 1, "-p", 8, "-n", 2, "-v", "-o", "json", env={"LUCID_ISA": ceiling["isa"]})
            self.assertEqual({r["isa"] for r in ran.json()}, {ceiling["isa"]})
            bits = 16 if any(re.search(r"dense_linear\.avx512bf16", line) for line in ran.err.splitlines() if "wants" not in line) else 32
            self.assertEqual({r["limit_assumes"] for r in ran.json()}, {f"activations of {bits} bits"})  # of a model in BF16
            cells = [[c.strip() for c in line.split("|")[1:-1]] for line in ran.err.splitlines() if line.startswith("| ")]
            kernels = {row[2 if len(row) == 4 else 4]: row[-1] for row in cells} # name: who refused
            kernels = {k: refused for k, refused in kernels.items() if "." in k}
            self.assertGreater(len(kernels), 5)
            for kernel, refused in kernels.items():
                op, isa = kernel.split(".")[0], kernel.split(".")[-1]
                able = [r["isa"] for r in used[i:] if re.sub("^(packed|dense|tile)_", "", op) in r["ops"].split(", ")]
                self.assertIn(isa, able, kernel)
                for better in able[:able.index(isa)]:
                    self.assertIn(better, refused, kernel)  # it says why it did not take it

    def test_complaints(self):
        for flags in (["-o", "xml"], ["--kv", "f16,f8"], ["-p", "many"], ["--batch", 0], ["-r", 0], ["-t", -1], ["-p", "1,,2"], ["-p", "1,"],
                      ["-p", ""], ["-ctk", "f8"]):
            with self.subTest(flags):
                self.fails(2, *BENCH, *flags)
        self.assertIn("nothing to measure", self.fails(1, *BENCH, "-p", 0, "-n", 0))
        self.assertIn("no-such-model", self.fails(1, "bench", "-m", "no-such-model"))
        self.assertRegex(self.fails(1, *BENCH, "-p", 32, "-n", 0, "-d", 200, "--batch", 8, "--kv-memory", "256K"), r"\d.*\d")


if __name__ == "__main__":
    e2e.main()
