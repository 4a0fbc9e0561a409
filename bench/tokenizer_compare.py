#!/usr/bin/env python3
"""Encoding speed of Lucid and of the Python package `tokenizers` on one thread, the two taking turns.

usage: bench/tokenizer_compare.py TOKENIZER... --text FILE [--text FILE ...] [-r ROUNDS] [--bench build/release/bench/tokenizer_bench]

TOKENIZER is a tokenizer.json, a tokenizer.json.xz or a .gguf file; a `tokenizers` object is built from the same file (from a .gguf as
tests/tokenizer_fuzz.py builds it, for the vocabularies it knows; needs the gguf package). Each text is encoded as a whole and line by
line. The package is timed by what is fastest there: encode_batch_fast for lines, the faster of that and encode for a whole text. Shown are
the best rates of all rounds in MB/s (10^6 bytes), the ratio of the medians of the rounds, and whether the ids are equal; exit status 1 if
any differ. Needs: pip install tokenizers (0.21 or newer).
"""
import argparse
import json
import lzma
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

ROOT = pathlib.Path(__file__).resolve().parent.parent


def reference(path):
    """The `tokenizers` object for a file, and the seconds it took to load from a tokenizer.json (or None)."""
    from tokenizers import Tokenizer
    path = pathlib.Path(path)
    if path.suffix == ".gguf":
        sys.path.insert(0, str(ROOT / "tests"))
        from tokenizer_fuzz import spec_from_gguf
        return Tokenizer.from_str(json.dumps(spec_from_gguf(str(path)))), None
    text = lzma.open(path).read().decode() if path.suffix == ".xz" else path.read_text()
    start = time.perf_counter()
    return Tokenizer.from_str(text), time.perf_counter() - start


def seconds_of(work):
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def time_reference(tokenizer, text, lines):
    """Seconds for the whole text and for its lines, and the ids of the whole."""
    by_batch, _ = seconds_of(lambda: tokenizer.encode_batch_fast([text], add_special_tokens=False))
    by_encode, encoding = seconds_of(lambda: tokenizer.encode(text, add_special_tokens=False))
    by_line, _ = seconds_of(lambda: tokenizer.encode_batch_fast(lines, add_special_tokens=False))
    return min(by_batch, by_encode), by_line, encoding.ids


def time_lucid(bench, path, file, folder):
    ids = pathlib.Path(folder, "ids")
    done = subprocess.run([bench, path, file, "--rounds=3", f"--ids={ids}"], check=True, stdout=subprocess.PIPE)
    report = json.loads(done.stdout)
    times = report["texts"][0]
    return min(times["whole"]), min(times["by_line"]), list(map(int, ids.read_text().split())), min(report["load"])


def compare(args, path):
    """True if all ids are equal."""
    tokenizer, reference_load = reference(path)
    equal = True
    for file in args.text:
        text = pathlib.Path(file).read_bytes().decode()
        lines = text.splitlines(keepends=True)
        n_bytes = len(text.encode())
        ours, theirs = ([], []), ([], [])
        load = []
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(args.rounds):
                whole, by_line, wanted = time_reference(tokenizer, text, lines)
                theirs[0].append(whole)
                theirs[1].append(by_line)
                whole, by_line, got, seconds = time_lucid(args.bench, path, file, folder)
                ours[0].append(whole)
                ours[1].append(by_line)
                load.append(seconds)
        same = got == wanted
        equal = equal and same
        for kind, a, b in (("whole", ours[0], theirs[0]), ("lines", ours[1], theirs[1])):
            ratio = statistics.median(b) / statistics.median(a)
            print(f"{pathlib.Path(path).parent.name + '/' + pathlib.Path(path).name:<40} {pathlib.Path(file).name:<16} {kind}"
                  f"  {n_bytes / min(a) / 1e6:8.2f} {n_bytes / min(b) / 1e6:8.2f}  {ratio:6.1f}x"
                  f"  {len(wanted)} ids {'equal' if same else 'DIFFER'}", flush=True)
    loads = f", tokenizers {reference_load * 1e3:.0f} ms" if reference_load else ""
    print(f"  load: lucid {min(load) * 1e3:.1f} ms{loads}", flush=True)
    return equal


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizers", nargs="+", metavar="TOKENIZER")
    parser.add_argument("--text", action="append", required=True)
    parser.add_argument("-r", "--rounds", type=int, default=3)
    parser.add_argument("--bench", default=str(ROOT / "build" / "release" / "bench" / "tokenizer_bench"))
    args = parser.parse_args()
    print(f"{'tokenizer':<40} {'text':<16} input  lucid MB/s   tokenizers  ratio")
    results = [compare(args, path) for path in args.tokenizers]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
