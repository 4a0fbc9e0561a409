#!/usr/bin/env python3
"""lucid batch, end to end, on a small trained model: formats, error rows, order, resuming after a kill, what rows share."""
import json
import os
import pathlib
import random
import signal
import subprocess
import tempfile
import time

import e2e
from e2e import LUCID, STORIES, Case, Terminal, run

BOS = "<|bos|>"
PROMPT = BOS + "Once upon a time there was a little cat named Mia."
TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}{{ tail | default('') }}"


def comparable(row):
    """A row without what differs from run to run: names, times, what the cache happened to hold."""
    row = json.loads(json.dumps(row))
    del row["id"], row["response"]["request_id"]
    body = row["response"]["body"]
    for name in ("id", "created", "timings"):
        body.pop(name, None)
    if "usage" in body:
        del body["usage"]["prompt_tokens_details"]
    return row


class BatchCase(Case):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="lucid-batch-")
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)
        self.input, self.output = self.path / "in.jsonl", self.path / "out.jsonl"
        (self.path / "template.jinja").write_text(TEMPLATE)

    def args(self, *flags):
        return ["batch", self.input, "-m", STORIES, "-o", self.output, "--temp", 0, "--seed", 5, *flags]

    def write(self, *rows):
        lines = [row if isinstance(row, (str, bytes)) else json.dumps(row) for row in rows]
        self.input.write_bytes(b"".join((l if isinstance(l, bytes) else l.encode()) + b"\n" for l in lines))

    def rows(self):
        return [json.loads(line) for line in self.output.read_text(encoding="utf-8").splitlines()]

    def batch(self, *rows, flags=()):
        """Answers these rows; returns the output's."""
        self.write(*rows)
        ran = run(*self.args("--overwrite", *flags))
        self.assertEqual(ran.out, "")
        statuses = [r["response"]["status_code"] for r in self.rows()]
        self.assertEqual(ran.code, int(503 in statuses or 200 not in statuses), ran)
        return self.rows()

    def body(self, row, *flags):
        [answer] = self.batch(row, flags=flags)
        self.assertEqual(answer["response"]["status_code"], 200, answer)
        self.assertIsNone(answer["error"])
        return answer["response"]["body"]

    def refused(self, row, *flags):
        [answer] = self.batch(row, flags=flags)
        self.assertEqual(answer["response"]["status_code"], 400, answer)
        self.assertEqual(answer["response"]["body"], {"error": answer["error"]})
        self.assertEqual(set(answer["error"]), {"message", "type", "param", "code"})
        self.assertEqual(answer["error"]["type"], "invalid_request_error")
        return answer["error"]


