#!/bin/sh
# Checks the objects that are compiled for one instruction set: each may define only its table getter.
# The row kernels of the samplers and the probes of `lucid limits` are such objects too.
#
#   scripts/check_isa_symbols.sh BUILD_DIR
#
# A weak symbol there (an inline function or a template of a header) could be the copy that the linker keeps for the whole
# program, and then a CPU without that instruction set would stop in code that has nothing to do with kernels (ADR 0003).
set -eu
build=${1:?usage: check_isa_symbols.sh BUILD_DIR}
objects=$(find "$build" \( -name 'isa_*.cc.o' -o -name 'rows_*.cc.o' -o -name 'probe_*.cc.o' \) ! -name '*_test.cc.o')
[ -n "$objects" ] || { echo "no isa_*.cc.o, rows_*.cc.o or probe_*.cc.o below $build: build liblucid first" >&2; exit 1; }

status=0
for object in $objects; do
  # Sanitizer runtimes and coverage bring symbols of their own; the getters are what must remain.
  others=$("${NM:-nm}" --defined-only --extern-only --demangle "$object" |
    grep -v -E ' [TR] lucid::[A-Za-z0-9]+(Kernels|Probes)\(\)$' | grep -v -E ' (__odr_asan|DW\.ref\.)' || true)
  if [ -n "$others" ]; then
    echo "$object defines more than its table getter:" >&2
    echo "$others" >&2
    status=1
  fi
done
[ "$status" -eq 0 ] && echo "isa objects define only their table getters"
exit "$status"
