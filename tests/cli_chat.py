#!/usr/bin/env python3
"""lucid chat, end to end: scripted through standard input, and under a terminal.

The model is a small trained one with a template that strings the messages together, so replies are stories.
"""
import json
import os
import pathlib
import re
import tempfile
import time

import e2e
from e2e import STORIES, Case, Terminal

PROMPT = "Once upon a time there was a little cat named Mia."
TEMPLATE = """{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ m.content }} {% endif %}\
{% if m.role != 'system' %}{{ m.content }}{% endif %}{% endfor %}"""


class ChatCase(Case):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="lucid-chat-")
        cls.path = pathlib.Path(cls.folder.name)
        (cls.path / "template.jinja").write_text(TEMPLATE, encoding="utf-8")
        cls.base = ["chat", "-m", STORIES, "--chat-template", cls.path / "template.jinja"]
        cls.args = [*cls.base, "--temp", "0", "-n", "12"]

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def continuation(self, text, *flags):
        """What the model says after a text."""
        return self.ok("run", "-m", STORIES, "--raw", "--temp", 0, "-n", 12, "-p", "<|bos|>" + text, "--json", *flags).json()["text"]

    def say(self, *lines, flags=(), sampling=("--temp", "0", "-n", "12")):
        """Scripted chat: what it wrote to stdout and to stderr."""
        script = "".join(line + "\n" for line in lines)
        ran = self.ok(*self.base, *sampling, *flags, stdin=script)
        return ran.out, ran.err


