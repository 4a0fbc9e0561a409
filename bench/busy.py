#!/usr/bin/env python3
"""Decode speed beside processes that keep CPUs busy, as a part of the speed on the idle machine.

usage: bench/busy.py MODEL [-t THREADS] [-n TOKENS] [--rounds N] [--least PERCENT] [--lucid PATH]

Each round measures the idle machine, then every kind of company: one busy process wherever the system puts it, one on each of the
first and the last CPU that may be used, one with a nice level of 10, and as many as there are CPUs. Medians over the rounds. Run it on
a machine that does nothing else. With --least, exits 1 if one busy process leaves less than this part of the idle speed.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Ends with the process that has started it.
BUSY = [sys.executable, "-c", "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"]
SETTLE_SECONDS = 0.3


def companies():
    """Name -> the busy processes' argument lists."""
    cpus = sorted(os.sched_getaffinity(0))
    kinds = {"idle": [], "one busy process": [BUSY]}
    for cpu in dict.fromkeys((cpus[0], cpus[-1])):
        kinds[f"one on CPU {cpu}"] = [["taskset", "-c", str(cpu), *BUSY]]
    kinds["one with nice 10"] = [["nice", "-n", "10", *BUSY]]
    kinds[f"{len(cpus)} busy processes"] = [BUSY] * len(cpus)
    return kinds


def measure(args, busy):
    processes = [subprocess.Popen(command) for command in busy]
    try:
        time.sleep(SETTLE_SECONDS)
        command = [args.lucid, "bench", "-m", args.model, "-t", str(args.threads), "-p", "0", "-n", str(args.tokens), "-r", "1", "-o", "json"]
        [row] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        return row["avg_ts"]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("-t", "--threads", type=int, default=0)
    parser.add_argument("-n", "--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--least", type=float)
    parser.add_argument("--lucid", default=str(ROOT / "build" / "release" / "lucid"))
    args = parser.parse_args()

    kinds = companies()
    speeds = {name: [] for name in kinds}
    for _ in range(args.rounds):
        for name, busy in kinds.items():
            speeds[name].append(measure(args, busy))
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    print(f"{args.model}: {args.tokens} tokens, {args.rounds} rounds; tokens/s")
    print(f"{'':<20} {'median':>8} {'min':>8} {'max':>8} {'of idle':>8}")
    for name, values in speeds.items():
        part = 100 * medians[name] / medians["idle"]
        print(f"{name:<20} {medians[name]:>8.1f} {min(values):>8.1f} {max(values):>8.1f} {part:>7.0f}%")
    worst = min(100 * medians[name] / medians["idle"] for name, busy in kinds.items() if len(busy) == 1)
    return 1 if args.least is not None and worst < args.least else 0


if __name__ == "__main__":
    sys.exit(main())
