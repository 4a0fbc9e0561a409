#!/usr/bin/env python3
"""lucid selftest: a line for each check, JSON, exit codes, a tokenizer.json to compare with."""
import json
import pathlib
import shutil
import tempfile

import e2e
from e2e import Case

MODEL = e2e.SHARED / "fixtures" / "gguf" / "models" / "stories_llama.q4_0.gguf"
FOLDER = e2e.SHARED / "fixtures" / "models" / "llama3_gqa"
OTHER_TOKENIZER = e2e.SHARED / "tokenizers" / "qwen2.5" / "tokenizer.json.xz"


class Selftest(Case):
    def test_every_check_has_a_line_and_passes(self):
        lines = self.ok("selftest", MODEL, "--texts", 100).out.splitlines()
        for name in ["tokenizer ", "tokenizer.json ", "chat template ", "memory ", "invariance ", "kernels generic ", "perplexity "]:
            [line] = [line for line in lines if line.startswith(name)]
            self.assertNotIn("FAILED", line)
        self.assertRegex(lines[-1], r"over \d+ tokens, [\d.]+ by the reference")

    def test_json_has_the_same_checks(self):
        result = self.ok("selftest", FOLDER, "--json").json()
        self.assertEqual(result["failed"], 0)
        states = {check["check"]: check["state"] for check in result["checks"]}
        self.assertEqual((states["tokenizer"], states["memory"], states["invariance"]), ("-", "ok", "ok"))

    def test_another_models_tokenizer_fails_with_the_text_and_both_ids(self):
        done = e2e.run("selftest", MODEL, "--texts", 10, "--tokenizer-json", OTHER_TOKENIZER, "--json")
        self.assertEqual(done.code, 1)
        result = json.loads(done.out)
        [failed] = [check for check in result["checks"] if check["state"] == "FAILED"]
        self.assertEqual((failed["check"], result["failed"]), ("tokenizer.json", 1))
        self.assertRegex(failed["detail"], r'"A model reads .* has the ids [\d ]+ by the model, [\d ]+ by ')

    def test_a_file_that_is_cut_off_is_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / "m.gguf"
            shutil.copyfile(MODEL, copy)
            with copy.open("r+b") as file:
                file.truncate(MODEL.stat().st_size - 64)
            self.assertIn("m.gguf", self.fails(1, "selftest", copy))

    def test_what_is_wrong_with_the_command_line(self):
        self.assertIn("nothing-here", self.fails(1, "selftest", "nothing-here"))
        self.assertIn("/no/tokenizer.json", self.fails(1, "selftest", FOLDER, "--tokenizer-json", "/no/tokenizer.json"))


if __name__ == "__main__":
    e2e.main()
