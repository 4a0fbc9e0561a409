#!/usr/bin/env python3
"""lucid profile, end to end: its sums, its formats, the trace events, and what it refuses; SmolLM2 where its file is there."""
import json
import os
import pathlib
import re
import unittest

import e2e
from e2e import SHARED, STORIES, Case

QUANTISED = SHARED / "fixtures" / "gguf" / "models" / "stories_llama.q4_0.gguf"
CAUSES = ["dequantisation", "arithmetic", "memory", "sync", "scheduling", "other ops", "unknown"]
SMOLLM2 = None  # set below, where it is in the store


class Profile(Case):
    def json(self, *args):
        return self.ok("profile", *args, "--format", "json").json()

    def check_sums(self, report):
        for phase in report["phases"]:
            ops = phase["ops"]
            self.assertAlmostEqual(sum(op["measured_seconds"] for op in ops), phase["ops_seconds"], delta=phase["seconds"] * 1e-6)
            parts = ("ops_seconds", "threads_seconds", "before_seconds", "after_seconds")
            self.assertAlmostEqual(sum(phase[part] for part in parts), phase["seconds"], delta=phase["seconds"] * 1e-3)
            self.assertAlmostEqual(sum(op["predicted_seconds"] for op in ops), phase["predicted_seconds"], delta=1e-9)
            self.assertAlmostEqual(phase["tokens"] / phase["mean_seconds"], phase["tokens_per_second"], delta=phase["tokens_per_second"] * 1e-6)
            self.assertEqual(list(phase["residual_causes"]), CAUSES)
            self.assertAlmostEqual(sum(phase["residual_causes"].values()), phase["mean_seconds"] - phase["predicted_seconds"],
                                   delta=phase["mean_seconds"] * 1e-6)
            for op in ops:
                self.assertLessEqual(op["waiting_seconds"], op["measured_seconds"])
                self.assertAlmostEqual(op["residual_seconds"], op["measured_seconds"] - op["predicted_seconds"], delta=1e-12)
                self.assertAlmostEqual(sum(op["causes"].values()), op["residual_seconds"], delta=1e-9)
                self.assertIn(op["cause"], CAUSES)
            for total in ("flops", "predicted_seconds", "measured_seconds"):
                self.assertAlmostEqual(sum(kind[total] for kind in phase["kinds"]), sum(op[total] for op in ops),
                                       delta=1e-9 * max(1, phase["kinds"][0][total]))
            if phase["phase"] == "decode":
                bars = phase["waterfall"]
                self.assertTrue(bars[0]["sum"] and bars[-1]["sum"])
                self.assertAlmostEqual(sum(bar["seconds"] for bar in bars[:-1]), bars[-1]["seconds"], delta=bars[-1]["seconds"] * 1e-6)
                self.assertEqual(bars[-1]["seconds"], phase["mean_seconds"])

    def test_json(self):
        report = self.json("-m", QUANTISED, "-p", 40, "-n", 9, "-t", 2, "-r", 2)
        self.assertEqual([(p["phase"], p["tokens"], p["steps"], p["passes"]) for p in report["phases"]],
                         [("prefill", 40, 1, 2), ("decode", 1, 1, 5)])
        self.assertEqual((report["threads"], report["numerics"], report["type_k"]), (2, "default", "f16"))
        self.check_sums(report)

    def test_costs_are_those_of_account(self):
        """A prompt by itself costs what lucid account counts for it: the same FLOPs, though ops are fused here."""
        [prefill] = self.json("-m", QUANTISED, "-p", 33, "-n", 0, "-r", 1, "-t", 1)["phases"]
        account = self.ok("account", QUANTISED, "--prompt", 33, "-c", 64, "--hardware", "h100", "--phase", "prefill",
                          "--format", "json").json()["prefill"]["total"]
        self.assertEqual(sum(op["flops"] for op in prefill["ops"]), account["flops"])
        self.assertEqual(sum(op["weight_bytes"] for op in prefill["ops"]), account["weight_bytes"])

    def test_depth_and_batch_and_kv(self):
        report = self.json("-m", STORIES, "-p", 16, "-n", 4, "-d", 40, "--batch", 3, "--kv", "int8", "-t", 1, "-r", 1, "--numerics", "float")
        self.check_sums(report)
        prefill, decode = report["phases"]
        self.assertEqual((prefill["tokens"], decode["tokens"]), (48, 3))
        self.assertEqual((report["type_v"], report["numerics"]), ("int8", "float"))
        # Every sequence's queries meet the 40 tokens before them.
        plain = self.json("-m", STORIES, "-p", 16, "-n", 0, "--batch", 3, "--kv", "int8", "-t", 1, "-r", 1, "--numerics", "float")
        def keys(phase):
            return sum(op["kv_read_bytes"] for op in phase["ops"])
        self.assertGreater(keys(prefill), 3 * keys(plain["phases"][0]))

    def test_text(self):
        text = self.ok("profile", "-m", QUANTISED, "-p", 8, "-n", 20, "-t", 1, "-r", 1).out
        for words in ("prefill: 8 tokens in 1 step", "decode: 1 token a step, 10 steps timed", "blk.*.ffn_down", "kind of op", "waiting at barriers",
                      "why decode misses the bandwidth", "limit:", "dequantisation", "disturbed steps", "layer", "outside", "CPUs",
                      "steps that are timed take"):
            self.assertIn(words, text)
        full = self.ok("profile", "-m", QUANTISED, "-p", 0, "-n", 2, "-t", 1, "--full").out
        self.assertIn("blk.1.ffn_down", full)
        self.assertNotIn("blk.*.", full)
        self.assertNotIn("prefill", full)

    def test_page(self):
        page = self.ok("profile", "-m", QUANTISED, "-p", 8, "-n", 4, "-t", 1, "-r", 1, "--format", "html").out
        self.assertTrue(page.startswith("<!DOCTYPE html>"))
        self.assertEqual((page.count("<svg"), page.count("</svg>")), (2, 2))
        self.assertIn('aria-label="roofline"', page)
        self.assertIn("tok/s", page)
        self.assertNotRegex(page, r"https?://")

    def test_trace_events(self):
        """Perfetto reads complete events with times in microseconds; slices of a track contain each other or lie apart."""
        file = pathlib.Path(os.environ["LUCID_HOME"]) / "steps.json"
        report = self.json("-m", QUANTISED, "-p", 8, "-n", 6, "-t", 2, "-r", 1, "--trace", file)
        trace = json.loads(file.read_text(encoding="utf-8"))
        self.assertEqual(trace["displayTimeUnit"], "ns")
        tracks, names = {}, {}
        for event in trace["traceEvents"]:
            self.assertIn(event["ph"], ("X", "M"))
            self.assertEqual(event["pid"], 1)
            self.assertIsInstance(event["tid"], int)
            self.assertIsInstance(event["name"], str)
            if event["ph"] == "M":
                self.assertIn(event["name"], ("thread_name", "thread_sort_index"))
                names[event["tid"]] = event["args"].get("name", names.get(event["tid"]))
                continue
            self.assertGreaterEqual(event["ts"], 0)
            self.assertGreaterEqual(event["dur"], 0)
            tracks.setdefault(event["tid"], []).append(event)
        self.assertEqual(sorted(names.values()), ["steps", "thread 0", "thread 1"])
        for events in tracks.values():
            open_until = []
            for event in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
                while open_until and event["ts"] >= open_until[-1] - 0.002:
                    open_until.pop()
                if open_until:  # times have three digits, and clocks of two cores differ a little
                    self.assertLessEqual(event["ts"] + event["dur"], open_until[-1] + 1)
                open_until.append(event["ts"] + event["dur"])
        steps = [e for e in tracks[1] if e["cat"] == "step"]
        self.assertEqual([s["name"] for s in steps], ["prefill of 8 tokens"] + ["decode of 1 token"] * 3)
        ops = [e for e in tracks[2] if e["cat"] not in ("sync",)]
        self.assertEqual(len(ops), 4 * len(report["phases"][0]["ops"]))
        product = next(e for e in ops if "ffn_down" in e["name"])
        self.assertEqual(set(product["args"]), {"kind", "kernel", "weights", "shape", "weight_bytes", "kv_bytes", "flops"})
        self.assertEqual(product["args"]["shape"][:3], "[8,")
        self.assertGreater(product["args"]["flops"], 0)

    def test_kernels_are_measured_once(self):
        """What was measured of kernels is stored beside the machine's figures, for this build."""
        self.ok("limits", "--large", "8M", "-o", "json")
        path = pathlib.Path(os.environ["LUCID_HOME"]) / "machine.json"
        machine = json.loads(path.read_text(encoding="utf-8"))
        self.assertEqual(machine["kernels"], [])
        first = self.ok("account", QUANTISED, "-t", 1, "-c", 64, "--format", "json")
        self.assertIn("measuring kernels for Q4_0", first.err)
        stored = {k["weights"]: k for k in json.loads(path.read_text(encoding="utf-8"))["kernels"]}
        if not stored:
            self.skipTest("other processes had the CPUs while kernels were measured: not stored")
        again = self.ok("account", QUANTISED, "-t", 1, "-c", 64, "--format", "json")
        self.assertNotIn("measuring kernels for Q4_0", again.err)
        # Figures of other builds are measured again.
        machine["kernels"] = [{**k, "build": "another"} for k in stored.values()]
        path.write_text(json.dumps(machine), encoding="utf-8")
        self.assertIn("measuring kernels for Q4_0", self.ok("account", QUANTISED, "-t", 1, "-c", 64).err)

    def test_refusals(self):
        self.assertIn("there is nothing to measure: both -p and -n are 0", self.fails(1, "profile", "-m", STORIES, "-p", 0, "-n", 0))
        self.assertIn("no model", self.fails(1, "profile", "-m", "nonsense"))
        self.assertIn("--format", self.fails(2, "profile", "-m", STORIES, "--format", "csv"))
        self.assertIn("there is no folder '/nowhere' for the trace",
                      self.fails(1, "profile", "-m", STORIES, "-p", 0, "-n", 2, "--trace", "/nowhere/x.json"))


class SmolLm2(Case):
    def setUp(self):
        if SMOLLM2 is None:
            self.skipTest("SmolLM2 is not in the store")

    def test_ops_are_the_step(self):
        report = self.ok("profile", "-m", SMOLLM2, "-p", 64, "-n", 64, "-r", 1, "--format", "json").json()
        for phase in report["phases"]:
            # Of a quiet machine 98 % and more; a thread that has to wait for a CPU comes late to the step.
            self.assertGreater(phase["ops_seconds"], 0.5 * phase["seconds"], phase["phase"])
            layers = {op["layer"] for op in phase["ops"]}
            self.assertEqual(layers, set(range(-1, 30)))
        text = self.ok("profile", "-m", SMOLLM2, "-p", 0, "-n", 8).out
        self.assertTrue(re.search(r"packed_glu_linear|glu_linear", text))


if __name__ == "__main__":
    listed = e2e.run("models", "--json")
    SMOLLM2 = next((m["path"] for m in listed.json() if m["name"] == "smollm2"), None) if listed.code == 0 else None
    e2e.main()