class Formats(BatchCase):
    def continuation(self, text, *flags):
        return self.ok("run", "-m", STORIES, "--raw", "--temp", 0, "-n", 12, "-p", text, "--json", *flags).json()

    def test_plain_and_openai_rows_say_what_run_says(self):
        wanted = self.continuation(PROMPT)
        plain = {"custom_id": "plain", "prompt": PROMPT, "max_tokens": 12}
        body = {"model": "some-name", "prompt": wanted["prompt_ids"], "max_tokens": 12}
        openai = {"custom_id": "openai", "method": "POST", "url": "/v1/completions", "body": body}
        for row, answer in zip((plain, openai), self.batch(plain, openai)):
            self.assertEqual(answer["custom_id"], row["custom_id"])
            self.assertEqual(set(answer), {"id", "custom_id", "response", "error"})
            body = answer["response"]["body"]
            self.assertEqual(body["object"], "text_completion")
            self.assertEqual(body["choices"][0]["text"], wanted["text"])
            self.assertEqual(body["choices"][0]["finish_reason"], "length")
            self.assertEqual(body["usage"]["prompt_tokens"], 17)
            self.assertEqual(body["usage"]["completion_tokens"], 12)
            self.assertEqual(body["usage"]["total_tokens"], 29)
            self.assertGreater(body["choices"][0]["kv"]["bytes"], 0)
        self.assertEqual([r["response"]["body"]["model"] for r in self.rows()], [str(STORIES), "some-name"])

    def test_chat_rows_use_the_template(self):
        wanted = self.continuation(PROMPT)
        flags = ("--chat-template", self.path / "template.jinja")
        messages = [{"role": "user", "content": PROMPT[len(BOS):]}]
        row = {"custom_id": "a", "messages": messages, "max_completion_tokens": 12, "logprobs": True, "top_logprobs": 2}
        body = self.body(row, *flags)
        self.assertEqual(body["object"], "chat.completion")
        self.assertEqual(body["choices"][0]["message"], {"role": "assistant", "content": wanted["text"]})
        content = body["choices"][0]["logprobs"]["content"]
        self.assertEqual(len(content), 12)
        self.assertEqual("".join(t["token"] for t in content), wanted["text"])
        self.assertEqual(bytes(content[0]["bytes"]).decode(), content[0]["token"])
        self.assertEqual([len(t["top_logprobs"]) for t in content], [2] * 12)
        longer = self.body({"messages": messages, "max_tokens": 1, "chat_template_kwargs": {"tail": " The end"}}, *flags)
        self.assertGreater(longer["usage"]["prompt_tokens"], body["usage"]["prompt_tokens"])
        self.assertIn("--chat-template", self.batch(row)[0]["error"]["message"])
        self.assertEqual(self.rows()[0]["response"]["status_code"], 404)

    def test_every_parameter_of_the_sampler_arrives(self):
        args = ["run", "-m", STORIES, "--raw", "-p", PROMPT, "-n", 30, "--seed", 7, "--json"]
        wanted = self.ok(*args, "--temp", 1.2, "--top-k", 20, "--top-p", 0.9, "--min-p", 0.01, "--typical", 0.95,
                         "--repeat-penalty", 1.1, "--frequency-penalty", 0.1, "--presence-penalty", 0.2,
                         "--logit-bias", "20+1", "--stop", "friend", "--ignore-eos").json()
        body = self.body({"prompt": PROMPT, "max_tokens": 30, "seed": 7, "temperature": 1.2, "top_k": 20, "top_p": 0.9,
                          "min_p": 0.01, "typical_p": 0.95, "repetition_penalty": 1.1, "frequency_penalty": 0.1,
                          "presence_penalty": 0.2, "logit_bias": {"20": 1}, "stop": "friend", "ignore_eos": True,
                          "user": "me", "priority": 3, "stream": False, "logprobs": None})
        self.assertEqual(body["choices"][0]["text"], wanted["text"])
        self.assertEqual(body["choices"][0]["stop_cause"], wanted["stop_cause"])
        self.assertEqual(body["seed"], 7)

    def test_several_replies_and_beams(self):
        body = self.body({"prompt": PROMPT, "max_tokens": 20, "n": 3, "temperature": 1.5, "seed": 1})
        self.assertEqual([c["index"] for c in body["choices"]], [0, 1, 2])
        self.assertGreater(len({c["text"] for c in body["choices"]}), 1)
        self.assertEqual(body["usage"]["completion_tokens"], 60)
        run_replies = self.ok("run", "-m", STORIES, "--raw", "-p", PROMPT, "-n", 20, "-N", 3, "--temp", 1.5, "--seed", 1,
                              "--json").json()["replies"]
        self.assertEqual([c["text"] for c in body["choices"]], [r["text"] for r in run_replies])
        body = self.body({"prompt": PROMPT, "max_tokens": 12, "n": 3, "use_beam_search": True, "length_penalty": 0.5})
        scores = [c["score"] for c in body["choices"]]
        self.assertEqual(scores, sorted(scores, reverse=True))

    def test_log_probabilities_of_completions(self):
        choice = self.body({"prompt": PROMPT, "max_tokens": 5, "logprobs": 3})["choices"][0]
        table = choice["logprobs"]
        self.assertEqual("".join(table["tokens"]), choice["text"])
        self.assertEqual(table["text_offset"], [len("".join(table["tokens"][:i])) for i in range(5)])
        for token, value, top in zip(table["tokens"], table["token_logprobs"], table["top_logprobs"]):
            self.assertEqual(len(top), 3)
            self.assertEqual(top[token], value)

    def test_log_probabilities_name_every_token_once(self):
        # Tokens that are parts of a character have no text of their own.
        parts = self.ok("tokenize", "-m", STORIES, "--text", "\U0001f680", "--json").json()
        row = {"prompt": PROMPT, "max_tokens": 3, "logprobs": 20, "logit_bias": {str(parts["ids"][0]): 100}}
        choice = self.body(row)["choices"][0]
        self.assertEqual(choice["logprobs"]["tokens"], ["bytes:\\x" + parts["bytes"][0]] * 3)
        self.assertEqual(choice["logprobs"]["text_offset"][0], 0)

        def members(pairs):
            self.assertEqual(len(pairs), len({name for name, _ in pairs}), pairs)
            return dict(pairs)
        json.loads(self.output.read_text(), object_pairs_hook=members)
        for top in choice["logprobs"]["top_logprobs"]:
            self.assertLessEqual(len(top), 20)
            self.assertGreater(len(top), 10)
        self.assertIn("from 0 to 20", self.refused({**row, "logprobs": 21})["message"])

    def test_a_deadline_ends_a_reply(self):
        row = {"prompt": PROMPT, "max_tokens": 200, "ignore_eos": True}
        choice = self.body({**row, "deadline": 1e-6})["choices"][0]
        self.assertEqual(choice["stop_cause"], "deadline")
        self.assertEqual(self.body({**row, "deadline": 1000})["choices"][0]["stop_cause"], "length")
        self.assertIn("deadline", self.refused({**row, "deadline": -1})["message"])

    def test_a_bounded_cache_reports_its_bill(self):
        choice = self.body({"prompt": PROMPT, "max_tokens": 200, "ignore_eos": True, "kv_policy": "h2o", "kv_budget": 128,
                            "kv_audit": True})["choices"][0]
        self.assertGreater(choice["kv"]["evicted_tokens"], 0)
        self.assertTrue(0 < choice["kv"]["attention_dropped"] < 1)
        self.assertEqual(choice["kv"]["audit"]["positions"], 200)

    def test_an_audit_pairs_the_right_rows_whatever_runs_beside_it(self):
        # With a budget beyond the length the two caches hold the same, so any difference is a mistake of the pairing.
        text = "Once upon a time there was a little cat named Mia. "
        rows = [{"custom_id": str(i), "prompt": BOS + text * (1 + i % 3), "max_tokens": 20, "ignore_eos": True,
                 "kv_policy": "window_sink", "kv_budget": 256, "kv_audit": True} for i in range(9)]
        for flags in ([], ["-np", 1], ["-np", 3], ["-np", 4, "--chunk", 7, "--strict"], ["-np", 4, "--kv-memory", "120K"]):
            with self.subTest(flags):
                audits = [r["response"]["body"]["choices"][0]["kv"]["audit"] for r in self.batch(*rows, flags=flags)]
                self.assertEqual(audits, [{"positions": 20, "mean_kl": 0, "max_kl": 0, "same_top1": 20}] * 9)

    def test_blank_lines_and_a_last_line_without_its_end(self):
        row = json.dumps({"prompt": PROMPT, "max_tokens": 2})
        self.input.write_text(f"\n{row}\n  \n\r\n{row}")
        self.ok(*self.args())
        self.assertEqual([r["line"] for r in self.rows()], [2, 5])
        self.input.write_text("")
        self.ok(*self.args("--overwrite"))
        self.assertEqual(self.rows(), [])


