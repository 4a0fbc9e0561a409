#!/usr/bin/env python3
"""What `lucid batch` adds to the steps that it runs: its time for N prompts against the time that `lucid bench` gives for the same
tokens, one after the other, several times in turn.

usage: bench/batch_overhead.py MODEL [-N SEQUENCES] [-p PROMPT] [-n TOKENS] [-r ROUNDS] [-t THREADS] [--lucid PATH]

Expected: N prompts of P tokens at the rate of pp P, then N times n - 1 tokens (the first comes with the prompt) at the rate of tg n at depth P,
both measured with N sequences at once. Run it on a machine that does nothing else.
"""
import argparse
import json
import pathlib
import random
import re
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("-N", "--sequences", type=int, default=64)
    parser.add_argument("-p", "--prompt", type=int, default=256)
    parser.add_argument("-n", "--tokens", type=int, default=128)
    parser.add_argument("-r", "--rounds", type=int, default=3)
    parser.add_argument("-t", "--threads", type=int, default=0)
    parser.add_argument("--vocab", type=int, default=30000, help="token ids are drawn below this")
    parser.add_argument("--lucid", default=str(ROOT / "build" / "release" / "lucid"))
    args = parser.parse_args()

    def lucid(*command):
        return subprocess.run([args.lucid, *map(str, command)], check=True, capture_output=True, text=True)

    def bench(flags):
        [row] = json.loads(lucid("bench", "-m", args.model, "-t", args.threads, "--batch", args.sequences, "-r", 1, "-o", "json",
                                 *flags).stdout)
        return row["avg_ts"]

    with tempfile.TemporaryDirectory() as folder:
        rows, out = pathlib.Path(folder, "in.jsonl"), pathlib.Path(folder, "out.jsonl")
        draw = random.Random(1)
        rows.write_text("".join(
            json.dumps({"prompt": [draw.randrange(args.vocab) for _ in range(args.prompt)], "max_tokens": args.tokens,
                        "ignore_eos": True}) + "\n" for _ in range(args.sequences)))

        def batch():
            done = lucid("batch", rows, "-m", args.model, "-t", args.threads, "-o", out, "--overwrite", "--temp", 0, "-np",
                         args.sequences)
            return float(re.search(r" in ([\d.]+) s", done.stderr)[1])

        expected, taken = [], []
        for round_number in range(args.rounds):
            prompt_rate = bench(["-p", args.prompt, "-n", 0])
            gen_rate = bench(["-p", 0, "-n", args.tokens - 1, "-d", args.prompt])
            expected.append(args.sequences * (args.prompt / prompt_rate + (args.tokens - 1) / gen_rate))
            taken.append(batch())
            print(f"round {round_number + 1}: pp {prompt_rate:.1f} tok/s, tg {gen_rate:.1f} tok/s: {expected[-1]:.2f} s expected, "
                  f"{taken[-1]:.2f} s taken", flush=True)
    ratio = statistics.median(taken) / statistics.median(expected)
    print(f"medians: {statistics.median(expected):.2f} s expected, {statistics.median(taken):.2f} s taken, ratio {ratio:.3f}")


if __name__ == "__main__":
    main()
