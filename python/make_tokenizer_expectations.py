#!/usr/bin/env python3
"""Writes tests/data/tokenizer_expectations.json: small tokenizers of every kind and what they do to texts.

    python/make_tokenizer_expectations.py [tests/data/tokenizer_expectations.json]

The tokenizers are trained on a few lines below and encode with the Python `tokenizers` package, whose
results src/text/hf_tokenizer_test.cc expects id for id. Needs: pip install tokenizers==0.23.3 or near.
"""
import json
import pathlib
import sys

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

CORPUS = """The quick brown fox jumps over the lazy dog. The dog was not amused, the fox was.
Once upon a time there was a little girl named Lily, who loved to play outside in the sunshine.
She didn't know that 12 foxes and 345 dogs lived near the river; it's a funny thing.
In the beginning the universe was created. This has made many people very angry.
unrelated unhappy unfolding folding happy related relation relational Übung Straße café naïve
привет мир как дела  你好 世界 日本語 한국어 hello world hello there general
"""

TEXTS = [
    "", " ", "  ", "The quick brown fox", " the fox", "the  fox", "  leading and trailing  ", "unrelated unfolding",
    "HELLO World", "hello, world! it's 12345 3.14", "a\tb\nc\r\nd", "café naïve cafe\u0301", "привет, мир", "你好世界 日本語",
    "한국어 각", "🙂 fox 🦊🦊", "x\u200by\ufeffz\u00a0w", "zzzzqqqq", "!!!???...", "\u2581under \u2581", "don't won't 's",
    "[CLS] the fox [SEP]", "<s>the fox</s>", "the<mask>fox", "the <mask> fox", "the  <mask>  fox", "fox<sep>dog<sep>",
    "pre<w>post <w> (<w>)", "ADDED added Added", "NORM\u00c9 norme\u0301 norm\u00e9", "ﬁne ①②③ Ⅷ ｆｕｌｌ", "İstanbul ǅ ΑΒΓΣ",
    "a" * 120, "12 3 456 7890", "٣٤٥ १२३ ½", "\x00\x01\x7f\x85", "fox\u3000dog\u2028cat", "e\u0301\u0323 e\u0323\u0301",
    "Once upon a time there was a little girl named Lily.", "relationalrelationalrelational", "\ufffd the \ufffd",
]


def train(model, trainer, **parts):
    tokenizer = Tokenizer(model)
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    tokenizer.train_from_iterator(CORPUS.splitlines(), trainer)
    return tokenizer


def bert(lowercase):
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = train(models.WordPiece(unk_token="[UNK]"), trainers.WordPieceTrainer(vocab_size=300, special_tokens=specials),
                      normalizer=normalizers.BertNormalizer(lowercase=lowercase), pre_tokenizer=pre_tokenizers.BertPreTokenizer(),
                      decoder=decoders.WordPiece())
    ids = {name: tokenizer.token_to_id(name) for name in specials}
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])])
    return tokenizer


def wordpiece_plain():
    return train(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20),
                 trainers.WordPieceTrainer(vocab_size=250, special_tokens=["[UNK]"]),
                 normalizer=normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()]),
                 pre_tokenizer=pre_tokenizers.Whitespace(), decoder=decoders.WordPiece(cleanup=False))


def unigram(scheme, normalizer, byte_fallback=False):
    specials = ["<unk>", "<s>", "</s>"] + ([f"<0x{b:02X}>" for b in range(256)] if byte_fallback else [])
    tokenizer = train(models.Unigram(), trainers.UnigramTrainer(vocab_size=220, unk_token="<unk>", special_tokens=["<unk>", "<s>", "</s>"]),
                      normalizer=normalizer, pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme=scheme),
                      decoder=decoders.Metaspace(prepend_scheme=scheme))
    if byte_fallback:
        spec = json.loads(tokenizer.to_str())
        spec["model"]["vocab"] += [[piece, -20.0] for piece in specials[3:]]
        spec["model"]["byte_fallback"] = True
        tokenizer = Tokenizer.from_str(json.dumps(spec))
    return tokenizer