class Refusals(BatchCase):
    def test_members_that_are_unknown_or_wrong(self):
        for member, value, code in (
                ("colour", "red", "unknown_parameter"), ("tools", [], "unsupported_parameter"), ("messages", [], None),
                ("stream", True, "unsupported_parameter"), ("temperature", "warm", "invalid_type"), ("temperature", -1, None),
                ("top_p", 2, None), ("top_k", 1.5, "invalid_type"), ("n", 0, "invalid_type"), ("n", 1000, None),
                ("max_tokens", -1, "invalid_type"), ("stop", [1], "invalid_type"), ("stop", [""], None),
                ("logit_bias", {"x": 1}, None), ("logit_bias", {"1": "a"}, None), ("logit_bias", {"512": 1}, None),
                ("seed", 1.5, "invalid_type"), ("model", 7, "invalid_type"), ("ignore_eos", 1, "invalid_type"),
                ("kv_policy", "lru", "invalid_type"), ("kv_budget", 64, None), ("kv_audit", True, None),
                ("priority", "high", "invalid_type"), ("user", 5, "invalid_type"), ("length_penalty", 2, None),
                ("prompt", [], "invalid_type"), ("prompt", ["a", 5], "invalid_type"), ("prompt", [512], None),
                ("prompt", None, "missing_required_parameter"), ("top_logprobs", 2, "unknown_parameter"),
                ("max_completion_tokens", 3, None), ("temperature", 1e300, "invalid_type"), ("logit_bias", {"5": -1e300}, None), ("chat_template_kwargs", {}, "unknown_parameter")):
            with self.subTest(member=member, value=value):
                error = self.refused({"prompt": PROMPT, "max_tokens": 4, member: value})
                if code is not None:
                    self.assertEqual((error["code"], error["param"]), (code, member))
                self.assertNotIn("\n", error["message"])

    def test_beams_go_with_nothing_that_draws(self):
        row = {"prompt": PROMPT, "max_tokens": 4, "use_beam_search": True, "n": 2}
        self.assertEqual(self.refused({**row, "top_p": 0.5})["param"], "top_p")
        self.body({**row, "temperature": 0})

    def test_rows_that_are_none(self):
        for line, said in (("{", "line 1 is not valid JSON"), ("[1]", "not a JSON object"), ("{}", "neither"),
                           (b"\xff\xfe", "line 1 is not valid JSON"), ("[" * 100_000, "nested deeper"),
                           ({"prompt": "a", "messages": []}, "both"), ({"custom_id": 7, "prompt": "a"}, "custom_id"),
                           ({"method": "GET", "url": "/v1/completions", "body": {}}, "method"),
                           ({"method": "POST", "url": "/v1/embeddings", "body": {}}, "url"),
                           ({"method": "POST", "url": "/v1/completions", "body": []}, "body"),
                           ({"method": "POST", "url": "/v1/completions", "body": {}, "x": 1}, '"x"')):
            with self.subTest(line):
                self.assertIn(said, self.refused(line)["message"])
                self.assertIsNone(self.rows()[0]["custom_id"])
                self.assertEqual(self.rows()[0]["line"], 1)

    def test_a_bad_row_touches_no_other(self):
        good = {"custom_id": "good", "prompt": PROMPT, "max_tokens": 3}
        rows = self.batch({"custom_id": "bad", "prompt": PROMPT, "x": 1}, "?", good)
        self.assertEqual([r["custom_id"] for r in rows], ["bad", None, "good"])
        self.assertEqual([r["response"]["status_code"] for r in rows], [400, 400, 200])

    def test_what_does_not_fit(self):
        error = self.refused({"prompt": PROMPT, "max_tokens": 4}, "-c", 8)
        self.assertEqual(error["code"], "context_length_exceeded")
        self.assertRegex(error["message"], r"\b17 tokens\b.*\b8\b")
        [row] = self.batch({"prompt": PROMPT, "max_tokens": 200}, flags=["--kv-memory", "64K", "-np", 1])
        self.assertEqual(row["response"]["status_code"], 503)
        self.assertEqual(row["error"]["type"], "server_error")
        self.assertRegex(row["error"]["message"], r"\d.*\d")

    def test_files_and_flags_are_refused_in_one_sentence(self):
        self.assertIn("/no/such/file", self.fails(1, "batch", "/no/such/file", "-m", STORIES, "-o", self.output))
        self.write({"prompt": PROMPT})
        self.assertIn("/no/such", self.fails(1, "batch", self.input, "-m", STORIES, "-o", "/no/such/folder/out"))
        self.assertIn("regular", self.fails(1, "batch", self.path, "-m", STORIES, "-o", self.output))
        self.assertIn("no-such-model", self.fails(1, "batch", self.input, "-m", "no-such-model", "-o", self.output))
        self.assertIn("top_p", self.fails(1, *self.args("--top-p", 2)))
        self.fails(2, "batch", self.input, "-m", STORIES)
        self.fails(2, "batch", "-m", STORIES, "-o", self.output)
        for flags in (["--kv-memory", "much"], ["--kv-memory", "2X"], ["--kv-memory", "-1G"], ["--kv", "f8"], ["-np", 0],
                      ["--preemption", "kill"], ["--kv-policy", "lru"], ["--kv-block-size", 0], ["--max-queue", 0],
                      ["--itl-target-ms", -1], ["--strict", "--no-prefix-cache"], ["--swap-space", "4096T"], ["--kv-memory", "inf"]):
            with self.subTest(flags):
                self.fails(2, *self.args(*flags))
        self.assertIn("--swap-space", self.fails(1, *self.args("--preemption", "swap")))
        self.assertRegex(self.fails(1, *self.args("--kv-memory", "1000T")), r"\d+ bytes.*\d+ bytes")

    def test_the_input_is_not_overwritten(self):
        self.write({"prompt": PROMPT, "max_tokens": 1})
        before = self.input.read_bytes()
        self.assertIn("both", self.fails(1, "batch", self.input, "-m", STORIES, "-o", self.input, "--overwrite"))
        self.assertEqual(self.input.read_bytes(), before)

    def test_a_second_run_does_not_write_beside_the_first(self):
        self.write({"prompt": PROMPT, "max_tokens": 1}, *[{"prompt": PROMPT, "max_tokens": 200, "ignore_eos": True}] * 300)
        with subprocess.Popen([LUCID, *map(str, self.args())], stderr=subprocess.DEVNULL) as first:
            while not (self.output.exists() and self.output.stat().st_size):
                self.assertIsNone(first.poll())
                time.sleep(0.002)
            self.assertIn("another process", self.fails(1, *self.args()))
            first.kill()

    def test_two_rows_of_one_name(self):
        row = {"custom_id": "twin", "prompt": PROMPT, "max_tokens": 1}
        self.write(row, {"custom_id": "other", "prompt": "x"}, row)
        self.assertRegex(self.fails(1, *self.args()), r'lines 1 and 3 .* "twin"')
        self.assertFalse(self.output.exists())


