// Which instruction sets this CPU has and the operating system has enabled, and why one is not
// there. Entry point: WhyUnavailable, for tables of kernels that list what they need.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace lucid {

// Needs of kernels, for WhyUnavailable.
inline constexpr std::string_view kNeedsAvx2 = "avx2 fma f16c bmi1 bmi2";
inline constexpr std::string_view kNeedsAvx512 =
    "avx2 fma f16c bmi1 bmi2 avx512f avx512bw avx512dq avx512vl";
inline constexpr std::string_view kNeedsAvx512Vnni =
    "avx2 fma f16c bmi1 bmi2 avx512f avx512bw avx512dq avx512vl avx512_vnni";
inline constexpr std::string_view kNeedsAvx512Bf16 =
    "avx2 fma f16c bmi1 bmi2 avx512f avx512bw avx512dq avx512vl avx512_vnni avx512_bf16";
inline constexpr std::string_view kNeedsAmx =
    "avx2 fma f16c bmi1 bmi2 avx512f avx512bw avx512dq avx512vl avx512_vnni avx512_bf16 amx_tile "
    "amx_bf16";
inline constexpr std::string_view kNeedsNeon = "asimd";
inline constexpr std::string_view kNeedsNeonDot = "asimd asimddp";

// One set of instructions.
struct CpuCapability {
  std::string_view name;       // as /proc/cpuinfo spells it: "avx512bw"
  std::string_view registers;  // that the operating system must save: "ymm", "zmm", "tile"
  bool in_cpu = false;
  bool enabled = false;  // those registers are saved
  bool granted = true;   // and this process may use them: tiles have to be asked for
};

// Every one that Lucid knows of, detected once; empty on a CPU that is neither x86-64 nor aarch64.
std::span<const CpuCapability> CpuCapabilities();

// Why code that needs these capabilities (names separated by spaces) cannot run: "the CPU lacks
// avx512_vnni, amx_tile; the operating system does not save the zmm registers". Empty if it can. A
// name that is not in `cpu` counts as lacking.
std::string WhyUnavailable(std::string_view needed,
                           std::span<const CpuCapability> cpu = CpuCapabilities());

}  // namespace lucid
