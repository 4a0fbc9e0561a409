#!/usr/bin/env python3
"""lucid account, end to end: from headers and from a config.json alone, every format, machines by name and by file, and what it refuses."""
import csv
import io
import json
import os
import pathlib
import subprocess

import e2e
from e2e import ROOT, SHARED, STORIES, Case

CONFIGS = ROOT / "tests" / "data" / "configs"
STORED = []  # models of the user's store, where they are; set below, before the tests run


class Account(Case):
    def json(self, *args):
        return self.ok("account", *args, "--format", "json").json()

    def refuses(self, complaint, *args):
        self.assertIn(complaint, self.fails(1, *args))

    def test_a_config_alone(self):
        report = self.json(CONFIGS / "qwen2.5-7b.json", "--type", "q4_k_m", "--hardware", "h100", "-c", 2048)
        self.assertEqual(report["from"], "config")
        self.assertEqual(report["weights"]["params"], 7615616512)
        self.assertEqual(report["weights"]["bytes"], 4677120000)
        self.assertEqual(report["weights"]["bytes_per_token"], 4370558976)
        self.assertEqual(report["kv"]["sequence_bytes"], 117440512)
        self.assertEqual(report["kv"]["saving_against_mha"], 7)
        self.assertEqual(report["decode"]["bound"], "memory")
        self.assertEqual(report["prefill"]["bound"], "compute")
        self.assertAlmostEqual(report["hardware"]["ridge_flop_per_byte"], 989.4 / 3.35, places=3)
        # Ops add up to the total, and their times to the step's.
        for phase in ("prefill", "decode"):
            ops, total = report[phase]["ops"], report[phase]["total"]
            for key in ("flops", "flops_full_square", "macs", "weight_bytes", "kv_read_bytes", "kv_write_bytes", "activation_bytes"):
                self.assertEqual(sum(op[key] for op in ops), total[key], key)
        parts = report["weights"]["parts"]
        self.assertEqual(sum(p["bytes"] for p in parts.values()), 4677120000)
        self.assertEqual(sum(p["params"] for p in parts.values()), 7615616512)

    def test_models_that_no_machine_here_could_load(self):
        llama = self.json(CONFIGS / "llama-3-70b.json", "--hardware", "h200")
        self.assertEqual(llama["weights"]["params"], 70553706496)
        self.assertEqual(llama["fit"], 0)  # 141 GB of bfloat16 and 141 GB of memory
        deepseek = self.json(CONFIGS / "deepseek-v3.json", "--hardware", "h200", "--kv", "bf16")
        self.assertEqual(deepseek["kv"]["kind"], "MLA")
        self.assertEqual(deepseek["kv"]["bytes_per_token"], 61 * 1152)
        self.assertAlmostEqual(deepseek["weights"]["active_params"] / 1e9, 37.5, delta=0.1)
        self.assertIn("F8_E4M3", deepseek["weights"]["parts"]["experts"]["bytes_by_type"])

    def test_a_model_says_the_same_with_and_without_weights(self):
        args = ("--hardware", "a100", "-c", 64, "--prompt", 16, "--batch", 3)
        with_weights = self.json(STORIES, *args)
        config = self.json(STORIES / "config.json", *args)
        self.assertEqual((with_weights["from"], config["from"]), ("weights", "config"))
        self.assertEqual(with_weights["weights"], config["weights"])
        self.assertEqual(with_weights["decode"], config["decode"])
        self.assertEqual(with_weights["prefill"]["total"], config["prefill"]["total"])

    def test_bytes_are_those_of_a_run(self):
        report = self.json(STORIES, "--hardware", "a100", "-c", 128)
        bench = self.ok("bench", "-m", STORIES, "-t", 1, "-p", 0, "-n", 4, "-r", 1, "-o", "json").json()[0]
        self.assertEqual(report["weights"]["params"], bench["model_n_params"])

    def test_this_machine_is_measured(self):
        ran = self.ok("account", STORIES, "-t", 1, "-c", 64, "--format", "json")
        self.assertIn("measuring kernels for", ran.err)
        report = ran.json()
        self.assertTrue(report["hardware"]["kernels_measured"])
        self.assertGreater(report["decode"]["tokens_per_second"], 0)
        self.assertGreater(report["hardware"]["memory_bytes"], 0)

    def test_a_machine_from_a_file(self):
        file = pathlib.Path(os.environ["LUCID_HOME"]) / "card.json"
        file.write_text(json.dumps({"name": "My card", "read_gb_per_s": 100, "memory_gb": 10, "tflop_per_s": {"16 bit": 10}}), encoding="utf-8")
        report = self.json(CONFIGS / "llama-3-8b.json", "--hardware", file, "--phase", "decode", "-c", 2048)
        self.assertEqual(report["hardware"]["name"], "My card")
        self.assertNotIn("prefill", report)
        self.assertEqual(report["fit"], 0)
        for text, complaint in (("[]", "is not a JSON object"), ("{", "is not valid JSON"), ('{"name": 1}', '"name" is missing or not a text'),
                                ('{"name": "x", "read_gb_per_s": 0}', '"read_gb_per_s" is missing or not a number above 0'),
                                ('{"name": "x", "read_gb_per_s": 1}', '"tflop_per_s" is missing'),
                                ('{"name": "x", "read_gb_per_s": 1, "tflop_per_s": {"4 bit": 1}}', 'tflop_per_s has "4 bit"')):
            file.write_text(text, encoding="utf-8")
            self.refuses(complaint, "account", CONFIGS / "gpt2.json", "--hardware", file)

    def test_the_table_and_its_units(self):
        text = self.ok("account", CONFIGS / "llama-3-8b.json", "--hardware", "h100", "-c", 2048, "--prompt", 2048).out
        self.assertIn("powers of 1000", text)
        self.assertNotIn("MiB", text)
        self.assertIn("blk.*.attn_q ", text)
        self.assertRegex(text, r"blk\.\*\.ffn_gate +\[T, 14336\] +BF16 +32 +3\.76 GB")
        full = self.ok("account", CONFIGS / "llama-3-8b.json", "--hardware", "h100", "--full", "--phase", "decode").out
        self.assertIn("blk.31.ffn_down", full)
        self.assertNotIn("blk.*.", full)

    def test_csv(self):
        text = self.ok("account", CONFIGS / "gpt2.json", "--hardware", "a100", "-c", 512, "--format", "csv").out
        rows = list(csv.DictReader(io.StringIO(text)))
        report = self.json(CONFIGS / "gpt2.json", "--hardware", "a100", "-c", 512)
        self.assertEqual(len(rows), len(report["prefill"]["ops"]) + len(report["decode"]["ops"]))
        self.assertEqual(sum(int(r["flops"]) for r in rows if r["phase"] == "decode"), report["decode"]["total"]["flops"])

    def test_page(self):
        page = self.ok("account", CONFIGS / "mistral-7b.json", "--hardware", "m2-ultra", "-c", 8192, "--format", "html").out
        self.assertTrue(page.startswith("<!DOCTYPE html>"))
        self.assertEqual(page.count("<svg"), 3)
        self.assertEqual(page.count("<svg"), page.count("</svg>"))
        self.assertNotIn("http://", page)
        self.assertNotIn("https://", page)
        self.assertIn("sliding window", page)

    def check_memory(self, model, percent, least):
        """What lucid run has at its peak, with a whole context, is what account foresees: within `percent`, or `least` bytes."""
        context = 512
        self.ok("pack", model)  # or the peak would be that of packing
        foreseen = self.json(model, "-c", context, "--prompt", 32, "--hardware", "h100", "--phase", "decode")["memory"]["resident"]
        child = subprocess.Popen([e2e.LUCID, "run", "-m", str(model), "-c", str(context), "--raw", "--ignore-eos", "--temp", "0",
                                  "-p", "hello " * 31], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(child.returncode, 0)
        peak = usage.ru_maxrss * 1024
        self.assertLess(abs(peak - foreseen), max(peak * percent / 100, least), (model, peak, foreseen))

    def test_memory_of_a_process(self):
        # Of a model this small nearly all is the program: libraries, tables, what the allocator keeps.
        self.check_memory(SHARED / "fixtures" / "gguf" / "models" / "stories_llama.q4_0.gguf", 0, 6e6)
        for model in STORED:
            with self.subTest(model):
                self.check_memory(model, 2, 0)

    def test_refusals(self):
        gpt2 = CONFIGS / "gpt2.json"
        self.refuses("longer than the 1024 positions", "account", gpt2, "-c", 2048)
        self.refuses("a prompt of 600 tokens does not fit a context of 512", "account", gpt2, "-c", 512, "--prompt", 600, "--hardware", "h100")
        self.refuses("there is no hardware 'abacus': it is this, a100, h100", "account", gpt2, "--hardware", "abacus")
        self.refuses("there are no weights of type 'q9'; choose q4_k_m, q5_k_m, f32", "account", gpt2, "--type", "q9", "--hardware", "h100")
        self.refuses("kivi2 cannot store the latent cache", "account", CONFIGS / "deepseek-v3.json", "--kv", "kivi2", "--hardware", "h100")
        folder = pathlib.Path(os.environ["LUCID_HOME"])
        config = json.loads((CONFIGS / "llama-3-8b.json").read_text(encoding="utf-8"))
        for change, complaint in (({"quantization_config": {"quant_method": "gptq"}}, "weights quantised by gptq are not known; say what to count with --type"),
                                  ({"torch_dtype": "float64"}, "torch_dtype is float64"),
                                  ({"architectures": ["MambaForCausalLM"]}, "'MambaForCausalLM' is not supported"),
                                  ({"architectures": []}, "architectures does not name one")):
            path = folder / "changed.json"
            path.write_text(json.dumps({**config, **change}), encoding="utf-8")
            self.refuses(complaint, "account", path, "--hardware", "h100")
        quantised = folder / "changed.json"
        quantised.write_text(json.dumps({**config, "quantization_config": {"quant_method": "awq"}}), encoding="utf-8")
        self.assertEqual(self.json(quantised, "--type", "q8_0", "--hardware", "h100")["weights"]["params"], 8030261248)


if __name__ == "__main__":
    listed = e2e.run("models", "--json")
    if listed.code == 0:
        STORED = [m["path"] for m in listed.json() if m["name"] in ("smollm2", "gemma3-270m")]
    e2e.main()
