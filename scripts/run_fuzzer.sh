#!/usr/bin/env bash
# Runs one libFuzzer target for a while: run_fuzzer.sh FUZZER_BINARY CORPUS_FOLDER
# LUCID_FUZZ_SECONDS sets the time (default 60). New inputs go to a temporary folder, not into the corpus.
set -euo pipefail
binary="$1"
corpus="$2"
if [ ! -x "$binary" ]; then
  echo "$binary is not built (cmake --preset fuzz && cmake --build --preset fuzz)"
  exit 77
fi
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/found" "$scratch/seeds"
[ -d "$corpus" ] && cp -r "$corpus/." "$scratch/seeds/"
cd "$scratch"  # a crash input lands here and is printed below
status=0
"$binary" -max_total_time="${LUCID_FUZZ_SECONDS:-60}" -timeout=10 -rss_limit_mb=2048 -max_len=65536 \
  -print_final_stats=1 found seeds || status=$?
for input in crash-* timeout-* oom-* leak-*; do
  [ -e "$input" ] || continue
  echo "failing input $input (base64):"
  base64 -w 100 "$input"
done
exit "$status"