class Scripted(ChatCase):
    def test_replies_go_to_stdout_without_decoration(self):
        reply = self.continuation(PROMPT)
        self.assertEqual(self.say(PROMPT), (reply + "\n", ""))
        ran = self.ok(*self.args, stdin=PROMPT)  # the last line needs no end
        self.assertEqual(ran.out, reply + "\n")
        self.assertEqual(self.say(), ("", ""))
        self.assertEqual(self.say("", "  "), ("", ""))

    def test_the_conversation_goes_on(self):
        first = self.continuation(PROMPT)
        second = self.continuation(PROMPT + first + " The end")
        out, err = self.say(PROMPT, " The end", "/stats")
        self.assertTrue(out.startswith(first + "\n" + second + "\n"), out)
        self.assertEqual(err, "")
        # The second prompt's beginning is found in the cache.
        cached = re.search(r"last reply +prompt (\d+) tokens \((\d+) cached\)", out)
        self.assertGreaterEqual(int(cached[2]), 17)
        self.assertRegex(out, r"conversation  2 turns, \d+ tokens")
        self.assertRegex(out, r"context +\d+ of 256 tokens used, \d+ left")
        self.assertRegex(out, r"KV cache +[\d.]+ KiB for the conversation, [\d.]+ KiB for a full context")
        self.assertRegex(out, r"of [\d.]+ [KM]iB: 0 B held, [1-9][\d.]* KiB kept for reuse, [\d.]+ [KM]iB free")
        self.assertRegex(out, r"prefixes +1 of 2 prompts found, \d+ tokens")
        self.assertRegex(out, r"at [\d.]+ tok/s.*at [\d.]+ tok/s")
        self.assertRegex(out, r"in total +2 replies")

    def test_lines_are_joined(self):
        wanted = self.continuation("Once upon\na time") + "\n"
        self.assertEqual(self.say("Once upon\\", "a time")[0], wanted)
        self.assertEqual(self.say('"""', "Once upon", "a time", '"""')[0], wanted)
        self.assertEqual(self.say('"""', "Once upon", "a time")[0], wanted)  # the input's end closes the block
        self.assertEqual(self.say("Once upon\\", "a time\r")[0], wanted)
        # A block is never a command.
        self.assertEqual(self.say('"""', "/exit", '"""')[0], self.continuation("/exit") + "\n")

    def test_commands_end_the_conversation(self):
        for command in ("/exit", "/bye", "/quit"):
            self.assertEqual(self.say(command, PROMPT), ("", ""))

    def test_unknown_commands_are_not_sent(self):
        out, err = self.say("/frobnicate now", "/exit now")
        self.assertEqual(out, "")
        self.assertRegex(err, r"\Alucid: there is no command '/frobnicate'; /help[^\n]+\nlucid: /exit takes nothing[^\n]+\n\Z")

    def test_help_names_every_command(self):
        out, _ = self.say("/help")
        for command in ("/help", "/set", "/system", "/stats", "/undo", "/retry", "/clear", "/save", "/load", "/exit"):
            self.assertIn(command, out)

    def test_clear_forgets_and_undo_takes_back(self):
        first = self.continuation(PROMPT)
        out, err = self.say(PROMPT, "/clear", PROMPT)
        self.assertEqual(out.splitlines(), [first, "The conversation is forgotten.", first])
        out, err = self.say(PROMPT, " And", "/undo", " And", "/undo", "/undo", "/undo")
        lines = out.splitlines()
        self.assertEqual(lines[1], lines[3])
        self.assertEqual(err, "lucid: there is nothing to take back\n")

    def test_retry_answers_again(self):
        first = self.continuation(PROMPT)
        out, err = self.say("/retry", PROMPT, "/retry", "/stats")
        self.assertEqual(out.splitlines()[:2], [first, first])  # greedy says the same
        self.assertIn("conversation  1 turn,", out)
        self.assertEqual(err, "lucid: there is no reply to try again\n")
        out, _ = self.say(PROMPT, "/retry", sampling=["--temp", "2", "--min-p", "0", "--seed", "1", "-n", "30"])
        self.assertNotEqual(*out.splitlines()[:2])

    def test_system_message_comes_first(self):
        wanted = self.continuation("Once upon a time " + PROMPT)
        self.assertEqual(self.say(PROMPT, flags=["--system", "Once upon a time"])[0], wanted + "\n")
        out, _ = self.say("/system Once upon a time", PROMPT, "/clear", '/system ""', PROMPT)
        lines = out.splitlines()
        self.assertEqual(lines[0], 'system = "Once upon a time"')
        self.assertEqual(lines[1], wanted)
        self.assertEqual(lines[-1], self.continuation(PROMPT))

    def test_a_deeply_nested_file_is_no_crash(self):
        deep = self.path / "deep.json"
        deep.write_text("[" * 200_000 + "]" * 200_000)
        out, err = self.say(f"/load {deep}", PROMPT)
        self.assertIn("deep.json is nested deeper than 64 levels", err)
        self.assertEqual(out, self.continuation(PROMPT) + "\n")

    def test_invalid_utf8_is_no_crash(self):
        path = self.path / "bytes.json"
        ran = self.ok(*self.args, stdin=b"a\xff\xc3(\n/save " + str(path).encode() + b"\n\x00\n/\xff\n/set stop \xff\n/set\n")
        self.assertEqual(json.loads(path.read_text())["messages"][0]["content"], "a\ufffd\ufffd(")
        self.assertIn("there is no command", ran.err)

    def test_a_model_without_a_template_is_told_what_to_do(self):
        self.assertIn("--chat-template", self.fails(1, "chat", "-m", STORIES, stdin=PROMPT))
        bad = self.path / "bad.jinja"
        bad.write_text("{% if %}")
        self.assertIn("bad.jinja", self.fails(1, "chat", "-m", STORIES, "--chat-template", bad, stdin=PROMPT))

    def test_an_error_of_the_template_leaves_the_conversation(self):
        raising = self.path / "raising.jinja"
        raising.write_text("{% if messages | length > 1 %}{{ raise_exception('one message, please') }}{% endif %}"
                           "{{ messages[0].content }}")
        ran = self.ok("chat", "-m", STORIES, "--chat-template", raising, "--temp", "0", "-n", "4",
                      stdin=f"{PROMPT}\nmore\n/clear\n{PROMPT}\n")
        self.assertIn("one message, please", ran.err)
        lines = ran.out.splitlines()
        self.assertEqual(lines[0], lines[2])

    def test_a_conversation_that_no_longer_fits_is_said_with_both_numbers(self):
        long = " One sunny day, Tom and his friend" * 6
        out, err = self.say(PROMPT, long, "/stats", PROMPT[:9], flags=["-c", "48"])
        self.assertRegex(err, r"\Alucid: [^\n]*\b\d\d+ tokens[^\n]*\b48\b[^\n]*/clear[^\n]*\n\Z")
        self.assertIn("conversation  1 turn,", out)  # nothing is dropped, the message is taken back
        self.assertGreater(len(out.splitlines()), 6)  # and a shorter one is answered

    def test_a_reply_that_fills_the_context_says_so(self):
        _, err = self.say(PROMPT, sampling=["-c", "24", "--temp", "0"])
        self.assertIn("the context is full", err)

    def test_the_cache_is_used_as_flags_say(self):
        def cached(*flags):
            out, _ = self.say(PROMPT, " The end", "/stats", flags=flags)
            return int(re.search(r"last reply +prompt \d+ tokens \((\d+) cached\)", out)[1])
        self.assertGreaterEqual(cached(), 28)
        self.assertEqual(cached("--no-prefix-cache"), 0)
        self.assertIn(cached("--strict"), range(16, 18))  # not what was generated
        self.fails(2, *self.args, "--strict", "--no-prefix-cache")
        _, err = self.say(PROMPT, flags=["--kv-policy", "window_sink", "--kv-budget", "128", "--kv-audit", "--stats", "-n", "200",
                                         "--logit-bias", "1-inf"])
        self.assertRegex(err, r"evicted \d+ tokens with [\d.]+ % of the attention \| audit of 200 tokens: KL mean [\d.]+")

    def test_stats_line_on_request(self):
        line = r"prompt 17 tokens .*tok/s \| reply 12 tokens .*tok/s \| stop: length \| seed \d+ \| cache [\d.]+ KiB\n"
        self.assertRegex(self.say(PROMPT, flags=["--stats"])[1], line)
        self.assertRegex(self.say("/set stats on", PROMPT, "/set stats off", "more")[1], rf"\A{line}\Z")

    def test_wrong_flags(self):
        self.fails(2, "chat")
        self.fails(2, *self.args, "--frobnicate")
        self.assertIn("top_p", self.fails(1, *self.args, "--top-p", "7"))
        self.assertIn("n is 0", self.fails(1, *self.base, "-n", "0"))
        self.assertIn("no-such-model", self.fails(1, "chat", "-m", "no-such-model"))


