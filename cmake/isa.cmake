# One row per instruction set: name and compile flags. src/kernels/cpu/isa_<name>.cc, and rows_<name>.cc where there
# is one, are compiled with these flags, and with no others may any object use the instruction set (ADR 0003). Every
# other file is built for the base x86-64 (or the host's base ABI), so one binary runs on any machine and picks at start.
# -ffp-contract=off: kernels say where a multiply-add rounds once, since results must not depend on the
# compiler's choice between two loops that compute the same row.
# -Wno-uninitialized: GCC 12 warns of its own avx512fintrin.h (GCC bug 105593).
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(avx2 "-O3 -ffp-contract=off -mavx2 -mfma -mf16c -mbmi -mbmi2")
  set(avx512 "${avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512 -Wno-uninitialized -Wno-maybe-uninitialized")
  set(LUCID_ISA_ROWS
    "generic|-O3 -ffp-contract=off"
    "avx2|${avx2}"
    "avx512|${avx512}"
    "avx512vnni|${avx512} -mavx512vnni"
    "avx512bf16|${avx512} -mavx512vnni -mavx512bf16"
    "amx|${avx512} -mavx512vnni -mavx512bf16 -mamx-tile -mamx-bf16")
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  # Here the base instruction set has fused multiply-adds, so the rule of kernels must hold everywhere.
  add_compile_options(-ffp-contract=off)
  set(LUCID_ISA_ROWS
    "generic|-O3 -ffp-contract=off"
    "neon|-O3 -ffp-contract=off"
    "neondot|-O3 -ffp-contract=off -march=armv8.2-a+dotprod")
else()
  set(LUCID_ISA_ROWS "generic|-O3 -ffp-contract=off")
endif()
