// Which instruction sets this CPU has and the operating system has enabled.
#pragma once

#include <string>

namespace lucid {

struct CpuFeatures {
  bool avx2 = false;      // AVX2 + FMA + F16C + BMI1 + BMI2, and the OS saves ymm registers
  bool avx512 = false;    // avx2 + AVX-512 F, BW, DQ, VL, and the OS saves zmm and mask registers
  bool avx_vnni = false;  // VEX-encoded 8-bit dot products
  bool avx512_vnni = false;  // the rest only ever together with `avx512`
  bool avx512_bf16 = false;
  bool avx512_fp16 = false;
  bool amx_tile = false;  // the OS saves tile registers; a process must still ask for them
  bool amx_int8 = false;
  bool amx_bf16 = false;
};

// Detected once. All false on a CPU that is not x86-64.
const CpuFeatures& GetCpuFeatures();

// "avx2 avx512 avx512_vnni", or "none".
std::string Describe(const CpuFeatures& features);

}  // namespace lucid
