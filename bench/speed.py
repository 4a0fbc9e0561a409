#!/usr/bin/env python3
"""Load time, prompt speed and decode speed of `lucid run`: median, minimum and maximum over several runs, one after the other.

usage: bench/speed.py MODEL [-r RUNS] [-t THREADS] [-p PROMPT_WORDS] [-n TOKENS] [--lucid PATH]

Run it on a machine that does nothing else. Beside each decode figure stands the rate at which weights were streamed (bytes that a token
reads, from `lucid trace`), to be compared with the memory's read bandwidth.
"""
import argparse
import json
import pathlib
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent


def row(name, values, unit):
    print(f"{name:<22} {statistics.median(values):>10.3f} {min(values):>10.3f} {max(values):>10.3f}  {unit}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("-r", "--runs", type=int, default=5)
    parser.add_argument("-t", "--threads", type=int, default=0)
    parser.add_argument("-p", "--prompt-words", type=int, default=400)
    parser.add_argument("-n", "--tokens", type=int, default=128)
    parser.add_argument("--lucid", default=str(ROOT / "build" / "release" / "lucid"))
    args = parser.parse_args()

    def lucid(*command):
        return json.loads(subprocess.run([args.lucid, *map(str, command)], check=True, capture_output=True).stdout)

    model = ["-m", args.model, "-t", args.threads]
    trace = lucid("trace", *model, "--tokens", "1", "--json")
    streamed = sum(op["weight_bytes"] for op in trace["phases"][1]["ops"])
    prompt = " ".join(f"word{i % 97}" for i in range(args.prompt_words))
    runs = [lucid("run", *model, "--raw", "-p", prompt, "-n", args.tokens, "--ignore-eos", "--temp", 0, "--json")
            for _ in range(args.runs + 1)][1:]  # the first warms the page cache

    def figures(key):
        return [run["timings"][key] for run in runs]

    print(f"{args.model}: {trace['threads']} threads, {runs[0]['usage']['prompt_tokens']} prompt tokens, "
          f"{args.tokens} generated, {args.runs} runs")
    print(f"{'':<22} {'median':>10} {'min':>10} {'max':>10}")
    row("load", figures("load_seconds"), "s")
    row("prompt", figures("prompt_tokens_per_second"), "tok/s")
    row("decode", figures("decode_tokens_per_second"), "tok/s")
    row("weights streamed", [v * streamed / 1e9 for v in figures("decode_tokens_per_second")], "GB/s")


if __name__ == "__main__":
    main()
