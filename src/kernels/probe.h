// Probes: short loops that show what an instruction set can do at most on this machine. Entry
// point: ProbeStatuses. account/measure.h runs them.
//
// They come in tables like the kernels do (table.h), one per set of instructions, but finer: each
// object cpu/probe_<name>.cc has just the flags that its loops need, so that a CPU with one set and
// not the other is measured for what it has.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lucid {

enum class ProbeKind : int8_t {
  kRead,     // reads memory from front to back
  kClock,    // additions of which each needs the one before
  kFloat,    // float32 multiply-adds
  kBfloat,   // bfloat16 products, summed in float32
  kInteger,  // 8-bit products, summed in 32 bits
};
std::string_view Name(ProbeKind kind);  // "read", "clock", "float32", "bfloat16", "int8"

// Operands of the multiplying probes: numbers of the probe's kind, at random, since a zero operand
// takes less power and so flatters the clock.
inline constexpr int64_t kProbeOperandBytes = 8192;

struct Probe {
  ProbeKind kind;
  std::string_view how;  // "", or how a variant of the loop goes about it: "prefetch 2 KB ahead"
  int64_t work = 0;      // of an iteration: bytes, cycles or multiply-adds
  // Runs n iterations over `data`, aligned to 64 bytes: for kRead n * work bytes of it, for the
  // multiplying kinds kProbeOperandBytes, for kClock none. The result depends on every iteration,
  // so that none can be left out.
  uint64_t (*fn)(const void* data, int64_t n) = nullptr;
};

struct ProbeTable {
  std::string_view isa;
  std::span<const Probe> probes;
};

struct ProbeStatus {
  const ProbeTable* table = nullptr;
  std::string refused;  // why its loops cannot run here; empty if they can
};
// Every table of the build. Tables of one kind follow each other from the narrowest to the widest.
std::vector<ProbeStatus> ProbeStatuses();

}  // namespace lucid
