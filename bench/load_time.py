#!/usr/bin/env python3
"""Time from the start of a process to the first token of its reply: Lucid against llama.cpp, the model's file in the page cache.

usage: bench/load_time.py LLAMA_COMPLETION -m MODEL.gguf [-t 2] [-p PROMPT] [-c 4096] [--pairs 9] [-o md|json]

LLAMA_COMPLETION is the path of a llama.cpp llama-completion. Rows: Lucid with packed weights that an earlier start kept, and
Lucid packing them (--no-pack-cache). A leg is one process that generates one token after the prompt; the clock stops when the
first byte comes out of it. Legs alternate A B B A; llama.cpp runs without its warm-up, with and without --no-repack first, and
keeps what is faster. Printed are the median of each side, the median of the pairs' ratios, and the 95 % interval of that median.

Run it on a machine that does nothing else, with memory for the model's file and its packed weights.
"""
import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import time

from compare import ROOT, Failed, say, summary


def first_token_seconds(command):
    """Seconds until the first byte of the standard output of a command that must succeed."""
    start = time.monotonic()
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as error:
        raise Failed(f"cannot run {command[0]}: {error.strerror}") from error
    with process:
        first = os.read(process.stdout.fileno(), 1)
        seconds = time.monotonic() - start
        _, complaint = process.communicate()
    if process.returncode != 0 or not first:
        lines = complaint.decode("utf-8", "replace").strip().splitlines()
        raise Failed(f"'{shlex.join(command)}' ended with exit code {process.returncode}: {lines[-1] if lines else 'no output'}")
    return seconds


def lucid_command(args, flags):
    command = [args.lucid, "run", "-m", args.model, "-t", args.threads, "-c", args.context, "--raw", "-p", args.prompt, "-n", 1,
               "--temp", 0, "--ignore-eos", *flags, *shlex.split(args.lucid_flags)]
    return [str(word) for word in command]


def peer_command(args, flags):
    command = [args.peer, "-m", args.model, "-t", args.threads, "-c", args.context, "-p", args.prompt, "-n", 1, "--temp", 0,
               "--ignore-eos", "-no-cnv", "--no-warmup", "--no-display-prompt", *flags, *shlex.split(args.peer_flags)]
    return [str(word) for word in command]


def best_peer(args):
    times = {}
    for flags in ([], ["--no-repack"]):
        command = peer_command(args, flags)
        times[tuple(command)] = min(first_token_seconds(command) for _ in range(2))
        say(f"  peer {' '.join(flags) or 'as it is'}: {times[tuple(command)]:.3f} s")
    return list(min(times, key=times.get))


def compare(args, name, ours, peer):
    say(f"{name}: warming up")
    for _ in range(2):  # the first may leave packed weights for the next
        first_token_seconds(ours)
    pairs = []
    while len(pairs) < args.pairs:
        order = [("ours", ours), ("peer", peer)]
        legs = {side: first_token_seconds(command) for side, command in (order if len(pairs) % 2 == 0 else reversed(order))}
        pairs.append((legs["ours"], legs["peer"]))
        say(f"  {len(pairs)}/{args.pairs}: {legs['ours']:.3f} against {legs['peer']:.3f} s")
    # A ratio above 1: that many times faster.
    faster = summary([(1 / a, 1 / b) for a, b in pairs])
    return {"test": name, "pairs": pairs, "ours": statistics.median(a for a, _ in pairs),
            "peer": statistics.median(b for _, b in pairs), **{key: faster[key] for key in ("ratio", "low", "high")},
            "lucid_command": shlex.join(ours), "peer_command": shlex.join(peer)}


def markdown(args, results):
    lines = [f"{os.path.basename(args.model)}, {args.threads} threads, process start to first token, {args.pairs} pairs", "",
             "| start | Lucid, s | llama.cpp, s | times faster | 95 % interval |", "| --- | ---: | ---: | ---: | --- |"]
    lines += [f"| {r['test']} | {r['ours']:.3f} | {r['peer']:.3f} | **{r['ratio']:.2f}** | {r['low']:.2f} to {r['high']:.2f} |"
              for r in results]
    return "\n".join(lines)


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", metavar="LLAMA_COMPLETION")
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-p", "--prompt", default="Hello")
    parser.add_argument("-c", "--context", type=int, default=4096)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--lucid", default=str(ROOT / "build" / "release" / "lucid"))
    parser.add_argument("--lucid-flags", default="", help="more flags of lucid run, as one argument")
    parser.add_argument("--peer-flags", default="", help="more flags of the peer")
    parser.add_argument("-o", "--output", choices=("md", "json"), default="md")
    return parser.parse_args(arguments)


def main(arguments=None):
    args = parse(arguments)
    try:
        peer = best_peer(args)
        results = [compare(args, "packed weights are mapped", lucid_command(args, []), peer),
                   compare(args, "weights are packed", lucid_command(args, ["--no-pack-cache"]), peer)]
    except Failed as error:
        print(f"load_time: {error}", file=sys.stderr)
        return 1
    print(json.dumps({"model": args.model, "threads": args.threads, "results": results}, indent=2) if args.output == "json"
          else markdown(args, results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
