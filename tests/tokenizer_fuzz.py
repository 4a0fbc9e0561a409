#!/usr/bin/env python3
"""Differential fuzz: `lucid tokenize` against the Python `tokenizers` package, id for id.

    tests/tokenizer_fuzz.py --lucid build/release/lucid --shared ../shared [-n 20000] [--seed 1]
    tests/tokenizer_fuzz.py --lucid build/release/lucid --gguf model.gguf      # needs the gguf package

For every tokenizer of shared/tokenizers it makes random strings (scripts of the world, emoji sequences,
digits, white space, CRLF, controls, added tokens and near misses of them) and encodes each in the three
modes: every added token recognised, special ones as text, none at all. With --gguf a `tokenizers` object is
rebuilt from the file's own vocabulary. Prints the first difference of each mode; exit status 1 on any.
Needs: pip install tokenizers (0.21 or newer).
"""
import argparse
import json
import lzma
import pathlib
import random
import subprocess
import sys
import tempfile

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

MODES = {
    "parse_special": ["--parse-special"],
    "special_as_text": ["--no-parse-special"],
    "no_added": ["--no-added-tokens"],
}

# First and last code point of the blocks that letters and marks are drawn from.
BLOCKS = [
    (0x20, 0x7E), (0xA0, 0xFF), (0x100, 0x24F), (0x250, 0x2AF), (0x2B0, 0x2FF), (0x300, 0x36F), (0x370, 0x3FF),
    (0x400, 0x52F), (0x530, 0x58F), (0x590, 0x5FF), (0x600, 0x6FF), (0x700, 0x74F), (0x780, 0x7BF),
    (0x900, 0x97F), (0x980, 0x9FF), (0xA00, 0xA7F), (0xB80, 0xBFF), (0xC00, 0xC7F), (0xD00, 0xD7F),
    (0xE00, 0xE7F), (0xE80, 0xEFF), (0xF00, 0xFFF), (0x1000, 0x109F), (0x10A0, 0x10FF), (0x1100, 0x11FF),
    (0x1200, 0x137F), (0x13A0, 0x13FF), (0x1400, 0x167F), (0x1780, 0x17FF), (0x1800, 0x18AF), (0x1C80, 0x1CFF),
    (0x1E00, 0x1EFF), (0x1F00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x209F), (0x20A0, 0x20CF), (0x20D0, 0x20FF),
    (0x2100, 0x214F), (0x2150, 0x218F), (0x2190, 0x21FF), (0x2200, 0x22FF), (0x2460, 0x24FF), (0x2500, 0x257F),
    (0x2600, 0x26FF), (0x2E80, 0x2FDF), (0x3000, 0x303F), (0x3040, 0x30FF), (0x3100, 0x312F), (0x3130, 0x318F),
    (0x3200, 0x32FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xA000, 0xA4CF), (0xA720, 0xA7FF), (0xAC00, 0xD7A3),
    (0xE000, 0xE0FF), (0xF900, 0xFAFF), (0xFB00, 0xFB4F), (0xFE00, 0xFE0F), (0xFE20, 0xFE2F), (0xFF00, 0xFFEF),
    (0xFFF0, 0xFFFD), (0x10000, 0x100FF), (0x10400, 0x1044F), (0x10D40, 0x10D8F), (0x11000, 0x1107F),
    (0x11F00, 0x11F59), (0x12000, 0x123FF), (0x13430, 0x1345F), (0x16A40, 0x16A6F), (0x1D100, 0x1D1FF),
    (0x1D400, 0x1D7FF), (0x1E900, 0x1E95F), (0x1F100, 0x1F1FF), (0x1F300, 0x1F64F), (0x1F680, 0x1F6FF),
    (0x1F900, 0x1FAFF), (0x1FBF0, 0x1FBF9), (0x20000, 0x2A6DF), (0x2F800, 0x2FA1F), (0x31350, 0x323AF),
    (0xE0020, 0xE007F), (0xE0100, 0xE01EF), (0x100000, 0x1000FF),
]
SPACES = list("    \t\n\r\v\f\x1c\x1f\x85\xa0\u1680\u180e\u2000\u2003\u2009\u200b\u2028\u2029\u202f\u205f\u3000\ufeff") + \
    ["  ", "   ", "\r\n", "\n\n", "\r\n\r\n", "\t\t", " \n", "\n ", " " * 7, " " * 16, "\u2581", "\u2581\u2581"]
