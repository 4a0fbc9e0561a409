# One row per instruction set: name and compile flags. src/kernels/cpu/isa_<name>.cc is compiled with
# these flags, and with no others may any object use the instruction set (ADR 0003). Every other file is
# built for the base x86-64 (or the host's base ABI), so one binary runs on any machine and picks at start.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(LUCID_ISA_ROWS
    "generic|-O3"
    "avx2|-O3 -mavx2 -mfma -mf16c -mbmi -mbmi2"
    "avx512|-O3 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c -mbmi -mbmi2 -mprefer-vector-width=512")
else()
  set(LUCID_ISA_ROWS "generic|-O3")
endif()