class Settings(ChatCase):
    NAMES = ("temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty", "frequency_penalty",
             "presence_penalty", "repeat_last_n", "samplers", "logit_bias", "seed", "n", "stop", "system", "stats")

    def test_all_are_listed(self):
        out, _ = self.say("/set")
        self.assertEqual(tuple(line.split()[0] for line in out.splitlines()), self.NAMES)
        self.assertIn("temperature = 0 ", out)

    def test_values_are_set_and_shown(self):
        for command, shown in (("temperature 0.7", "temperature = 0.7"), ("--temp 1", "temperature = 1"),
                               ("top-k 5", "top_k = 5"), ("--repeat-penalty 1.1", "repetition_penalty = 1.1"), ("seed -1", "seed = -1"), ("max_tokens 3", "n = 3"),
                               ("stop friend", 'stop = ["friend"]'), (r'stop "\n"', r'stop = ["\n"]'),
                               (r'stop ["a", "b"]', 'stop = ["a","b"]'), ("stop []", "stop = []"),
                               ("stop [x", 'stop = ["[x"]'), ("logit_bias 3-inf", 'logit_bias = ["3-inf"]'),
                               ("samplers top_k;temperature", 'samplers = "top_k;temperature"'),
                               ("stats on", "stats = on"), ("top_p", "top_p = 0.95")):
            with self.subTest(command):
                self.assertEqual(self.say("/set " + command), (shown + "\n", ""))

    def test_bad_values_are_one_sentence_and_change_nothing(self):
        for command in ("temperature warm", "temperature -1", "temperature nan", "top_k 1.5", "top_k 99999999999",
                        "top_p 2", "min_p -0.1", "repetition_penalty 0", "n 0", "n -2", "seed x", "stop \"\"",
                        "stop \"open", "stop [1]", "logit_bias x", "samplers top_q", "stats perhaps", "colour red"):
            with self.subTest(command):
                out, err = self.say("/set", "/set " + command, "/set")
                self.assertRegex(err, r"\Alucid: [^\n]+\n\Z")
                self.assertRegex(err, command.split()[0].rstrip("s").replace("_", "[-_]"))
                half = len(out) // 2
                self.assertEqual(out[:half], out[half:])

    def test_settings_apply_to_the_next_reply(self):
        whole = self.continuation(PROMPT)
        out, _ = self.say("/set n 3", PROMPT, "/clear", "/set n 12", "/set stop sunny", PROMPT)
        lines = out.splitlines()
        self.assertTrue(whole.startswith(lines[1]) and len(lines[1]) < len(whole))
        self.assertEqual(lines[-1], whole[:whole.index("sunny")])


