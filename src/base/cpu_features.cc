// Reads CPUID and XCR0, on aarch64 the words in which the kernel tells what user code may use.
// Sources: Intel SDM volume 1 sections 13.2 to 13.3 and 14.3, volume 2 "CPUID"; Linux
// Documentation/arch/arm64/elf_hwcaps.rst.
#include "base/cpu_features.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
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

// Whether the kernel lets this process, and threads that it starts, use tile registers. It wants to
// be asked once, since their 8 KB grow every signal frame. Source: Linux
// Documentation/arch/x86/xstate.rst.
bool RequestTiles() {
  constexpr int64_t kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int64_t kTileData = 18;               // its bit in XCR0
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

std::vector<CpuCapability> DetectCapabilities() {
  constexpr uint64_t kYmmState = 0x6;   // xmm, ymm
  constexpr uint64_t kZmmState = 0xe6;  // and opmask, upper zmm
  constexpr uint64_t kTileState = 0x60000;
  const Leaf l1 = Cpuid(1, 0);
  const Leaf l7 = Cpuid(7, 0);
  const Leaf l7_1 = l7.eax >= 1 ? Cpuid(7, 1) : Leaf{};
  const bool osxsave = Bit(l1.ecx, 27);
  const uint64_t state = osxsave ? EnabledState() : 0;
  const bool ymm = (state & kYmmState) == kYmmState;
  const bool zmm = (state & kZmmState) == kZmmState;
  const bool has_tiles = Bit(l7.edx, 24);
  const bool tile = (state & kTileState) == kTileState;
  const bool granted = has_tiles && tile && RequestTiles();
  return {
      {"avx2", "ymm", Bit(l1.ecx, 28) && Bit(l7.ebx, 5), ymm},
      {"fma", "ymm", Bit(l1.ecx, 12), ymm},
      {"f16c", "ymm", Bit(l1.ecx, 29), ymm},
      {"bmi1", "", Bit(l7.ebx, 3), true},
      {"bmi2", "", Bit(l7.ebx, 8), true},
      {"avx_vnni", "ymm", Bit(l7_1.eax, 4), ymm},
      {"avx512f", "zmm", Bit(l7.ebx, 16), zmm},
      {"avx512bw", "zmm", Bit(l7.ebx, 30), zmm},
      {"avx512dq", "zmm", Bit(l7.ebx, 17), zmm},
      {"avx512vl", "zmm", Bit(l7.ebx, 31), zmm},
      {"avx512_vnni", "zmm", Bit(l7.ecx, 11), zmm},
      {"avx512_bf16", "zmm", Bit(l7_1.eax, 5), zmm},
      {"avx512_fp16", "zmm", Bit(l7.edx, 23), zmm},
      {"amx_tile", "tile", has_tiles, tile, granted},
      {"amx_int8", "tile", Bit(l7.edx, 25), tile, granted},
      {"amx_bf16", "tile", Bit(l7.edx, 22), tile, granted},
  };
}
#elif defined(__aarch64__) && defined(__linux__)
// The kernel leaves out what it does not support, so there is nothing to enable.
std::vector<CpuCapability> DetectCapabilities() {
  const uint64_t words = getauxval(AT_HWCAP);
  return {
      {"asimd", "", (words & HWCAP_ASIMD) != 0, true},
      {"asimddp", "", (words & HWCAP_ASIMDDP) != 0, true},
  };
}
#else
std::vector<CpuCapability> DetectCapabilities() {
  return {};
}
#endif

void AppendToList(std::string& list, std::string_view item, std::string_view separator) {
  if (!list.empty()) list += separator;
  list += item;
}

}  // namespace

std::span<const CpuCapability> CpuCapabilities() {
  static const std::vector<CpuCapability> capabilities = DetectCapabilities();
  return capabilities;
}

std::string WhyUnavailable(std::string_view needed, std::span<const CpuCapability> cpu) {
  std::string lacking;
  std::string unsaved;
  std::string refused;
  const auto add_registers = [](std::string& list, const CpuCapability& capability) {
    if (list.find(capability.registers) != std::string::npos) return;
    AppendToList(list, capability.registers, " and ");
  };
  while (!needed.empty()) {
    const size_t end = std::min(needed.find(' '), needed.size());
    const std::string_view name = needed.substr(0, end);
    needed.remove_prefix(std::min(end + 1, needed.size()));
    const auto found = std::find_if(cpu.begin(), cpu.end(),
                                    [name](const CpuCapability& c) { return c.name == name; });
    if (found == cpu.end() || !found->in_cpu) {
      AppendToList(lacking, name, ", ");
    } else if (!found->enabled) {
      add_registers(unsaved, *found);
    } else if (!found->granted) {
      add_registers(refused, *found);
    }
  }
  std::string reason;
  if (!lacking.empty()) reason = "the CPU lacks " + lacking;
  if (!unsaved.empty()) {
    AppendToList(reason, "the operating system does not save the ", "; ");
    reason += unsaved + " registers";
  }
  if (!refused.empty()) {
    AppendToList(reason, "the operating system does not let this process use the ", "; ");
    reason += refused + " registers";
  }
  return reason;
}

}  // namespace lucid