class Going(BatchCase):
    def rows_in(self, n):
        return [{"custom_id": f"row-{i}", "prompt": f"{BOS}Once upon a time there were {i} cats.", "max_tokens": 3 + 7 * i % 23,
                 "ignore_eos": True, "temperature": 1, **({} if i % 3 else {"seed": i})} for i in range(n)]

    def test_rows_come_in_order_or_as_they_end(self):
        rows = [{"custom_id": "long", "prompt": PROMPT, "max_tokens": 150, "ignore_eos": True}] + [
            {"custom_id": str(i), "prompt": PROMPT, "max_tokens": 1 + i % 2} for i in range(20)]
        names = [row["custom_id"] for row in rows]
        in_order = self.batch(*rows)
        self.assertEqual([r["custom_id"] for r in in_order], names)
        as_finished = self.batch(*rows, flags=["--as-finished"])
        self.assertNotEqual([r["custom_id"] for r in as_finished], names)
        self.assertEqual(as_finished[-1]["custom_id"], "long")
        self.assertEqual({r["custom_id"]: comparable(r) for r in as_finished},
                         {r["custom_id"]: comparable(r) for r in in_order})

    def test_what_runs_beside_a_row_does_not_change_it(self):
        rows = self.rows_in(30)
        together = self.batch(*rows)
        self.assertEqual(list(map(comparable, self.batch(*rows, flags=["-np", 1]))),
                         list(map(comparable, together)))
        chunked = self.batch(*rows, flags=["--chunk", 3, "--max-queue", 1, "--kv-memory", "300K"])
        self.assertEqual([r["response"]["body"]["choices"][0]["text"] for r in chunked],
                         [r["response"]["body"]["choices"][0]["text"] for r in together])

    def test_a_shared_prefix_is_computed_once(self):
        shared = BOS + "Once upon a time there was a little cat named Mia. One sunny day, Mia went to the park. " * 3
        rows = [{"custom_id": str(i), "prompt": f"{shared}{i}", "max_tokens": 2} for i in range(12)]
        # One at a time, so that the first has finished when the others come.
        usages = [r["response"]["body"]["usage"] for r in self.batch(*rows, flags=["-np", 1])]
        for usage in usages[1:]:
            self.assertGreaterEqual(usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"] - 4)
        none = self.batch(*rows, flags=["-np", 1, "--no-prefix-cache"])
        self.assertEqual({r["response"]["body"]["usage"]["prompt_tokens_details"]["cached_tokens"] for r in none}, {0})

    def start(self, *flags):
        return subprocess.Popen([LUCID, *map(str, self.args(*flags))], stderr=subprocess.PIPE)

    def wait_for_a_line(self, process, more_than):
        deadline = time.monotonic() + e2e.TIMEOUT_S
        while process.poll() is None and time.monotonic() < deadline:
            if self.output.exists() and self.output.read_bytes().count(b"\n") > more_than:
                return
            time.sleep(0.002)

    def test_a_run_that_is_killed_again_and_again_ends_like_one_that_is_not(self):
        rows = self.rows_in(90)
        rows[7] = "not a row"
        whole = self.batch(*rows)
        for flags in ([], ["--as-finished"]):
            with self.subTest(flags):
                self.output.unlink()
                kills = 0
                while True:
                    lines = self.output.read_bytes().count(b"\n") if self.output.exists() else 0
                    with self.start("-np", 4, *flags) as process:
                        self.wait_for_a_line(process, lines + 5)
                        process.kill()
                        process.communicate()
                    if process.returncode == 0:
                        break
                    self.assertEqual(process.returncode, -signal.SIGKILL)
                    kills += 1
                    if kills == 2:  # a line torn by a crash of the machine
                        with self.output.open("ab") as file:
                            file.write(b'{"id":"batch_req_1","custom_id":"row-5')
                self.assertGreater(kills, 1)
                got = self.rows()
                key = lambda r: (r["custom_id"] or "", r.get("line", 0))
                self.assertEqual(len({key(r) for r in got}), len(rows))
                if flags:
                    got.sort(key=lambda r: [key(w) for w in whole].index(key(r)))
                self.assertEqual(list(map(comparable, got)), list(map(comparable, whole)))
                before = self.output.read_bytes()
                self.assertIn("done before", self.ok(*self.args(*flags)).err)  # nothing is left to do
                self.assertEqual(self.output.read_bytes(), before)

    def test_a_slow_first_row_holds_back_no_answer_from_a_kill(self):
        rows = [{"custom_id": "slow", "prompt": PROMPT, "max_tokens": 230, "ignore_eos": True, "priority": -1}] + [
            {"custom_id": str(i), "prompt": PROMPT, "max_tokens": 2 + i % 5} for i in range(400)]
        whole = self.batch(*rows)
        self.output.unlink()
        chance = random.Random(4)
        kept = 0
        while True:
            with self.start("-np", 3) as process:
                self.wait_for_a_line(process, kept + chance.randrange(120))
                time.sleep(chance.uniform(0, 0.02))
                process.kill()
                process.communicate()
            if process.returncode == 0:
                break
            lines = self.output.read_bytes().splitlines(keepends=True)
            complete = [line for line in lines if line.endswith(b"\n")]
            self.assertGreaterEqual(len(complete), kept)  # nothing that was written is lost
            self.assertGreater(len(complete), 0)
            kept = len(complete)
        self.assertEqual(list(map(comparable, self.rows())), list(map(comparable, whole)))

    def test_rows_without_capacity_are_tried_again(self):
        rows = [{"custom_id": "big", "prompt": PROMPT, "max_tokens": 200}, {"custom_id": "bad", "x": 1},
                {"custom_id": "small", "prompt": PROMPT, "max_tokens": 2}]
        self.write(*rows)
        for flags in ([], ["--as-finished"]):
            with self.subTest(flags):
                self.output.unlink(missing_ok=True)
                ran = run(*self.args(*flags, "--kv-memory", "64K", "-np", 1))
                self.assertEqual(ran.code, 1, ran)
                self.assertIn("1 for lack of capacity, which the next run tries again", ran.err)
                self.assertEqual([r["response"]["status_code"] for r in self.rows()], [503, 400, 200])
                self.assertIn("2 done before", self.ok(*self.args(*flags)).err)
                codes = {r["custom_id"]: r["response"]["status_code"] for r in self.rows()}
                self.assertEqual(codes, {"big": 200, "bad": 400, "small": 200})
                self.assertEqual(list(codes), ["bad", "small", "big"] if flags else ["big", "bad", "small"])

    def test_ctrl_c_writes_what_is_finished_and_the_order_is_mended(self):
        rows = [{"custom_id": "endless", "prompt": PROMPT, "max_tokens": 230, "ignore_eos": True}] + [
            {"custom_id": str(i), "prompt": PROMPT, "max_tokens": 1} for i in range(8)]
        whole = self.batch(*rows)
        # Rows are written as they end, and an interrupted run leaves them so.
        for delay in (0.3, 0.2, 0.1, 0.05, 0.02):
            self.output.unlink(missing_ok=True)
            with self.start() as process:
                time.sleep(delay)
                process.send_signal(signal.SIGINT)
                err = process.communicate()[1].decode()
            if process.returncode == 130 and self.output.read_bytes():
                break
        else:
            self.skipTest("no interruption came while the first row was being answered")
        self.assertIn("interrupted", err)
        self.assertNotEqual(self.rows()[0]["custom_id"], "endless")
        self.ok(*self.args())
        self.assertEqual(list(map(comparable, self.rows())), list(map(comparable, whole)))

    def test_an_output_of_other_rows_is_left_alone(self):
        self.batch({"custom_id": "a", "prompt": PROMPT, "max_tokens": 1})
        before = self.output.read_bytes()
        self.write({"custom_id": "b", "prompt": PROMPT, "max_tokens": 1})
        self.assertIn("--overwrite", self.fails(1, *self.args()))
        self.output.write_bytes(before + before)
        self.write({"custom_id": "a", "prompt": PROMPT, "max_tokens": 1})
        self.assertIn("second time", self.fails(1, *self.args()))
        row = before.decode()
        for text in ("notes of mine\n", "notes of mine", '{"id": 1}', row.rstrip("\n").replace('"a"', '"z"'), row + "x"):
            self.output.write_text(text)
            self.assertRegex(self.fails(1, *self.args()), r"line [12] of .* answers no row")
            self.assertEqual(self.output.read_text(), text)

    def test_a_run_that_does_not_begin_changes_no_file(self):
        self.write({"custom_id": "a", "prompt": PROMPT, "max_tokens": 1})
        args = ["batch", self.input, "-m", self.path / "no-such-model", "-o", self.output]
        wrong = (["-m", self.path / "none"], ["--kv-policy", "h2o", "--kv-budget", 10], ["--kv-audit"], ["--kv-budget", 100],
                 ["--kv-policy", "h2o", "--kv-budget", 128, "--kv", "kivi2"], ["--swap-space", "1M"],
                 ["--chunk", 600, "--batch-size", 512])
        for text in (None, '{"id":"batch_req_1","custom', "old\n"):
            for flags in wrong:
                with self.subTest(text=text, flags=flags):
                    model = [] if "-m" in flags else ["-m", STORIES]
                    if text is not None:
                        self.output.write_text(text)
                    overwrite = ["--overwrite"] if text == "old\n" else []
                    self.fails(1, "batch", self.input, *model, "-o", self.output, *overwrite, *flags)
                    self.assertEqual(self.output.read_text() if self.output.exists() else None, text)
        self.output.unlink()
        # What a flag alone says wrong is told although there is no such model.
        for flags, said in ((["--kv-policy", "h2o", "--kv-budget", 10], "at least 128"), (["--kv-audit"], "--kv-audit"),
                            (["--swap-space", "1M"], "--preemption"), (["--chunk", 600], "--batch-size 512")):
            self.assertIn(said, self.fails(1, *args, *flags))

    def test_links_and_pipes(self):
        self.write(*({"custom_id": str(i), "prompt": PROMPT, "max_tokens": 20 - i} for i in range(9)))
        target = self.path / "target.jsonl"
        target.write_text("")
        self.output.symlink_to(target)
        self.ok(*self.args())
        self.assertTrue(self.output.is_symlink())
        self.assertEqual([json.loads(l)["custom_id"] for l in target.read_text().splitlines()], list(map(str, range(9))))
        pipe = self.path / "pipe"
        os.mkfifo(pipe)
        self.assertIn("regular", self.fails(1, "batch", pipe, "-m", STORIES, "-o", self.path / "x"))
        self.assertIn("regular", self.fails(1, "batch", self.input, "-m", STORIES, "-o", pipe))

    def test_a_full_disk_is_an_error(self):
        self.write({"prompt": PROMPT, "max_tokens": 1})
        self.assertIn("regular", self.fails(1, "batch", self.input, "-m", STORIES, "-o", "/dev/full"))

    def test_progress_on_a_terminal(self):
        self.write(*self.rows_in(40))
        with Terminal(*self.args("-np", 1)) as terminal:
            terminal.expect(r"\] \d+/40 lines  prompt \d+ tok/s  reply \d+ tok/s  [-\d:]+ left")
            terminal.expect(r"40 lines answered in [\d.]+ s")
            self.assertEqual(terminal.end(), 0)
        self.assertRegex(run(*self.args()).err, r"\A0 lines answered, 40 done before in [\d.]+ s\n\Z")


if __name__ == "__main__":
    e2e.main()
