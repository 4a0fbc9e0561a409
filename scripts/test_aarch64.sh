#!/usr/bin/env bash
# Cross-builds base, tensor and kernels for 64-bit Arm and runs their unit tests under qemu-aarch64, on a CPU with dot
# products and, for the choice of kernels, on one without. Exit code 77: skipped, with a sentence why.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
skip() { echo "test_aarch64: skipped: $*" >&2; exit 77; }

[ "$(uname -m)" != aarch64 ] || skip "this machine is an Arm, so that ./test has run these tests without an emulator"
scripts/install_deps.sh cross || skip "there is no cross compiler or no qemu-aarch64"
scripts/aarch64_root.sh build/aarch64-root || {
  [ $? -eq 77 ] || exit 1
  skip "there are no arm64 libraries"
}

build=build/aarch64-test
cmake --preset aarch64 -B "$build" -DLUCID_BUILD_TESTS=ON "-DLUCID_ONLY_MODULES=base;tensor;kernels"
cmake --build "$build" -j "$(nproc)"
NM=aarch64-linux-gnu-nm scripts/check_isa_symbols.sh "$build"
ctest --test-dir "$build" -j "$(nproc)" --output-on-failure --no-tests=error -Q -O "$build/ctest.log" ||
  { tail -n 200 "$build/ctest.log"; exit 1; }
tail -n 5 "$build/ctest.log"
QEMU_CPU=cortex-a53 ctest --test-dir "$build" --output-on-failure --no-tests=error -R 'SelectTables|CpuFeatures|WhyUnavailable'
