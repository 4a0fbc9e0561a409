#!/usr/bin/env python3
"""lucid convert as other programs see it: the gguf package reads each file's keys, shapes and types, llama.cpp its logits.

The second needs the Python package llama_cpp, which is built from source and so is not installed by ./test.
"""
import json
import pathlib
import tempfile
import unittest

import e2e
from e2e import Case

try:
    import gguf
except ImportError:
    gguf = None
try:
    import llama_cpp
except ImportError:
    llama_cpp = None

MODELS = e2e.SHARED / "fixtures" / "models"
# Folder, the architecture that its file names, keys under it, and shapes (innermost first, as the package gives them) and types of some tensors of a file of float16.
FILES = [
    ("llama3_gqa", "llama",
     {"block_count": 2, "embedding_length": 64, "attention.head_count": 8, "rope.dimension_count": 16, "vocab_size": 320},
     {"token_embd.weight": ([64, 320], "F16"), "output.weight": ([64, 320], "F16"), "output_norm.weight": ([64], "F32"),
      "rope_freqs.weight": ([8], "F32"), "blk.1.attn_q.weight": ([64, 128], "F16")}),
    ("mistral_swa", "llama", {"attention.sliding_window": 32, "attention.key_length": 24}, {"blk.0.attn_k.weight": ([64, 48], "F16")}),
    ("gpt2", "gpt2", {"attention.layer_norm_epsilon": 0.005},
     {"position_embd.weight": ([64, 128], "F32"), "blk.0.attn_qkv.weight": ([64, 192], "F16"), "blk.0.attn_qkv.bias": ([192], "F32"),
      "blk.0.ffn_up.weight": ([64, 256], "F16"), "blk.0.ffn_down.weight": ([256, 64], "F16")}),
    ("falcon_gqa", "falcon", {"attention.head_count_kv": 2}, {"blk.0.attn_norm_2.weight": ([64], "F32")}),
    ("phi3_longrope", "phi3", {"attention.sliding_window": 0, "rope.scaling.type": "longrope"},
     {"rope_factors_long.weight": ([6], "F32"), "blk.0.ffn_up.weight": ([64, 304], "F16")}),
    ("gemma3_text_scaled", "gemma3",
     {"rope.freq_base_swa": 10000.0, "rope.scaling.factor": 8.0, "attention.sliding_window_pattern": 2},
     {"blk.0.attn_q_norm.weight": ([32], "F32")}),
    ("mixtral", "llama", {"expert_used_count": 2},
     {"blk.0.ffn_gate_inp.weight": ([64, 4], "F32"), "blk.0.ffn_down_exps.weight": ([96, 64, 4], "F16")}),
    ("gpt_oss_mxfp4", "gpt-oss", {"attention.sliding_window": 32, "rope.scaling.type": "yarn"},
     {"blk.0.post_attention_norm.weight": ([64], "F32"), "blk.0.attn_sinks.weight": ([8], "F32"),
      "blk.0.ffn_gate_exps.weight": ([64, 64, 4], "MXFP4"), "blk.0.ffn_gate_exps.bias": ([64, 4], "F32")}),
]


