#!/usr/bin/env python3
"""bench/compare.py: its arithmetic, the order of its legs, the commands that it runs. Programs that only pretend stand in for both sides.

usage: compare_test.py [LUCID]: with the program, types of the cache are compared with those that it has.
"""
import contextlib
import importlib.util
import io
import json
import os
import pathlib
import re
import stat
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
SPEC = importlib.util.spec_from_file_location("compare", ROOT / "bench" / "compare.py")
compare = importlib.util.module_from_spec(SPEC)
sys.modules["compare"] = compare  # dataclasses look their module up
SPEC.loader.exec_module(compare)

# Notes its name and arguments in a file, and answers with the next speed of its list, the last one again and again.
PRETENDER = """#!{python}
import json, os, sys
folder, name = os.path.dirname(os.path.abspath(__file__)), os.path.basename(__file__)
with open(folder + "/calls", "a") as calls:
    calls.write(json.dumps([name] + sys.argv[1:]) + "\\n")
state = folder + "/" + name + ".speeds"
speeds = json.load(open(state))
json.dump(speeds[1:] or speeds, open(state, "w"))
speed = speeds[0]
if speed == "fail":
    sys.exit("it broke")
if name == "llama-batched-bench":
    count = len(sys.argv[sys.argv.index("-npl") + 1].split(","))
    print("main: a line that is no JSON")
    for i in range(count):
        print(json.dumps({{"pl": 32, "speed_pp": 1.0, "speed_tg": speed + i}}))
elif speed == "garbage":
    print("[{{")
else:
    row = {{"avg_ts": speed, "samples_ts": [speed, speed * 9, speed / 9], "cpu_info": "C", "model_type": "M"}}
    if name == "lucid":
        row.update(isa="avx9", numerics="exact", limit_fraction=0.5, build_commit="abc")
    print(json.dumps([row]))
"""


LUCID = sys.argv.pop(1) if len(sys.argv) > 1 and "/" in sys.argv[1] else None


class Arithmetic(unittest.TestCase):
    def test_summary_takes_the_median_of_ratios_not_the_ratio_of_medians(self):
        got = compare.summary([(10, 10), (20, 10), (90, 30)])
        self.assertEqual((got["ours"], got["peer"], got["ratio"]), (20, 10, 2))
        self.assertEqual(got["ratios"], [1, 2, 3])
        self.assertTrue(1 <= got["low"] <= 2 <= got["high"] <= 3)
        # A machine that slows down by half between two pairs changes both medians, and no ratio.
        self.assertEqual(compare.summary([(20, 10), (10, 5), (20, 10)])["ratio"], 2)

    def test_two_pairs_have_no_interval(self):
        got = compare.summary([(10, 10), (20, 10)])
        self.assertEqual((got["ratio"], got["low"], got["high"]), (1.5, None, None))

    def test_interval(self):
        self.assertEqual(compare.interval([3.0] * 9), (3.0, 3.0))
        self.assertEqual(compare.interval([2.0]), (2.0, 2.0))
        ratios = [1.9, 2.0, 2.1, 2.0, 1.95, 2.05, 2.0, 1.98, 5.0]
        low, high = compare.interval(ratios)
        self.assertEqual((low, high), compare.interval(ratios))  # the same draws every time
        self.assertTrue(1.9 <= low <= 2.0 <= high <= 2.1, (low, high))  # one wild pair does not move it
        # Three draws from these have the median 2 with a chance of 7 in 27: both ends are within the interval.
        self.assertEqual(compare.interval([1.0, 2.0, 1.0]), (1.0, 2.0))

    def test_disturbance(self):
        before = compare.cpu_times("cpu  100 0 50 800 10 0 0 40 0 0")
        self.assertEqual(before, (150, 40, 1000))
        after = compare.cpu_times("cpu  180 0 70 880 10 0 0 60 0 0")
        self.assertEqual(compare.disturbance(before, after, own_ticks=60), (20 / 200, 40 / 200))
        self.assertEqual(compare.disturbance(before, after, own_ticks=110), (20 / 200, 0.0))
        self.assertEqual(compare.disturbance(before, before, own_ticks=0), (0.0, 0.0))


