// Reads CPUID and XCR0. Source: Intel SDM volume 1 sections 13.2 to 13.3 and 14.3, volume 2
// "CPUID".
#include "base/cpu_features.h"

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace lucid {
namespace {

#if defined(__x86_64__)
struct Leaf {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Leaf Cpuid(uint32_t leaf, uint32_t subleaf) {
  Leaf out;
  if (__get_cpuid_count(leaf, subleaf, &out.eax, &out.ebx, &out.ecx, &out.edx) == 0) return Leaf{};
  return out;
}

bool Bit(uint32_t word, int bit) {
  return ((word >> bit) & 1u) != 0;
}

// XCR0: which register states the operating system saves. Only valid when OSXSAVE is set.
uint64_t EnabledState() {
  uint32_t low = 0;
  uint32_t high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

CpuFeatures Detect() {
  constexpr uint64_t kYmmState = 0x6;   // xmm, ymm
  constexpr uint64_t kZmmState = 0xe6;  // and opmask, upper zmm
  constexpr uint64_t kTileState = 0x60000;
  CpuFeatures f;
  const Leaf l1 = Cpuid(1, 0);
  const Leaf l7 = Cpuid(7, 0);
  const Leaf l7_1 = l7.eax >= 1 ? Cpuid(7, 1) : Leaf{};
  const bool osxsave = Bit(l1.ecx, 27);
  const uint64_t state = osxsave ? EnabledState() : 0;
  const bool ymm = (state & kYmmState) == kYmmState;
  const bool zmm = (state & kZmmState) == kZmmState;
  const bool fma = Bit(l1.ecx, 12);
  const bool f16c = Bit(l1.ecx, 29);
  const bool bmi = Bit(l7.ebx, 3) && Bit(l7.ebx, 8);
  f.avx2 = ymm && Bit(l1.ecx, 28) && Bit(l7.ebx, 5) && fma && f16c && bmi;
  f.avx512 =
      f.avx2 && zmm && Bit(l7.ebx, 16) && Bit(l7.ebx, 30) && Bit(l7.ebx, 17) && Bit(l7.ebx, 31);
  f.avx_vnni = f.avx2 && Bit(l7_1.eax, 4);
  f.avx512_vnni = f.avx512 && Bit(l7.ecx, 11);
  f.avx512_bf16 = f.avx512 && Bit(l7_1.eax, 5);
  f.avx512_fp16 = f.avx512 && Bit(l7.edx, 23);
  f.amx_tile = (state & kTileState) == kTileState && Bit(l7.edx, 24);
  f.amx_int8 = f.amx_tile && Bit(l7.edx, 25);
  f.amx_bf16 = f.amx_tile && Bit(l7.edx, 22);
  return f;
}
#else
CpuFeatures Detect() {
  return CpuFeatures{};
}
#endif

}  // namespace

const CpuFeatures& GetCpuFeatures() {
  static const CpuFeatures features = Detect();
  return features;
}

std::string Describe(const CpuFeatures& features) {
  const struct {
    bool has;
    const char* name;
  } rows[] = {
      {features.avx2, "avx2"},
      {features.avx512, "avx512"},
      {features.avx_vnni, "avx_vnni"},
      {features.avx512_vnni, "avx512_vnni"},
      {features.avx512_bf16, "avx512_bf16"},
      {features.avx512_fp16, "avx512_fp16"},
      {features.amx_tile, "amx_tile"},
      {features.amx_int8, "amx_int8"},
      {features.amx_bf16, "amx_bf16"},
  };
  std::string out;
  for (const auto& row : rows) {
    if (!row.has) continue;
    if (!out.empty()) out += ' ';
    out += row.name;
  }
  return out.empty() ? "none" : out;
}

}  // namespace lucid