class Files(ChatCase):
    def test_a_saved_conversation_goes_on_in_another_session(self):
        path = self.path / "chat.json"
        out, err = self.say("/set top_p 0.8", "/system Hello.", PROMPT, "/save " + str(path), " The end")
        self.assertEqual(err, "")
        last = out.splitlines()[-1]
        saved = json.loads(path.read_text(encoding="utf-8"))
        self.assertEqual([m["role"] for m in saved["messages"]], ["system", "user", "assistant"])
        self.assertEqual(saved["messages"][1]["content"], PROMPT)
        self.assertEqual(saved["settings"]["top_p"], 0.8)
        self.assertEqual(set(saved["settings"]), set(Settings.NAMES))
        out, err = self.say("/load " + str(path), " The end", "/set top_p", "/system")
        self.assertEqual(err, "")
        self.assertEqual(out.splitlines()[1:], [last, "top_p = 0.8", 'system = "Hello."'])
        # No temporary file is left.
        self.assertEqual({p.name for p in self.path.glob("chat.json*")}, {"chat.json", "chat.json.kv"})

    def test_the_cache_comes_back_with_the_conversation(self):
        path, kv = self.path / "kept.json", self.path / "kept.json.kv"
        out, _ = self.say(PROMPT, f"/save {path}", " The end")
        saved = re.search(r"Saved the conversation \(2 messages\) to .*kept.json, the cache of (\d+) tokens to .*kept.json.kv\.", out)
        self.assertGreaterEqual(int(saved[1]), 17)
        last = out.splitlines()[-1]

        def cached(*flags):
            """What /load says of the cache, the reply after it, and how much of its prompt was found."""
            out, err = self.say(f"/load {path}", " The end", "/stats", flags=flags)
            self.assertEqual(err, "")
            self.assertIn("Loaded a conversation (2 messages)", out.splitlines()[0])
            note = "\n".join(line for line in out.splitlines() if "cache" in line and "KV cache" not in line and "last reply" not in line
                             and "in total" not in line)
            return note, out, int(re.search(r"last reply +prompt \d+ tokens \((\d+) cached\)", out)[1])

        note, out, found = cached()
        self.assertIn(f"the cache of {saved[1]} tokens", note)
        self.assertGreaterEqual(found, int(saved[1]) - 1)
        self.assertIn(last, out.splitlines())
        for flags in (["--kv", "int8"], ["--kv-block-size", "16"]):  # another cache
            note, out, found = cached(*flags)
            self.assertRegex(note, r"The saved cache is not used: [^\n]+\.\Z")
            self.assertEqual(found, 0)
        good = kv.read_bytes()
        for bad in (good[:-7], good[:40] + bytes([good[40] ^ 1]) + good[41:], good[:-9] + b"x" + good[-8:], b"", b"notes"):
            kv.write_bytes(bad)
            note, out, found = cached()
            self.assertRegex(note, r"The saved cache is not used: [^\n]+\.\Z")
            self.assertEqual(found, 0)
            self.assertIn(last, out.splitlines())
        kv.unlink()
        self.assertEqual(cached()[0], "")

    def test_a_conversation_without_a_cache_leaves_no_file_of_an_earlier_one(self):
        path = self.path / "stale.json"
        self.say(PROMPT, f"/save {path}")
        self.assertTrue((self.path / "stale.json.kv").exists())
        out, _ = self.say(PROMPT, "/clear", f"/save {path}")
        self.assertIn(f"Saved the conversation (0 messages) to {path}.", out)
        self.assertFalse((self.path / "stale.json.kv").exists())
        self.say(PROMPT, f"/save {path}", flags=["--no-prefix-cache"])
        self.assertFalse((self.path / "stale.json.kv").exists())

    def test_a_cache_that_is_not_kept_is_not_promised(self):
        path = self.path / "unkept.json"
        for flags, why in ((["--no-prefix-cache"], "--no-prefix-cache keeps none"),
                           (["--kv-policy", "h2o", "--kv-budget", "128"], "--kv-policy h2o keeps none")):
            with self.subTest(flags):
                self.say(PROMPT, f"/save {path}")
                out, err = self.say(f"/load {path}", f"/save {path}", flags=flags)
                self.assertEqual(err, "")
                self.assertIn(f"Loaded a conversation (2 messages) from {path}.\nNo saved cache is used: {why}.", out)
                self.assertIn(f"Saved the conversation (2 messages) to {path}.\nNo cache is saved with it: {why}.", out)
                self.assertFalse((self.path / "unkept.json.kv").exists())
        (self.path / "unkept.json.kv").mkdir()
        (self.path / "unkept.json.kv" / "x").write_text("")
        _, err = self.say(PROMPT, f"/save {path}")
        self.assertIn(f"the conversation is saved in {path}, its cache is not", err)

    def test_a_cache_smaller_than_the_context(self):
        flags = ["--kv-memory", "24K", "-n", "-1", "--logit-bias", "1-inf"]
        out, err = self.say(PROMPT, "/stats", " The end", "/clear", PROMPT[:9], flags=flags)
        self.assertIn("(the cache is full; /clear forgets the conversation)", err)
        self.assertRegex(err, r"conversation has \d+ tokens[^\n]*the cache holds \d+; the message was taken back[^\n]*--kv-memory")
        self.assertIn("conversation  1 turn,", out)
        self.assertRegex(out, r"blocks        at most \d+ of \d+ places used, \d+ unused in one sequence")

    def test_stats_of_a_bounded_cache_are_of_what_is_held(self):
        flags = ["--kv-policy", "window_sink", "--kv-budget", "128", "-n", "200", "--logit-bias", "1-inf"]
        out, _ = self.say(PROMPT, "/stats", flags=flags)
        held = re.search(r"KV cache +([\d.]+) KiB at the end of the last reply: window_sink with a budget of 128 tokens", out)
        full, _ = self.say(PROMPT, "/stats", flags=flags[4:])
        whole = re.search(r"KV cache +([\d.]+) KiB for the conversation", full)
        self.assertLess(float(held[1]), float(whole[1]))

    def test_an_array_of_messages_is_loaded_too(self):
        path = self.path / "array.json"
        path.write_text(json.dumps([{"role": "user", "content": PROMPT}, {"role": "assistant", "content": " One"}]))
        out, _ = self.say("/load " + str(path), " day")
        self.assertEqual(out.splitlines()[1], self.continuation(PROMPT + " One day"))

    def test_bad_files_change_nothing(self):
        user, assistant = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
        files = {
            "nothing": "", "text": "hello", "number": "3", "object": "{}", "messages": '{"messages": 1}',
            "elements": '{"messages": [1]}', "content": '{"messages": [{"role": "user", "content": 1}]}',
            "unanswered": json.dumps([user]), "order": json.dumps([assistant, user]),
            "role": json.dumps([{"role": "king", "content": "x"}]),
            "late system": json.dumps([user, assistant, {"role": "system", "content": "x"}]),
            "settings": json.dumps({"messages": [], "settings": []}),
            "setting": json.dumps({"messages": [], "settings": {"colour": 1}}),
            "value": json.dumps({"messages": [], "settings": {"top_p": "high"}}),
            "range": json.dumps({"messages": [], "settings": {"top_p": 3}}),
            "deep": "[" * 100000,
        }
        for name, text in files.items():
            with self.subTest(name):
                path = self.path / (name + ".json")
                path.write_text(text)
                out, err = self.say(PROMPT, "/set", "/load " + str(path), "/set", "/stats")
                self.assertRegex(err, r"\Alucid: [^\n]+\n\Z")
                self.assertIn(name + ".json", err)
                self.assertIn("conversation  1 turn,", out)
                self.assertEqual(out.count('system = ""'), 2)
                self.assertEqual(out.count("top_p = 0.95"), 2)

    def test_files_that_cannot_be_opened(self):
        for command in ("/load /no/such/file", "/save /no/such/folder/file", "/load", "/save"):
            out, err = self.say(command)
            self.assertEqual(out, "")
            self.assertRegex(err, r"\Alucid: [^\n]+\n\Z")