PUNCTUATION = list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~。，、！？：；「」（）…—–‘’“”«»¿¡§¶†‡•·٪؟।")
WORDS = ["the", "The", "HELLO", "don't", "I'm", "we'LL", "it'S", "'s", "'S", "'ſ", "'re", "'VE", "n't", "foo_bar",
         "CamelCase", "naïve", "straße", "ﬁne", "İstanbul", "ǅ", "a\u0301", "e\u0301\u0323", "e\u0323\u0301", "한글",
         "각", "\u1100\u1161\u11a8", "日本語", "ひらがな", "カタカナ", "你好", "𠮷野家", "ไทย", "हिन्दी", "தமிழ்", "العربية",
         "עִבְרִית", "русский", "ελληνικά", "Ά", "\u212b", "\u2126", "\u1e9b\u0323", "x²", "½", "Ⅷ", "①", "def", "return", "0x1F",
         "http://a.b/c?d=1&e", "3.14", "1,000", "12345678", "१२३", "٣٤٥", "//", "/*", "*/", "```", "<tag>", "&amp;"]
EMOJI = ["👨‍👩‍👧‍👦", "👍🏽", "🏴\u200d☠️", "🇫🇷🇯🇵", "1️⃣", "❤️", "🧑🏿‍🚀", "🏴\U000e0067\U000e0062\U000e007f", "🫠", "🫨", "🪿", "😀", "☺", "✈️"]


def random_char(rng):
    if rng.random() < 0.03:
        while True:
            code = rng.randrange(0x110000)
            if not 0xD800 <= code <= 0xDFFF:
                return chr(code)
    first, last = rng.choice(BLOCKS)
    return chr(rng.randint(first, last))


def random_part(rng, added):
    kind = rng.randrange(14)
    if kind == 0:
        return "".join(random_char(rng) for _ in range(rng.randint(1, 6)))
    if kind == 1:  # one script
        first, last = rng.choice(BLOCKS)
        return "".join(chr(rng.randint(first, last)) for _ in range(rng.randint(1, 10)))
    if kind == 2:
        return "".join(rng.choice(SPACES) for _ in range(rng.randint(1, 4)))
    if kind == 3:
        return str(rng.randrange(10 ** rng.randint(1, 12)))
    if kind == 4:
        return "".join(rng.choice(PUNCTUATION) for _ in range(rng.randint(1, 5)))
    if kind == 5:
        return rng.choice(EMOJI)
    if kind == 6:
        return chr(rng.choice(list(range(0, 32)) + [127] + list(range(128, 160))))
    if kind == 7 and added:
        return rng.choice(added)
    if kind == 8 and added:  # looks like an added token, and is none
        token = rng.choice(added)
        at = rng.randrange(len(token) + 1)
        return rng.choice([token[:at], token[at:], token[:at] + " " + token[at:], token.upper(), token + token[:at]])
    if kind == 9:
        return rng.choice(["a", "A", " ", "\n", "1", "é", "字", "-", "=", "👍", "\u0301", "ß"]) * rng.randint(1, 40)
    if kind == 10:  # a base and its marks
        return rng.choice("aeioAEIOnсиあ한") + "".join(chr(rng.randint(0x300, 0x36F)) for _ in range(rng.randint(1, 4)))
    if kind == 11:
        return rng.choice(["", " "]) + rng.choice(WORDS)
    return " " + rng.choice(WORDS) if rng.random() < 0.7 else rng.choice(WORDS)


def random_text(rng, added):
    if rng.random() < 0.01:
        return ""
    return "".join(random_part(rng, added) for _ in range(rng.randint(1, 8)))