class Runs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="lucid-compare-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name in ("lucid", "llama-bench", "llama-batched-bench"):
            program = self.folder / name
            program.write_text(PRETENDER.format(python=sys.executable), encoding="utf-8")
            program.chmod(program.stat().st_mode | stat.S_IXUSR)
        # Whatever else this machine does.
        whole = compare.disturbance
        self.addCleanup(setattr, compare, "disturbance", whole)
        compare.disturbance = lambda *_: (0.0, 0.0)

    def run_it(self, *flags, lucid=(200.0,), peer=(100.0,)):
        """The exit code, what was printed, what was complained of, and the calls of the programs."""
        for name, speeds in (("lucid", lucid), ("llama-bench", peer), ("llama-batched-bench", peer)):
            (self.folder / f"{name}.speeds").write_text(json.dumps(speeds), encoding="utf-8")
        (self.folder / "calls").write_text("", encoding="utf-8")
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = compare.main([str(self.folder / "llama-bench"), "-m", "model.gguf", "--lucid", str(self.folder / "lucid"),
                                 *map(str, flags)])
        calls = [json.loads(line) for line in (self.folder / "calls").read_text(encoding="utf-8").splitlines()]
        return code, out.getvalue(), err.getvalue(), calls

    @staticmethod
    def value(call, flag):
        return call[call.index(flag) + 1]

    def test_order_and_flags(self):
        # Peer: --repack 0 and 1, then four legs. Lucid: one leg to warm up, then four.
        code, out, err, calls = self.run_it("-p", 512, "-n", 0, "-d", 4096, "-t", 3, "-r", 5, "--pairs", 4, "--kv", "int8", "-o", "json",
                                            lucid=(1.0, 200.0, 220.0, 180.0, 210.0), peer=(90.0, 80.0, 100.0, 110.0, 90.0, 100.0))
        self.assertEqual(code, 0, err)
        names = [call[0] for call in calls]
        self.assertEqual(names[:3], ["llama-bench", "llama-bench", "lucid"])
        self.assertEqual(names[3:], ["lucid", "llama-bench", "llama-bench", "lucid"] * 2)
        self.assertEqual([self.value(c, "--repack") for c in calls if c[0] == "llama-bench"], ["0", "1", "0", "0", "0", "0"])
        for call in calls:
            for flag, value in (("-m", "model.gguf"), ("-p", "512"), ("-n", "0"), ("-d", "4096"), ("-t", "3"), ("-r", "5")):
                self.assertEqual(self.value(call, flag), value, call)
            self.assertEqual(self.value(call, "--kv" if call[0] == "lucid" else "-ctk"),
                             "int8" if call[0] == "lucid" else "q8_0")
        result = json.loads(out)["results"][0]
        self.assertEqual(result["pairs"], [[200.0, 100.0], [220.0, 110.0], [180.0, 90.0], [210.0, 100.0]])
        self.assertEqual((result["test"], result["ours"], result["peer"], result["ratio"]), ("pp512 @ d4096", 205.0, 100.0, 2.0))
        self.assertEqual((result["low"], result["peer_repack"], result["limit_fraction"]), (2.0, 0, 0.5))

    def test_the_better_repack_is_kept_for_each_test(self):
        _, out, _, calls = self.run_it("-p", 8, "-n", 4, "--pairs", 1, "-o", "json", peer=(10.0, 20.0, 20.0, 20.0, 10.0, 20.0))
        self.assertEqual([r["test"] for r in json.loads(out)["results"]], ["pp8", "tg4"])
        self.assertEqual([self.value(c, "--repack") for c in calls if c[0] == "llama-bench"], ["0", "1", "1", "0", "1", "0"])

    def test_types_of_the_cache(self):
        _, _, _, calls = self.run_it("-p", 8, "-n", 0, "--pairs", 1, "--kv", "q8_0")
        self.assertEqual({self.value(c, "--kv") for c in calls if c[0] == "lucid"}, {"int8"})
        self.assertEqual({self.value(c, "-ctv") for c in calls if c[0] != "lucid"}, {"q8_0"})
        if LUCID is None:
            self.skipTest("no program is named")
        text = subprocess.run([LUCID, "bench", "--help"], check=True, capture_output=True, text=True).stdout
        known = re.search(r"--kv LIST=\S+\s+type of the cache: ([\w, ]+);", text)[1].split(", ")
        self.assertLessEqual(set(compare.KV_TYPES), set(known))

    def test_batched(self):
        code, out, err, calls = self.run_it("--batched", "8,32", "-r", 2, "--pairs", 1, "-o", "json", peer=(50.0, 40.0, 50.0))
        self.assertEqual(code, 0, err)
        peer = [c for c in calls if c[0] == "llama-batched-bench"]
        self.assertEqual(len(peer), 6)
        self.assertEqual([self.value(peer[0], f) for f in ("-npp", "-ntg", "-npl", "-c")], ["128", "64", "8,8", str(8 * 192)])
        self.assertEqual(["--no-repack" in c for c in peer[:3]], [True, False, True])
        lucid = next(c for c in calls if c[0] == "lucid")
        self.assertEqual([self.value(lucid, f) for f in ("-p", "-n", "-d", "--batch", "-r")], ["0", "64", "128", "8", "2"])
        result = json.loads(out)["results"][0]
        self.assertEqual((result["test"], result["peer"], result["ours"]), ("tg64 of 8 @ 128", 50.5, 200.0))

    def test_table(self):
        _, out, _, calls = self.run_it("-p", 512, "-n", 0)
        self.assertEqual(len(calls), 3 + 2 * 9)
        line = out.strip().splitlines()[-1]
        self.assertRegex(line, r"^\| pp512 \| 200\.00 \| 100\.00 \| \*\*2\.00\*\* \| 2\.00 to 2\.00 \| 50 % \| avx9 \| exact \| \d \| 0\.0 % \|$")

    def test_two_pairs_print_no_interval(self):
        _, out, _, _ = self.run_it("-p", 512, "-n", 0, "--pairs", 2, "--max-disturbance", 0)
        self.assertIn("| **2.00** | - |", out)

    def test_disturbed_pairs_are_measured_again_but_not_for_ever(self):
        shares = iter([(0, 0)] * 3 + [(0.2, 0), (0, 0), (0, 0), (0, 0.01)])
        compare.disturbance = lambda *_: next(shares)
        code, out, err, _ = self.run_it("-p", 8, "-n", 0, "--pairs", 1, "--max-disturbance", 5, "-o", "json")
        self.assertEqual(code, 0, err)
        result = json.loads(out)["results"][0]
        self.assertEqual((result["disturbed_and_repeated"], result["disturbance_percent"], result["disturbed_pairs"]), (1, 1.0, 0))
        compare.disturbance = lambda *_: (0.5, 0.5)
        _, out, _, calls = self.run_it("-p", 8, "-n", 0, "--pairs", 3, "--max-disturbance", 5, "-o", "json")
        self.assertEqual(json.loads(out)["results"][0]["disturbed_and_repeated"], 3)
        self.assertEqual(len(calls), 3 + 2 * 6)
        _, out, _, _ = self.run_it("-p", 8, "-n", 0, "--pairs", 1)  # 5 % by default
        self.assertRegex(out, r"\| 100\.0 % ! \|\n\n!: some pairs lost more than 5 % to others")
        compare.disturbance = lambda *_: (0.02, 0.02)
        self.assertNotIn("!", self.run_it("-p", 8, "-n", 0, "--pairs", 1)[1])
        compare.disturbance = lambda *_: (0.5, 0.5)
        _, out, _, calls = self.run_it("-p", 8, "-n", 0, "--pairs", 1, "--max-disturbance", 0)
        self.assertNotIn("!", out)
        self.assertEqual(len(calls), 3 + 2)

    def test_failures_are_one_sentence(self):
        for peer, said in ((("fail",), "it broke"), (("garbage",), "did not print JSON"), ((0,), "printed no speeds")):
            code, out, err, _ = self.run_it("-p", 8, "-n", 0, peer=peer)
            self.assertEqual((code, out), (1, ""))
            self.assertIn(said, err.splitlines()[-1])
        os.remove(self.folder / "lucid")
        code, _, err, calls = self.run_it("-p", 8, "-n", 0)
        self.assertEqual((code, calls), (1, []))  # before the first leg
        self.assertRegex(err, r"^compare: there is no program .*/lucid\n$")

    def test_wrong_flags_are_refused_before_anything_runs(self):
        for flags, said in ((("-p", 0, "-n", 0), "no test of at least one token"), (("--pairs", 0), "at least 1"),
                            (("-p", "x"), "'x' is no whole number"), (("-p", "8,-1"), "'-1' is no whole number of at least 0"),
                            (("-d", "1.5"), "no whole number"), (("--batched", "0"), "at least 1"), (("--batched", "8,0"), "at least 1"),
                            (("--kv", "fp8"), "f32, f16, bf16, int8"), (("--max-disturbance", "nan"), "at least 0"),
                            (("--lucid-flags", "'a"), "No closing quotation"), (("--peer-flags", 'b"'), "No closing quotation")):
            with self.subTest(flags), contextlib.redirect_stderr(io.StringIO()) as err:
                with self.assertRaises(SystemExit) as stop:
                    compare.parse(["peer", "-m", "model.gguf", *map(str, flags)])
                self.assertEqual(stop.exception.code, 2)
                self.assertIn(said, err.getvalue())


if __name__ == "__main__":
    unittest.main(verbosity=2)