class OnATerminal(ChatCase):
    ENDLESS = ("-c", "100000", "--logit-bias", "1-inf", "--temp", "0")  # no end token, and much room

    def chat(self, *flags, sampling=("--temp", "0", "-n", "12")):
        terminal = Terminal(*self.base, *sampling, *flags)
        self.addCleanup(terminal.__exit__)
        terminal.expect("/help lists the commands")
        terminal.expect("> ")
        return terminal

    def test_a_conversation(self):
        terminal = self.chat()
        terminal.line(PROMPT)
        terminal.expect(re.escape(self.continuation(PROMPT)))
        terminal.expect("> ")
        terminal.line("/stats")
        terminal.expect("conversation  1 turn,")
        terminal.expect("> ")
        terminal.line("/exit")
        self.assertEqual(terminal.end(), 0)
        self.assertNotIn("seed", terminal.all)  # no figures unless asked for

    def test_ctrl_c_stops_the_reply_only(self):
        path = self.path / "stopped.json"
        terminal = self.chat(sampling=self.ENDLESS)
        terminal.line(PROMPT)
        terminal.expect("One sunny day")
        terminal.send("\x03")
        terminal.expect(r"\(stopped\)")
        terminal.expect("> ")
        terminal.line(f"/save {path}")
        terminal.expect("Saved the conversation")
        self.assertIn("One sunny day", json.loads(path.read_text())["messages"][1]["content"])
        terminal.line("/set n 5")
        terminal.expect("n = 5")
        terminal.line(" The end")
        terminal.expect("The end\n.+\n> ")
        self.assertEqual(terminal.leave(), 0)

    def test_ctrl_c_before_the_reply_takes_the_message_back(self):
        path = self.path / "long.json"
        path.write_text(json.dumps([{"role": "user", "content": PROMPT * 1000}, {"role": "assistant", "content": "."}]))
        terminal = self.chat("-b", "1", "-c", "100000", "--backend", "reference")
        terminal.line(f"/load {path}")
        terminal.expect(r"Loaded.*\n> ")
        terminal.line("The end.")
        terminal.expect(r"The end\.\n")
        time.sleep(0.5)  # the prompt is being computed, token by token
        terminal.send("\x03")
        terminal.expect("nothing has changed")
        terminal.expect("> ")
        terminal.line("/stats")
        terminal.expect("conversation  1 turn,")
        terminal.expect("> ")
        self.assertEqual(terminal.leave(), 0)

    def test_ctrl_c_at_the_prompt_drops_the_line_and_twice_leaves(self):
        terminal = self.chat()
        terminal.send("half a line")
        terminal.expect("half a line")
        terminal.send("\x03")
        terminal.expect("once more")
        terminal.expect("> ")
        terminal.line("/set top_k")
        terminal.expect("top_k = 40\n> ")  # the dropped text is not part of it
        terminal.send("\x03")
        terminal.expect("once more")
        terminal.expect("> ")
        terminal.send("\x03")
        self.assertEqual(terminal.end(), 0)

    def test_several_lines_with_their_own_prompt(self):
        terminal = self.chat()
        terminal.line("Once upon\\")
        terminal.expect(r"\. ")
        terminal.line("a time")
        terminal.expect(re.escape(self.continuation("Once upon\na time")) + "\n> ")
        terminal.line("/clear")
        terminal.expect("> ")
        terminal.line('"""')
        terminal.expect(r"\. ")
        terminal.line("Once upon")
        terminal.line("a time")
        terminal.line('"""')
        terminal.expect(re.escape(self.continuation("Once upon\na time")) + "\n> ")
        terminal.line('"""')
        terminal.expect(r"\. ")
        terminal.send("\x03")
        terminal.expect("once more")
        terminal.expect("> ")
        self.assertEqual(terminal.leave(), 0)

    def test_history_outlives_the_session(self):
        terminal = self.chat()
        terminal.line("/set seed 4711")
        terminal.expect("seed = 4711\n> ")
        terminal.line("/exit")
        self.assertEqual(terminal.end(), 0)
        history = pathlib.Path(os.environ["LUCID_HOME"]) / "chat_history"
        self.assertIn("/set seed 4711\n", history.read_text())
        self.assertEqual(history.stat().st_mode & 0o777, 0o600)
        terminal = self.chat()
        terminal.send("\x1b[A\x1b[A\r")  # up past /exit
        terminal.expect("seed = 4711\n> ")
        self.assertEqual(terminal.leave(), 0)

    def test_figures_after_a_reply_on_request(self):
        terminal = self.chat("--stats")
        terminal.line(PROMPT)
        terminal.expect(r"prompt 17 tokens .* \| reply 12 tokens .* \| stop: length \| seed \d+ \| cache [\d.]+ KiB\n> ")
        self.assertEqual(terminal.leave(), 0)

    def test_a_command_typed_during_a_reply_is_obeyed_after_it(self):
        terminal = self.chat(sampling=("--temp", "0", "-n", "60"))
        terminal.line(PROMPT)
        time.sleep(0.05)
        terminal.line("/set top_k")
        terminal.expect("top_k = 40")
        self.assertEqual(terminal.leave(), 0)


if __name__ == "__main__":
    e2e.main()