def run_lucid(lucid, path, flags, texts):
    """The ids that lucid gives for each text."""
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    done = subprocess.run([lucid, "tokenize", "-m", str(path), "--jsonl", "--no-add-special", *flags],
                          input=lines.encode(), stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def reference(spec, mode):
    """A `tokenizers` object for one mode; `spec` is the parsed tokenizer.json."""
    if mode == "no_added":
        spec = dict(spec, added_tokens=[])
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    tokenizer.encode_special_tokens = mode == "special_as_text"
    return tokenizer


def compare(args, name, path, spec, modes):
    """Number of modes that differ."""
    rng = random.Random(f"{args.seed}/{name}")
    added = [token["content"] for token in spec["added_tokens"]]
    texts = [random_text(rng, added) for _ in range(args.n)]
    failures = 0
    for mode in modes:
        tokenizer = reference(spec, mode)
        wanted = [e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=False)]
        got = run_lucid(args.lucid, path, MODES[mode], texts)
        differ = [i for i in range(len(texts)) if i >= len(got) or got[i] != wanted[i]]
        print(f"{name} {mode}: {len(texts)} strings, {sum(map(len, wanted))} ids, {len(differ)} differ", flush=True)
        if differ:
            failures += 1
            i = min(differ, key=lambda i: len(texts[i]))
            print(f"  text     {texts[i]!r}\n  expected {wanted[i]}\n  lucid    {got[i] if i < len(got) else None}")
    return failures


def spec_from_gguf(path):
    """A tokenizer.json for the vocabulary of a GGUF file (byte-level BPE of SmolLM or GPT-2, or SentencePiece BPE)."""
    from gguf import GGUFReader
    fields = GGUFReader(path).fields

    def get(key):
        field = fields.get("tokenizer.ggml." + key)
        return None if field is None else field.contents()

    tokens, kinds = get("tokens"), get("token_type")
    vocab = {token: i for i, token in reversed(list(enumerate(tokens)))}
    if get("model") == "llama":
        scores = get("scores")
        ordinary = {t: i for t, i in vocab.items() if kinds[i] not in (2, 3, 6)}
        merges = []
        for piece, i in ordinary.items():
            parts = [(piece[:k], piece[k:]) for k in range(1, len(piece)) if piece[:k] in ordinary and piece[k:] in ordinary]
            merges += [(-scores[i], vocab[left], vocab[right], left, right) for left, right in parts]
        merges = [(left, right) for *_, left, right in sorted(merges)]
        tokenizer = Tokenizer(models.BPE(vocab, merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
        steps = [normalizers.Replace(" ", "\u2581")]
        if get("add_space_prefix") is not False:
            steps.insert(0, normalizers.Prepend("\u2581"))
        tokenizer.normalizer = normalizers.Sequence(steps)
    else:
        tokenizer = Tokenizer(models.BPE(vocab, [tuple(m.split(" ", 1)) for m in get("merges")]))
        steps = {"smollm": [pre_tokenizers.Digits(individual_digits=True)], "gpt-2": []}[get("pre")]
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps + [pre_tokenizers.ByteLevel(add_prefix_space=False)])
        tokenizer.decoder = decoders.ByteLevel()
    for i, token in enumerate(tokens):
        if kinds[i] in (2, 3):
            tokenizer.add_special_tokens([AddedToken(token, normalized=False)])
        elif kinds[i] == 4:
            tokenizer.add_tokens([AddedToken(token, normalized=False)])
    return json.loads(tokenizer.to_str())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lucid", required=True, help="the lucid binary")
    parser.add_argument("--shared", help="folder that holds tokenizers/NAME/tokenizer.json.xz")
    parser.add_argument("--gguf", action="append", default=[], help="GGUF file to compare by its own vocabulary")
    parser.add_argument("--json", action="append", default=[], help="tokenizer.json to compare")
    parser.add_argument("-n", type=int, default=20000, help="strings for each tokenizer")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    failures = 0
    paths = sorted(pathlib.Path(args.shared, "tokenizers").glob("*/tokenizer.json.xz")) if args.shared else []
    for path in paths:
        spec = json.loads(lzma.open(path).read())
        with tempfile.TemporaryDirectory() as folder:  # unpacked once, and away from tokenizer_config.json
            plain = pathlib.Path(folder, "tokenizer.json")
            plain.write_text(json.dumps(spec))
            failures += compare(args, path.parent.name, plain, spec, MODES)
    for path in args.json:
        failures += compare(args, path, path, json.loads(pathlib.Path(path).read_text()), MODES)
    for path in args.gguf:
        spec = spec_from_gguf(path)
        # SentencePiece has no mode without its user-defined pieces: they have no merges of their own.
        modes = [mode for mode in MODES if mode != "no_added" or not spec["model"]["byte_fallback"]]
        failures += compare(args, path, path, spec, modes)
    if not paths and not args.gguf and not args.json:
        sys.exit("nothing to compare: give --shared, --json or --gguf")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
