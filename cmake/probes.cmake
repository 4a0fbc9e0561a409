# One row per object of probes, as in isa.cmake: src/kernels/cpu/probe_<name>.cc, the loops of `lucid limits`, is
# compiled with these flags. Contraction may stay on, since nobody compares their results.
# -Wno-uninitialized: GCC 12 warns of its own avx512fintrin.h (GCC bug 105593).
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(avx512 "-O3 -mavx512f -mprefer-vector-width=512 -Wno-uninitialized -Wno-maybe-uninitialized")
  set(LUCID_PROBE_ROWS
    "generic|-O3"
    "avx2|-O3 -mavx2 -mfma"
    "avx512|${avx512}"
    "avx512bf16|${avx512} -mavx512bf16"
    "avxvnni|-O3 -mavx2 -mavxvnni"
    "avx512vnni|${avx512} -mavx512vnni"
    "amx|-O3 -mamx-tile -mamx-int8 -mamx-bf16")
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(LUCID_PROBE_ROWS
    "generic|-O3"
    "neon|-O3"
    "neondot|-O3 -march=armv8.2-a+dotprod")
else()
  set(LUCID_PROBE_ROWS "generic|-O3")
endif()