def llama_like(legacy):
    steps = [normalizers.Replace(" ", "\u2581")]
    tokenizer = train(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"),
                      trainers.BpeTrainer(vocab_size=520, special_tokens=["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]),
                      normalizer=normalizers.Sequence(([normalizers.Prepend("\u2581")] if legacy else []) + steps),
                      decoder=decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
                                                + ([decoders.Strip(" ", 1, 0)] if legacy else [])))
    spec = json.loads(tokenizer.to_str())
    spec["added_tokens"] = [t for t in spec["added_tokens"] if not t["content"].startswith("<0x")]
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def bpe_words():
    return train(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"),
                 trainers.BpeTrainer(vocab_size=260, special_tokens=["<unk>"], end_of_word_suffix="</w>"),
                 pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation(),
                                                        pre_tokenizers.Digits(individual_digits=True)]),
                 decoder=decoders.BPEDecoder(suffix="</w>"))


def bpe_prefix(fuse):
    return train(models.BPE(unk_token="<unk>", continuing_subword_prefix="##", fuse_unk=fuse),
                 trainers.BpeTrainer(vocab_size=260, special_tokens=["<unk>"], continuing_subword_prefix="##"),
                 normalizer=normalizers.Sequence([normalizers.Strip(), normalizers.NFKC(), normalizers.Replace(Regex(r"\s+"), " ")]),
                 pre_tokenizer=pre_tokenizers.Split(" ", "merged_with_previous"))


def byte_level(pre, whole_words=False):
    tokenizer = train(models.BPE(), trainers.BpeTrainer(vocab_size=360, special_tokens=["<s>", "</s>"],
                                                        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()),
                      pre_tokenizer=pre, decoder=decoders.ByteLevel())
    if whole_words:
        spec = json.loads(tokenizer.to_str())
        spec["model"]["ignore_merges"] = True
        tokenizer = Tokenizer.from_str(json.dumps(spec))
    return tokenizer


def with_added(tokenizer):
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True), AddedToken("<sep>", rstrip=True)])
    tokenizer.add_tokens([AddedToken("<w>", single_word=True), AddedToken("fox", single_word=True), AddedToken("<se", normalized=False),
                          AddedToken("Added"), AddedToken("normé", normalized=True), AddedToken("the fox", normalized=False)])
    return tokenizer


def split(pattern, behavior, invert=False):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), behavior, invert),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def tokenizers():
    yield "bert_uncased", bert(True)
    yield "bert_cased", bert(False)
    yield "wordpiece_whitespace", wordpiece_plain()
    yield "unigram_always", unigram("always", normalizers.NFKC())
    yield "unigram_first_added", with_added(unigram("first", normalizers.Lowercase()))
    yield "unigram_bytes", unigram("never", normalizers.NFC(), byte_fallback=True)
    yield "llama_legacy", llama_like(True)
    yield "llama_added", with_added(llama_like(False))
    yield "bpe_words", bpe_words()
    yield "bpe_prefix", bpe_prefix(False)
    yield "bpe_prefix_fused", bpe_prefix(True)
    yield "byte_level_prefix_space", byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True))
    yield "byte_level_whole_words", with_added(byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), whole_words=True))
    yield "split_removed", byte_level(split(r"[\s\p{P}]+", "removed"))
    yield "split_next", byte_level(split(r"\s", "merged_with_next"))
    yield "split_previous", byte_level(split(r"\h{1,2}+|\s", "merged_with_previous"))
    yield "split_contiguous", byte_level(split(r"[\p{L}&&[^aeiou]]|\d", "contiguous"))
    yield "split_inverted", byte_level(split(r"(?i:the|fox)|\w{3}+|\p{Han}", "isolated", invert=True))


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else root / "tests/data/tokenizer_expectations.json"
    out = {"texts": TEXTS, "tokenizers": []}
    for name, tokenizer in tokenizers():
        encoded = [tokenizer.encode(text) for text in TEXTS]
        plain = [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]
        tokenizer.encode_special_tokens = True
        as_text = [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]
        tokenizer.encode_special_tokens = False
        out["tokenizers"].append({
            "name": name, "tokenizer": json.loads(tokenizer.to_str()), "with_special": [e.ids for e in encoded], "plain": plain,
            "special_as_text": as_text, "decoded": [tokenizer.decode(ids, skip_special_tokens=True) for ids in plain]})
    lines = ",\n".join(json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in out["tokenizers"])
    path.write_text('{"texts":' + json.dumps(TEXTS) + ',\n"tokenizers":[\n' + lines + "\n]}\n")


if __name__ == "__main__":
    main()
