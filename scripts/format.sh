#!/usr/bin/env bash
# Formats every C++ file with clang-format 14, or with --check only says which are not formatted.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tool="$(command -v clang-format-14 || command -v clang-format || true)"
if [ -z "$tool" ]; then
  echo "format: clang-format is not installed (Debian: apt-get install clang-format-14)" >&2
  exit 1
fi
mapfile -d '' files < <(find src fuzz bench -type f \( -name '*.h' -o -name '*.cc' \) -print0 2>/dev/null)
if [ "${1:-}" = --check ]; then
  printf '%s\0' "${files[@]}" | xargs -0 "$tool" --dry-run -Werror
  echo "format: ${#files[@]} files are as clang-format writes them"
else
  printf '%s\0' "${files[@]}" | xargs -0 "$tool" -i
  echo "format: formatted ${#files[@]} files"
fi
