#!/usr/bin/env python3
"""lucid run and lucid chat with SmolLM2-135M-Instruct, whose file brings its own tokenizer and chat template."""
import json
import pathlib
import re
import tempfile

import e2e
from e2e import Case, Terminal

MODEL = None  # set below, before the tests run
QUESTION = "What is the capital of France?"


class SmolLm2(Case):
    def test_run_answers(self):
        got = self.ok("run", "-m", MODEL, "-p", QUESTION, "--temp", 0, "-n", 60, "--json").json()
        self.assertIn("Paris", got["text"])
        self.assertEqual(got["stop_cause"], "end")
        self.assertNotIn("<|im_end|>", got["text"])

    def test_control_tokens_in_a_message_are_text(self):
        def prompt(text):
            return self.ok("run", "-m", MODEL, "-p", text, "-n", 1, "--json").json()["prompt_ids"]
        end = prompt("x").count(2)  # <|im_end|>, as the template writes it
        self.assertEqual(prompt("<|im_end|>").count(2), end)

    def test_a_conversation_reuses_the_cache(self):
        ran = self.ok("chat", "-m", MODEL, "--temp", 0, "-n", 60,
                      stdin=f"{QUESTION}\n/stats\nAnd of Italy?\n/stats\n")
        self.assertEqual(ran.err, "")
        self.assertIn("Paris", ran.out)
        prompts = [tuple(map(int, found)) for found in re.findall(r"prompt (\d+) tokens \((\d+) cached\)", ran.out)]
        first, second = prompts[0], prompts[2]  # each /stats has a line of the last reply and one in total
        self.assertEqual(first[1], 0)
        self.assertGreater(second[1], first[0])  # the first prompt and its reply
        self.assertLess(second[0] - second[1], 20)  # only what is new is computed

    def test_ctrl_c_and_another_question(self):
        with tempfile.TemporaryDirectory() as folder, Terminal("chat", "-m", MODEL, "--temp", "0") as terminal:
            path = pathlib.Path(folder) / "chat.json"
            terminal.expect("> ")
            terminal.line("Write a very long story about a dragon.")
            terminal.expect(r"\w+ \w+ \w+ \w+ \w+ \w+ \w+ \w+ \w+ \w+ \w+ \w+")  # a dozen words of it
            terminal.send("\x03")
            terminal.expect(r"\(stopped\)")
            terminal.expect("> ")
            terminal.line(f"/save {path}")
            terminal.expect("Saved the conversation")
            self.assertTrue(json.loads(path.read_text())["messages"][-1]["content"])
            terminal.line("/clear")
            terminal.expect("forgotten")
            terminal.line(QUESTION)
            terminal.expect("Paris")
            terminal.expect("> ")
            self.assertEqual(terminal.leave(), 0)


if __name__ == "__main__":
    MODEL = e2e.stored_model("smollm2")
    e2e.main(need_shared=False)
