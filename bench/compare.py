#!/usr/bin/env python3
"""Lucid against llama.cpp on one machine, in one run, so that anyone can repeat a claim about the two.

usage: bench/compare.py LLAMA_BENCH -m MODEL.gguf [-p 512] [-n 128] [-d 0] [-t 2] [-r 3] [--pairs 9] [-o md|json]
       bench/compare.py LLAMA_BENCH -m MODEL.gguf --batched 32,64 [--npp 128 --ntg 64]

LLAMA_BENCH is the path of a llama.cpp llama-bench; with --batched, llama-batched-bench is taken from the same folder. Both
sides run the same file with the same numbers of threads and tokens and the same type of cache, one process a leg, in the
order A B B A A B B A ... The value of a leg is the median of its repetitions. llama.cpp runs with --repack 0 and 1 first and
keeps what is faster; those legs and one of Lucid are thrown away. Printed are the median of each side's legs, the median
of the ratios of the pairs, and the 95 % interval of that median (bootstrap over pairs).

Run it on a machine that does nothing else. What the hypervisor and other processes took while legs ran is printed too: a
pair that lost more than --max-disturbance is measured again, as often as there are pairs; where that was not enough, the row
is marked with a !. Fewer than three pairs have no interval. 'lucid limits' beforehand makes Lucid's legs a second shorter.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import random
import resource
import shlex
import shutil
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESAMPLES = 10_000
LEAST_FOR_INTERVAL = 3  # of one or two pairs, the interval would only be their range
# Types of the cache that both sides have: Lucid's name and the peer's. int8 and q8_0 are both a byte a value, with a float16
# scale for 32 of them.
KV_TYPES = {"f32": "f32", "f16": "f16", "bf16": "bf16", "int8": "q8_0"}


@dataclasses.dataclass(frozen=True)
class Test:
    """Tokens of a prompt, or generated ones after `depth` tokens, of `sequences` sequences at once (0: not batched)."""
    prompt: int = 0
    generated: int = 0
    depth: int = 0
    sequences: int = 0

    def name(self):
        if self.sequences:
            return f"tg{self.generated} of {self.sequences} @ {self.depth}"
        return (f"pp{self.prompt}" if self.prompt else f"tg{self.generated}") + (f" @ d{self.depth}" if self.depth else "")


# Arithmetic.

def interval(ratios, seed=1, resamples=RESAMPLES):
    """The 2.5th and 97.5th percentile of the medians of samples drawn from the ratios with replacement."""
    draw = random.Random(seed)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(resamples))
    return medians[int(0.025 * resamples)], medians[min(int(0.975 * resamples), resamples - 1)]


def summary(pairs):
    """Of (ours, theirs) pairs: both medians, the median ratio of a pair, and its interval, None of too few."""
    ratios = [ours / theirs for ours, theirs in pairs]
    low, high = interval(ratios) if len(ratios) >= LEAST_FOR_INTERVAL else (None, None)
    return {"ours": statistics.median(ours for ours, _ in pairs), "peer": statistics.median(theirs for _, theirs in pairs),
            "ratio": statistics.median(ratios), "low": low, "high": high, "ratios": ratios}


def cpu_times(stat):
    """Busy, stolen and all ticks of the first line of /proc/stat."""
    user, nice, system, idle, iowait, irq, softirq, steal = map(int, stat.split()[1:9])
    busy = user + nice + system + irq + softirq
    return busy, steal, busy + steal + idle + iowait


def disturbance(before, after, own_ticks):
    """Fractions of all CPU time between two cpu_times(): what a hypervisor took, and what other processes had."""
    busy, steal, total = (b - a for a, b in zip(before, after))
    return (steal / total, max(0.0, busy - own_ticks) / total) if total > 0 else (0.0, 0.0)


# Legs.

class Failed(Exception):
    """What went wrong, as a sentence."""


@dataclasses.dataclass
class Leg:
    rate: float   # tokens per second
    row: dict     # of the program's JSON
    steal: float
    others: float


def run(command):
    """The standard output of a command, and what happened on the machine meanwhile."""
    def own():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (usage.ru_utime + usage.ru_stime) * os.sysconf("SC_CLK_TCK")

    def times():
        return cpu_times(pathlib.Path("/proc/stat").read_text(encoding="ascii").splitlines()[0])

    before, ticks = times(), own()
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except OSError as error:
        raise Failed(f"cannot run {command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise Failed(f"'{shlex.join(command)}' ended with exit code {done.returncode}: {lines[-1] if lines else 'no message'}")
    return done.stdout.decode("utf-8", "replace"), disturbance(before, times(), own() - ticks)


def rows_of(text, command):
    """The objects of a JSON list, or of lines that hold one each among others that do not."""
    try:
        if text.lstrip().startswith("["):
            return json.loads(text)
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    except json.JSONDecodeError as error:
        raise Failed(f"'{shlex.join(command)}' did not print JSON: {error}") from error


def lucid_command(args, test):
    tokens = ["-p", test.prompt, "-n", test.generated, "-d", test.depth]
    batch = ["--batch", test.sequences] if test.sequences else []
    return [args.lucid, "bench", "-m", args.model, "-t", args.threads, *tokens, *batch, "-r", args.repetitions,
            "--kv", args.kv, "-o", "json", *args.lucid_flags]


def peer_command(args, test, repack):
    kv = KV_TYPES[args.kv]
    common = ["-m", args.model, "-t", args.threads, "-ctk", kv, "-ctv", kv, *args.peer_flags]
    if not test.sequences:
        return [args.peer, *common, "-fa", 1, "-p", test.prompt, "-n", test.generated, "-d", test.depth, "-r", args.repetitions,
                "--repack", repack, "-o", "json"]
    # It has no repetitions: a number of sequences that is given again is measured again.
    repeated = ",".join([str(test.sequences)] * args.repetitions)
    context = test.sequences * (test.depth + test.generated)
    return [batched_peer(args.peer), *common, "-fa", "on", "-c", context, "-npp", test.depth, "-ntg", test.generated,
            "-npl", repeated, "--output-format", "jsonl", *([] if repack else ["--no-repack"])]


def batched_peer(peer):
    return str(pathlib.Path(peer).with_name("llama-batched-bench"))


def leg(command):
    command = [str(word) for word in command]
    text, (steal, others) = run(command)
    rows = rows_of(text, command)
    # llama-bench and lucid: one row with its samples; llama-batched-bench: a row per repetition.
    rates = [rate for row in rows for rate in row.get("samples_ts", [row.get("speed_tg")])]
    if not rates or any(not isinstance(rate, (int, float)) or rate <= 0 for rate in rates):
        raise Failed(f"'{shlex.join(command)}' printed no speeds")
    return Leg(statistics.median(rates), rows[-1], steal, others)


def say(text):
    print(text, file=sys.stderr, flush=True)


def best_repack(args, test):
    """0 or 1, whichever gives the peer more tokens per second."""
    rates = {repack: leg(peer_command(args, test, repack)).rate for repack in (0, 1)}
    say(f"  peer: --repack 0 {rates[0]:.2f}, --repack 1 {rates[1]:.2f} tok/s")
    return max(rates, key=rates.get)


def compare(args, test):
    say(f"{test.name()}: warming up")
    repack = best_repack(args, test)
    leg(lucid_command(args, test))
    pairs, ours, lost, extra = [], [], [], args.pairs
    while len(pairs) < args.pairs:
        order = [("ours", lucid_command(args, test)), ("peer", peer_command(args, test, repack))]
        legs = {side: leg(command) for side, command in (order if len(pairs) % 2 == 0 else reversed(order))}
        disturbed = max(side.steal + side.others for side in legs.values()) * 100
        if args.max_disturbance and disturbed > args.max_disturbance and extra > 0:
            extra -= 1
            say(f"  disturbed ({disturbed:.1f} %), again")
            continue
        pairs.append((legs["ours"].rate, legs["peer"].rate))
        ours.append(legs["ours"].row)
        lost.append(disturbed)
        say(f"  {len(pairs)}/{args.pairs}: {pairs[-1][0]:.2f} against {pairs[-1][1]:.2f} tok/s")
    result = {"test": test.name(), **dataclasses.asdict(test), **summary(pairs), "pairs": pairs, "peer_repack": repack,
              "disturbance_percent": statistics.median(lost), "disturbed_and_repeated": args.pairs - extra,
              "disturbed_pairs": sum(disturbed > args.max_disturbance > 0 for disturbed in lost),
              "lucid_command": shlex.join(map(str, lucid_command(args, test))),
              "peer_command": shlex.join(map(str, peer_command(args, test, repack)))}
    for key in ("isa", "numerics", "cpu_info", "model_type", "build_commit"):
        result[key] = ours[-1].get(key)
    fractions = [row["limit_fraction"] for row in ours if "limit_fraction" in row]
    result["limit_fraction"] = statistics.median(fractions) if fractions else None
    return result


def markdown(args, results):
    first = results[0]
    lines = [f"{first['cpu_info']}, {args.threads} threads, {os.path.basename(args.model)} ({first['model_type']}), cache {args.kv}, "
             f"{args.pairs} pairs of {args.repetitions} repetitions, Lucid {first['build_commit']}",
             "",
             "| test | Lucid, tok/s | llama.cpp, tok/s | ratio | 95 % interval | of the machine's limit | kernels | numerics | --repack | others had |",
             "| --- | ---: | ---: | ---: | --- | ---: | --- | --- | ---: | ---: |"]
    for r in results:
        between = "-" if r["low"] is None else f"{r['low']:.2f} to {r['high']:.2f}"
        mark = " !" if r["disturbed_pairs"] else ""
        limit = "-" if r["limit_fraction"] is None else f"{r['limit_fraction'] * 100:.0f} %"
        lines.append(f"| {r['test']} | {r['ours']:.2f} | {r['peer']:.2f} | **{r['ratio']:.2f}** | {between} | "
                     f"{limit} | {r['isa']} | {r['numerics']} | {r['peer_repack']} | {r['disturbance_percent']:.1f} %{mark} |")
    if any(r["disturbed_pairs"] for r in results):
        lines += ["", f"!: some pairs lost more than {args.max_disturbance:g} % to others, as often as they were measured"]
    return "\n".join(lines)


def tests_of(args):
    if args.batched:
        return [Test(generated=args.ntg, depth=args.npp, sequences=n) for n in args.batched]
    tests = [test for depth in args.depths
             for test in [Test(prompt=n, depth=depth) for n in args.prompts] + [Test(generated=n, depth=depth) for n in args.gens]]
    return [test for test in tests if test.prompt or test.generated]


# Flags: each turns the text of one into its value, or says why not.

def at_least(least):
    def number(text):
        if not text.strip().removeprefix("-").isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least {least}")
        return int(text)
    return number


def list_at_least(least):
    return lambda text: [at_least(least)(item) for item in text.split(",")]


def percent(text):
    try:
        if 0 <= float(text) < float("inf"):
            return float(text)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is no number of at least 0")


def words(text):
    try:
        return shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error


def kv_type(text):
    """Lucid's name of a type, given by either side's."""
    for ours, theirs in KV_TYPES.items():
        if text in (ours, theirs):
            return ours
    raise argparse.ArgumentTypeError(f"{text!r} is no type that both sides have: {', '.join(KV_TYPES)}")


def parse(arguments):
    positive = at_least(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", metavar="LLAMA_BENCH")
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-p", "--prompts", type=list_at_least(0), default=[512], help="prompt tokens, a list; 0: none")
    parser.add_argument("-n", "--gens", type=list_at_least(0), default=[128], help="generated tokens, a list; 0: none")
    parser.add_argument("-d", "--depths", type=list_at_least(0), default=[0], help="tokens in the cache before, a list")
    parser.add_argument("-t", "--threads", type=positive, default=2)
    parser.add_argument("-r", "--repetitions", type=positive, default=3, help="of a leg")
    parser.add_argument("--pairs", type=positive, default=9)
    parser.add_argument("--kv", type=kv_type, default="f16", help="type of the cache: f32, f16, bf16, int8 (the peer's q8_0)")
    parser.add_argument("--batched", type=list_at_least(1), metavar="B,...", help="batched decode of so many sequences instead")
    parser.add_argument("--npp", type=positive, default=128, help="with --batched: tokens of each prompt")
    parser.add_argument("--ntg", type=positive, default=64, help="with --batched: tokens that each sequence generates")
    parser.add_argument("--max-disturbance", type=percent, default=5, metavar="PERCENT",
                        help="repeat pairs that lost more, and mark rows; 0: neither (default: 5)")
    parser.add_argument("--lucid", default=str(ROOT / "build" / "release" / "lucid"))
    parser.add_argument("--lucid-flags", type=words, default=[], help="more flags of lucid bench, as one argument")
    parser.add_argument("--peer-flags", type=words, default=[], help="more flags of the peer")
    parser.add_argument("-o", "--output", choices=("md", "json"), default="md")
    args = parser.parse_args(arguments)
    if not tests_of(args):
        parser.error("-p and -n name no test of at least one token")
    return args


def main(arguments=None):
    args = parse(arguments)
    try:
        for program in (args.lucid, batched_peer(args.peer) if args.batched else args.peer):
            if shutil.which(program) is None:
                raise Failed(f"there is no program {program}")
        results = [compare(args, test) for test in tests_of(args)]
    except Failed as error:
        print(f"compare: {error}", file=sys.stderr)
        return 1
    if args.output == "json":
        print(json.dumps({"model": args.model, "threads": args.threads, "repetitions": args.repetitions, "kv": args.kv,
                          "results": results}, indent=2))
    else:
        print(markdown(args, results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