class Convert(Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="lucid-convert-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def converted(self, name, *flags):
        file = self.folder / f"{name}.gguf"
        self.ok("convert", MODELS / name, "-o", file, *flags)
        return file


class Command(Convert):
    def test_a_trained_model_runs_as_its_folder_does(self):
        file = self.folder / "stories.gguf"
        out = self.ok("convert", e2e.STORIES, "-o", file).out
        self.assertIn(f"wrote {file}: architecture llama, ", out)
        reply = ("--raw", "-p", "Once upon a time", "-n", 24, "--temp", 0, "--json", "--numerics", "float")
        texts = [self.ok("run", "-m", model, *reply).json()["text"] for model in (e2e.STORIES, file)]
        self.assertEqual(texts[0], texts[1])
        self.assertIn("BF16", self.ok("show", file).out)

    def test_flags(self):
        file = self.converted("qwen2", "--type", "q8_0")
        err = self.fails(1, "convert", MODELS / "qwen2", "-o", file)
        self.assertIn("exists already; --force replaces it", err)
        self.ok("convert", MODELS / "qwen2", "-o", file, "--force")
        self.assertIn("already", self.fails(1, "convert", file, "-o", self.folder / "again.gguf"))
        self.fails(2, "convert", MODELS / "qwen2")
        self.fails(2, "convert", MODELS / "qwen2", "-o", file, "--type", "q4_k")
        self.assertEqual([path.name for path in self.folder.iterdir()], ["qwen2.gguf"])

    def test_notes_are_on_standard_error(self):
        ran = self.ok("convert", MODELS / "mistral_swa", "-o", self.folder / "m.gguf")
        self.assertIn("note: the folder holds no tokenizer.json", ran.err)
        self.assertIn("note: llama.cpp lets all layers", ran.err)
        self.assertNotIn("note", ran.out)
        longrope = self.ok("convert", MODELS / "phi3_longrope", "-o", self.folder / "long.gguf").err
        self.assertIn("note: llama.cpp takes LongRoPE's long factors where the context is larger than", longrope)

    def test_a_setting_that_gguf_lacks_is_named(self):
        err = self.fails(1, "convert", MODELS / "opt", "-o", self.folder / "m.gguf")
        self.assertIn("architecture opt has no form in GGUF files", err)
        self.assertEqual(list(self.folder.iterdir()), [])


@unittest.skipIf(gguf is None, "needs the Python package gguf; ./test installs it")
class Package(Convert):
    def test_reads_keys_shapes_and_types(self):
        for name, arch, keys, tensors in FILES:
            with self.subTest(name):
                reader = gguf.GGUFReader(self.converted(name, "--type", "f16"))
                value = lambda key: reader.get_field(key).contents()
                self.assertEqual(value("general.architecture"), arch)
                for key, want in keys.items():
                    got = value(f"{arch}.{key}")
                    (self.assertAlmostEqual if isinstance(want, float) else self.assertEqual)(got, want, msg=key)
                found = {t.name: ([int(n) for n in t.shape], t.tensor_type.name) for t in reader.tensors}
                for tensor, want in tensors.items():
                    self.assertEqual(found[tensor], want, tensor)

    def test_has_the_tokenizer_and_the_template(self):
        folder = self.folder / "model"
        folder.mkdir()
        for path in e2e.STORIES.iterdir():
            (folder / path.name).symlink_to(path)
        (folder / "chat_template.jinja").write_text("{{ bos_token }}{{ messages[0].content }}")
        self.ok("convert", folder, "-o", self.folder / "m.gguf")
        reader = gguf.GGUFReader(self.folder / "m.gguf")
        value = lambda key: reader.get_field(f"tokenizer.{key}").contents()
        model = json.loads((e2e.STORIES / "tokenizer.json").read_text())["model"]
        by_id = sorted(model["vocab"], key=model["vocab"].get)
        self.assertEqual(value("ggml.model"), "gpt2")
        self.assertEqual(value("ggml.pre"), "gpt-2")
        self.assertEqual(value("ggml.tokens"), by_id)
        self.assertEqual(value("ggml.merges"), [m if isinstance(m, str) else " ".join(m) for m in model["merges"]])
        self.assertEqual(value("ggml.token_type")[:3], [3, 3, 1])
        self.assertEqual([value("ggml.bos_token_id"), value("ggml.eos_token_id"), value("ggml.add_bos_token")], [0, 1, False])
        self.assertEqual(value("chat_template"), "{{ bos_token }}{{ messages[0].content }}")


@unittest.skipIf(llama_cpp is None, "needs the Python package llama_cpp, which is built from source")
class LlamaCpp(Convert):
    def test_computes_the_greedy_replies_of_the_references(self):
        for name in ("llama3_gqa", "llama_mha_tied", "qwen2", "qwen3", "gemma", "gpt2", "bloom", "falcon_gqa", "mixtral", "olmo2"):
            with self.subTest(name):
                model = llama_cpp.Llama(str(self.converted(name, "--type", "f32")), n_ctx=256, verbose=False)
                prompt = json.loads((MODELS / name / "reference.json").read_text())["prompts"]["long"]
                ids, want = prompt["ids"], prompt["greedy"]["ids"]
                model.eval(ids)
                got = []
                for _ in want:
                    got.append(model.sample(temp=0))
                    model.eval(got[-1:])
                self.assertEqual(got, want)


if __name__ == "__main__":
    e2e.main()
