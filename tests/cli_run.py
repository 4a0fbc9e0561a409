#!/usr/bin/env python3
"""lucid run, end to end, on a small trained model: text, figures, stop causes, limits, complaints."""
import json
import math
import pathlib
import struct
import tempfile

import e2e
from e2e import STORIES, Case, Terminal

BOS = "<|bos|>"  # the model expects it, but its tokenizer.json does not add it
TEXT = "Once upon a time there was a little cat named Mia."
PROMPT = BOS + TEXT
RAW = ["run", "-m", STORIES, "--raw"]
GREEDY = [*RAW, "--temp", "0"]
EOS = 1


def last_logits(path, name):
    """The last row of a float32 tensor of a safetensors file."""
    data = path.read_bytes()
    length = struct.unpack_from("<Q", data)[0]
    entry = json.loads(data[8:8 + length])[name]
    assert entry["dtype"] == "F32"
    end, width = entry["data_offsets"][1], entry["shape"][-1]
    return struct.unpack_from(f"<{width}f", data, 8 + length + end - 4 * width)


def log_softmax(logits):
    top = max(logits)
    log_sum = top + math.log(sum(math.exp(x - top) for x in logits))
    return [x - log_sum for x in logits]


class Text(Case):
    def test_greedy_text_is_that_of_the_reference(self):
        for prompt in e2e.reference()["prompts"]:
            with self.subTest(prompt["text"]):
                got = self.ok(*GREEDY, "-p", BOS + prompt["text"], "-n", 48, "--ignore-eos", "--json").json()
                self.assertEqual(got["prompt_ids"], prompt["ids"])
                sure = prompt["sure_prefix"]
                self.assertEqual([t["id"] for t in got["tokens"]][:sure], prompt["greedy_ids"][:sure])
                text = "".join(t["text"] for t in got["tokens"][:sure])
                self.assertTrue(prompt["greedy_text"].startswith(text), text)

    def test_streamed_text_is_that_of_json(self):
        args = [*GREEDY, "-p", PROMPT, "-n", 30]
        got = self.ok(*args, "--json").json()
        self.assertTrue(got["text"])
        self.assertEqual(got["text"], "".join(t["text"] for t in got["tokens"]))
        self.assertEqual(self.ok(*args).out, got["text"] + "\n")

    def test_prompt_from_flag_file_and_stdin_are_the_same(self):
        args = [*GREEDY, "-n", 12]
        wanted = self.ok(*args, "-p", PROMPT).out
        self.assertEqual(self.ok(*args, stdin=PROMPT).out, wanted)
        self.assertEqual(self.ok(*args, "-f", "-", stdin=PROMPT).out, wanted)
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write(PROMPT)
            file.flush()
            self.assertEqual(self.ok(*args, "-f", file.name).out, wanted)

    def test_one_seed_gives_one_text_with_any_threads(self):
        def text(seed, threads):
            return self.ok(*RAW, "-p", PROMPT, "-n", 40, "--temp", 1.5, "--seed", seed, "-t", threads,
                           "--ignore-eos").out
        once = text(7, 1)
        self.assertEqual(text(7, 1), once)
        self.assertEqual(text(7, 2), once)
        self.assertNotEqual(text(8, 1), once)

    def test_a_fresh_seed_is_told_and_repeats_the_text(self):
        args = [*RAW, "-p", PROMPT, "-n", 30, "--temp", 1.5, "--json"]
        first = self.ok(*args).json()
        self.assertEqual(self.ok(*args, "--seed", first["seed"]).json()["text"], first["text"])

    def test_backends_and_instruction_sets_agree(self):
        ids = {}
        for flags in (["--backend", "reference"], ["--isa", "generic"], []):
            got = self.ok(*GREEDY, "-p", PROMPT, "-n", 20, "--json", *flags).json()
            ids[tuple(flags)] = [t["id"] for t in got["tokens"]]
        self.assertEqual(len(set(map(tuple, ids.values()))), 1, ids)

    def test_invalid_utf8_in_the_prompt_is_no_crash(self):
        got = self.ok(*GREEDY, "-n", 4, "--json", stdin=b"a\xff\xfe\xc3 b").json()
        self.assertEqual(len(got["tokens"]), 4)

    def test_without_a_template_the_prompt_is_continued_and_that_is_said(self):
        args = ["run", "-m", STORIES, "--temp", 0, "-n", 8, "-p", PROMPT]
        ran = self.ok(*args)
        self.assertIn("no chat template", ran.err)
        self.assertEqual(ran.out, self.ok(*GREEDY, "-n", 8, "-p", PROMPT).out)
        self.assertIn("--chat-template", self.fails(1, *args, "--system", "Be brief."))

    def test_chat_template_of_a_file(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
            file.write("{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}")
            file.flush()
            got = self.ok("run", "-m", STORIES, "--temp", 0, "-n", 8, "-p", TEXT, "--chat-template",
                          file.name, "--json").json()
        self.assertEqual(got["prompt_ids"], e2e.reference()["prompts"][0]["ids"])


class Json(Case):
    def test_fields(self):
        got = self.ok(*GREEDY, "-p", PROMPT, "-n", 10, "--seed", 3, "--json").json()
        self.assertEqual(got["model"], str(STORIES))
        self.assertEqual(got["seed"], 3)
        self.assertEqual(got["sampler"], "greedy")
        self.assertEqual(got["finish_reason"], "length")
        self.assertEqual(got["stop_cause"], "length")
        self.assertEqual(got["usage"], {"prompt_tokens": len(got["prompt_ids"]), "cached_tokens": 0,
                                        "completion_tokens": 10})
        self.assertEqual(len(got["tokens"]), 10)
        for name in ("load_seconds", "prefill_seconds", "decode_seconds", "prompt_tokens_per_second",
                     "decode_tokens_per_second"):
            self.assertGreater(got["timings"][name], 0, name)
        self.assertNotIn("logprob", got["tokens"][0])
        self.assertNotIn("explain", got["tokens"][0])


class Stopping(Case):
    def run_json(self, *args):
        return self.ok(*GREEDY, "-p", PROMPT, "--json", *args).json()

    def test_stop_string_ends_the_reply_before_it(self):
        whole = self.run_json("-n", 20)["text"]
        got = self.run_json("-n", 20, "--stop", "never said", "--stop", "y day")  # spans tokens
        self.assertEqual(got["text"], whole[:whole.index("y day")])
        self.assertEqual((got["stop_cause"], got["finish_reason"]), ("stop_string", "stop"))
        plain = self.ok(*GREEDY, "-p", PROMPT, "-n", 20, "--stop", "y day").out
        self.assertEqual(plain, got["text"] + "\n")

    def test_n_limits_the_reply(self):
        for n in (1, 5):
            got = self.run_json("-n", n)
            self.assertEqual(len(got["tokens"]), n)
            self.assertEqual(got["stop_cause"], "length")
        self.assertEqual(self.run_json("-n", 0)["tokens"], [])

    def test_the_end_token_ends_the_reply_unless_ignored(self):
        got = self.run_json("-n", 20, "--logit-bias", f"{EOS}+100")
        self.assertEqual([t["id"] for t in got["tokens"]], [EOS])
        self.assertEqual((got["text"], got["stop_cause"], got["finish_reason"]), ("", "end", "stop"))
        got = self.run_json("-n", 5, "--logit-bias", f"{EOS}+100", "--ignore-eos")
        self.assertEqual([t["id"] for t in got["tokens"]], [EOS] * 5)
        self.assertEqual(got["stop_cause"], "length")

    def test_generation_stops_at_the_context(self):
        got = self.run_json("-c", 40, "--ignore-eos")
        self.assertEqual((got["stop_cause"], got["finish_reason"]), ("length", "length"))
        self.assertEqual(got["usage"]["prompt_tokens"] + got["usage"]["completion_tokens"], 40)

    def test_a_prompt_longer_than_the_context_is_an_error_with_both_numbers(self):
        n = len(e2e.reference()["prompts"][0]["ids"])
        error = self.fails(1, *GREEDY, "-p", PROMPT, "-c", 8)
        self.assertRegex(error, rf"\b{n} tokens\b.*\b8\b")
        # One that fills it leaves no room for a reply.
        self.assertRegex(self.fails(1, *GREEDY, "-p", PROMPT, "-c", n), rf"\b{n} tokens\b.*\b{n}\b")
        self.assertEqual(len(self.run_json("-c", n + 1)["tokens"]), 1)


class Probabilities(Case):
    def test_logprobs_are_those_of_the_reference(self):
        prompt = e2e.reference()["prompts"][0]
        wanted = log_softmax(last_logits(STORIES / "reference.safetensors", "prompt0.logits"))
        got = self.ok(*GREEDY, "-p", BOS + prompt["text"], "-n", 1, "--logprobs", 5, "--json", "-ctk",
                      "f32", "-ctv", "f32", "--backend", "reference").json()["tokens"][0]
        best = sorted(range(len(wanted)), key=lambda i: -wanted[i])[:5]
        self.assertEqual([t["id"] for t in got["top_logprobs"]], best)
        for entry in got["top_logprobs"]:
            self.assertAlmostEqual(entry["logprob"], wanted[entry["id"]], delta=1e-3)
        self.assertAlmostEqual(got["logprob"], wanted[got["id"]], delta=1e-3)

    def test_logprobs_do_not_depend_on_the_sampler(self):
        def first(*flags):
            return self.ok(*RAW, "-p", PROMPT, "-n", 1, "--logprobs", 3, "--json", *flags).json()["tokens"][0]
        plain, warm = first("--temp", 0), first("--temp", 2, "--top-k", 1)
        self.assertEqual(plain["top_logprobs"], warm["top_logprobs"])

    def test_logprobs_table(self):
        lines = self.ok(*GREEDY, "-p", PROMPT, "-n", 3, "--logprobs", 2).out.splitlines()
        self.assertEqual(len(lines), 4)  # three tokens and the text
        self.assertRegex(lines[0], r'^ +\d+ "[^"]+" +-?\d+\.\d{5}  "[^"]+" -?\d+\.\d+  "[^"]+" -?\d+\.\d+$')

    def check_stage(self, stage):
        self.assertGreaterEqual(stage["mass_removed"], 0)
        self.assertLessEqual(stage["mass_removed"], 1)
        self.assertLessEqual(1, stage["kept_after"])
        self.assertLessEqual(stage["kept_after"], stage["kept_before"])
        self.assertGreaterEqual(stage["entropy_after"], -1e-9)
        if stage["kept_after"] == stage["kept_before"]:
            self.assertEqual(stage["mass_removed"], 0)

    def test_explanation_as_json(self):
        got = self.ok(*RAW, "-p", PROMPT, "-n", 12, "--seed", 1, "--top-k", 20, "--top-p", 0.9, "--temp", 1.2,
                      "--samplers", "top_k;top_p;temperature", "--explain-sampling", "--json").json()
        for token in got["tokens"]:
            explain = token["explain"]
            self.assertEqual([s["name"] for s in explain["stages"]], ["top_k", "top_p", "temperature"])
            kept = 512
            for stage in explain["stages"]:
                self.assertEqual(stage["kept_before"], kept)
                kept = stage["kept_after"]
                self.check_stage(stage)
            self.assertGreater(explain["final_prob"], 0)
            self.assertLessEqual(explain["final_prob"], 1)
            if kept == 1:
                self.assertIsNone(explain["draw"])
            else:
                self.assertTrue(0 <= explain["draw"] < 1)
            self.assertTrue(explain["top_before"] and explain["top_after"])

    def test_explanation_as_text(self):
        out = self.ok(*RAW, "-p", PROMPT, "-n", 2, "--seed", 1, "--explain-sampling").out
        self.assertEqual(out.count("mass removed"), 2)
        for wanted in ("token 0: ", "token 1: ", "top_k=40", "before: ", "after: ", "draw: "):
            self.assertIn(wanted, out)

    def test_penalties_and_bias_change_the_choice(self):
        first = self.ok(*GREEDY, "-p", PROMPT, "-n", 1, "--json").json()["tokens"][0]["id"]
        other = self.ok(*GREEDY, "-p", PROMPT, "-n", 1, "--json", "--logit-bias", f"{first}-inf").json()
        self.assertNotEqual(other["tokens"][0]["id"], first)


class SeveralReplies(Case):
    def test_each_draws_from_a_stream_of_its_own(self):
        args = [*RAW, "-p", PROMPT, "-n", 20, "--temp", 1.5, "--seed", 7]
        got = self.ok(*args, "-N", 4, "--json").json()
        texts = [reply["text"] for reply in got["replies"]]
        self.assertEqual([reply["index"] for reply in got["replies"]], [0, 1, 2, 3])
        self.assertGreater(len(set(texts)), 1)
        self.assertEqual(texts[0], self.ok(*args, "--json").json()["text"])
        self.assertEqual([r["text"] for r in self.ok(*args, "-N", 4, "-np", 2, "--json").json()["replies"]], texts)
        self.assertEqual(self.ok(*args, "-N", 4).out,
                         "\n".join(f"--- reply {i + 1} ---\n{text}\n" for i, text in enumerate(texts)))

    def test_beams_come_best_first(self):
        args = [*RAW, "-p", PROMPT, "-n", 12, "--beams", 4]
        got = self.ok(*args, "-N", 3, "--json").json()
        scores = [reply["score"] for reply in got["replies"]]
        self.assertEqual(len(scores), 3)
        self.assertEqual(scores, sorted(scores, reverse=True))
        self.assertEqual(got["sampler"], "beams")
        out = self.ok(*args).out
        self.assertEqual(out, f"--- reply 1, score {scores[0]:.4f} ---\n{got['replies'][0]['text']}\n")
        longer = self.ok(*args, "--length-penalty", 0, "--json").json()["replies"][0]
        self.assertLess(longer["score"], scores[0])  # a sum, not a mean

    def test_what_does_not_go_together(self):
        self.fails(2, *RAW, "-p", PROMPT, "--length-penalty", 1)
        self.assertIn("beam width", self.fails(1, *RAW, "-p", PROMPT, "--beams", 2, "-N", 3))
        self.assertIn("beam", self.fails(1, *RAW, "-p", PROMPT, "--beams", 2, "--stop", "x"))
        for flags in (["--temp", 0.5], ["--top-k", 3], ["--seed", 1], ["--samplers", "temperature"], ["--min-p", 0.1]):
            self.assertIn(f"{flags[0]} does not go with --beams", self.fails(1, *RAW, "-p", PROMPT, "--beams", 2, *flags))
        self.ok(*RAW, "-p", PROMPT, "-n", 2, "--beams", 2, "--temp", 0)
        # Told before a model is loaded.
        none = ["run", "-m", "/no/such/model", "-p", PROMPT]
        self.assertIn("at least 128", self.fails(1, *none, "--kv-policy", "h2o", "--kv-budget", 10))
        self.assertIn("--kv-audit", self.fails(1, *none, "--kv-audit"))
        self.assertIn("--preemption swap", self.fails(1, *none, "--swap-space", "1M"))
        self.assertRegex(self.fails(1, *none, "--chunk", 600), "--chunk 600 .*--batch-size 512")
        self.assertIn("reply", self.fails(1, *RAW, "-p", PROMPT, "-N", 2, "--kv-policy", "h2o", "--kv-budget", 128))


class Cache(Case):
    def run_json(self, *flags):
        return self.ok(*GREEDY, "-p", PROMPT, "-n", 200, "--ignore-eos", "--json", *flags).json()

    def test_types_take_the_bytes_they_say(self):
        def bytes_of(*flags):
            return self.run_json(*flags)["kv"]["bytes"]
        half = bytes_of()
        self.assertEqual(bytes_of("--kv", "f32"), 2 * half)
        self.assertEqual(bytes_of("--kv", "bf16"), half)
        self.assertEqual(bytes_of("--kv", "f32", "-ctv", "f16"), half * 3 // 2)
        self.assertEqual(bytes_of("-ctk", "f32", "--kv", "f16"), half * 3 // 2)
        sizes = [bytes_of("--kv", kv) for kv in ("f16", "int8", "fp8", "int4", "int2")]
        self.assertEqual(sizes, sorted(sizes, reverse=True))

    def test_a_bounded_cache_reports_what_it_dropped(self):
        full = self.run_json()
        self.assertEqual((full["kv"]["evicted_tokens"], full["kv"]["attention_dropped"]), (0, 0))
        self.assertNotIn("audit", full["kv"])
        for policy in ("window_sink", "h2o"):
            kv = self.run_json("--kv-policy", policy, "--kv-budget", 128)["kv"]
            self.assertGreater(kv["evicted_tokens"], 0)
            self.assertTrue(0 < kv["attention_dropped"] < 1)
            self.assertLess(kv["bytes"], full["kv"]["bytes"])
        # A budget beyond the length changes nothing, and the audit says so.
        for policy in ("window_sink", "h2o", "snapkv"):
            got = self.run_json("--kv-policy", policy, "--kv-budget", 256, "--kv-audit")
            self.assertEqual(got["text"], full["text"])
            self.assertEqual(got["kv"]["audit"], {"positions": 200, "mean_kl": 0, "max_kl": 0, "same_top1": 200})

    def test_sizes_are_understood(self):
        text = self.ok(*GREEDY, "-p", PROMPT, "-n", 8).out
        for size in ("200K", "200KiB", "0.2M", "200000", "200000B", "200kB", "1.5GB"):
            self.assertEqual(self.ok(*GREEDY, "-p", PROMPT, "-n", 8, "--kv-memory", size).out, text)
        for size in ("", "much", "2X", "-1G", "1..5G", "2GG", "1e3", "2 G", "nan", "inf"):
            self.assertIn("--kv-memory", self.fails(2, *GREEDY, "-p", PROMPT, "--kv-memory", size))
        self.assertRegex(self.fails(1, *GREEDY, "-p", PROMPT, "--kv-memory", "1K"), r"\d.*\d")

    def test_settings_that_make_no_sense(self):
        for flags, named in ((["--kv-budget", 64], "budget"), (["--kv-audit"], "policy"), (["--kv-policy", "h2o"], "budget"),
                             (["--kv-policy", "h2o", "--kv-budget", 3], "3"), (["--kv", "kivi2", "-ctv", "f16"], "kivi2"),
                             (["--preemption", "swap"], "--swap-space")):
            with self.subTest(flags):
                self.assertIn(named, self.fails(1, *GREEDY, "-p", PROMPT, "-n", 4, *flags))
        for flags in (["--kv", "f8"], ["--kv-policy", "lru"], ["--kv-block-size", 0], ["--max-queue", 3], ["--strict"], ["-N", 0]):
            self.fails(2, *GREEDY, "-p", PROMPT, *flags)


class Complaints(Case):
    def test_wrong_command_lines(self):
        for flags in (["--no-such-flag"], ["-n", "many"], ["-n", -2], ["-t", -1], ["--temp", "warm"], ["--seed", 1 << 63],
                      ["--cache-type-k", "q3"], ["--backend", "tpu"], ["-f", "a", "-p", "b"], ["--logprobs", -1]):
            with self.subTest(flags):
                self.fails(2, *GREEDY, *([] if "-p" in flags else ["-p", "x"]), *flags)
        self.fails(2, "run", "-p", "x")  # no model

    def test_values_that_make_no_sense(self):
        for flags, named in ((["--top-p", 2], "top_p"), (["--temp", -1], "temperature"),
                             (["--repeat-penalty", 0], "repetition_penalty"), (["--samplers", "top_q"], "top_q"),
                             (["--logit-bias", "x"], "logit-bias"), (["--logit-bias", "512+1"], "512"),
                             (["--stop", ""], "stop"), (["--isa", "sse9"], "sse9")):
            with self.subTest(flags):
                self.assertIn(named, self.fails(1, *RAW, "-p", PROMPT, "-n", 2, *flags))

    def test_missing_things_are_named(self):
        self.assertIn("no-such-model", self.fails(1, "run", "-m", "no-such-model", "-p", "x"))
        self.assertIn("/no/such/file", self.fails(1, *GREEDY, "-f", "/no/such/file"))
        self.assertIn("/no/such/file", self.fails(1, "run", "-m", STORIES, "-p", "x", "--chat-template",
                                                  "/no/such/file"))

    def test_an_empty_file_is_no_model(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "empty.gguf"
            path.write_bytes(b"")
            self.assertIn("empty.gguf", self.fails(1, "run", "-m", path, "-p", "x"))


class Figures(Case):
    LINE = r"prompt 17 tokens [\d.]+ tok/s \| reply 5 tokens [\d.]+ tok/s \| stop: length \| seed 3 \| cache [\d.]+ KiB"

    def test_quiet_when_piped_unless_asked(self):
        args = [*GREEDY, "-p", PROMPT, "-n", 5, "--seed", 3]
        self.assertEqual(self.ok(*args).err, "")
        self.assertRegex(self.ok(*args, "--stats").err, self.LINE)

    def test_figures_on_a_terminal(self):
        with Terminal(*GREEDY, "-p", PROMPT, "-n", 5, "--seed", 3) as terminal:
            terminal.expect(self.LINE)
            self.assertEqual(terminal.end(), 0)
        with Terminal(*GREEDY, "-p", PROMPT, "-n", 5, "--no-stats") as terminal:
            self.assertEqual(terminal.end(), 0)
            self.assertNotIn("tok/s", terminal.all)

    def test_a_terminal_without_a_prompt_is_told_what_to_do(self):
        with Terminal(*GREEDY) as terminal:
            terminal.expect(r"lucid: no prompt")
            self.assertEqual(terminal.end(), 1)

    def test_ctrl_c_keeps_what_was_said(self):
        with Terminal(*GREEDY, "-p", PROMPT, "-c", 100000, "--ignore-eos", "--no-stats") as terminal:
            terminal.expect(r"One sunny day")
            terminal.send("\x03")
            self.assertEqual(terminal.end(), 130)


if __name__ == "__main__":
    e2e.main()
