// Probes do the work that they claim: a reading one sees every byte, a multiplying one every
// operand. The log says which tables this machine can run.
#include "kernels/probe.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/cpu_features.h"
#include "base/rng.h"

namespace lucid {
namespace {

Buffer RandomBytes(size_t n) {
  Buffer buffer = Buffer::Allocate(n).value();
  for (size_t i = 0; i < n; ++i) {
    // Below a byte that would make a NaN of a float or a bfloat16.
    buffer.data()[i] = static_cast<std::byte>(UniformDraw(3, i, 0, 0) * 120);
  }
  return buffer;
}

std::vector<std::pair<const ProbeTable*, const Probe*>> RunnableProbes() {
  std::vector<std::pair<const ProbeTable*, const Probe*>> probes;
  for (const ProbeStatus& status : ProbeStatuses()) {
    if (!status.refused.empty()) continue;
    for (const Probe& probe : status.table->probes) probes.push_back({status.table, &probe});
  }
  return probes;
}

TEST(Probes, EveryTableRunsOrSaysWhyNot) {
  std::set<std::string_view> names;
  for (const ProbeStatus& status : ProbeStatuses()) {
    names.insert(status.table->isa);
    EXPECT_FALSE(status.table->probes.empty());
    RecordProperty(std::string(status.table->isa),
                   status.refused.empty() ? "runs" : status.refused);
  }
  EXPECT_EQ(names.size(), ProbeStatuses().size());
  EXPECT_TRUE(names.contains("generic"));
#if defined(__x86_64__)
  for (const ProbeStatus& status : ProbeStatuses()) {
    if (status.table->isa != "avx2") continue;
    EXPECT_EQ(status.refused, WhyUnavailable("avx2 fma"));
  }
#endif
}

TEST(Probes, ReadingOnesSeeEveryByte) {
  constexpr int64_t kIterations = 4;
  for (const auto& [table, probe] : RunnableProbes()) {
    if (probe->kind != ProbeKind::kRead) continue;
    const auto bytes = static_cast<size_t>(kIterations * probe->work);
    const Buffer buffer = RandomBytes(bytes);
    const uint64_t before = probe->fn(buffer.data(), kIterations);
    EXPECT_EQ(probe->fn(buffer.data(), kIterations), before);
    for (size_t i = 0; i < bytes; ++i) {
      buffer.data()[i] ^= std::byte{4};
      ASSERT_NE(probe->fn(buffer.data(), kIterations), before)
          << table->isa << " " << probe->how << " does not see byte " << i;
      buffer.data()[i] ^= std::byte{4};
    }
  }
}

TEST(Probes, MultiplyingOnesDependOnTheirOperandsAndIterations) {
  const Buffer operands = RandomBytes(kProbeOperandBytes);
  const Buffer zeros = Buffer::Allocate(kProbeOperandBytes).value();
  for (const auto& [table, probe] : RunnableProbes()) {
    if (probe->kind == ProbeKind::kRead || probe->kind == ProbeKind::kClock) continue;
    EXPECT_GT(probe->work, 0);
    const uint64_t once = probe->fn(operands.data(), 1);
    EXPECT_EQ(probe->fn(operands.data(), 1), once) << table->isa;
    EXPECT_NE(probe->fn(operands.data(), 2), once) << table->isa << " " << Name(probe->kind);
    EXPECT_EQ(probe->fn(zeros.data(), 5), 0u) << table->isa << " " << Name(probe->kind);
  }
}

TEST(Probes, ThereIsOneClock) {
  int clocks = 0;
  for (const auto& [table, probe] : RunnableProbes()) {
    if (probe->kind != ProbeKind::kClock) continue;
    ++clocks;
    EXPECT_NE(probe->fn(nullptr, 3), probe->fn(nullptr, 4));
  }
  EXPECT_EQ(clocks, 1);
}

}  // namespace
}  // namespace lucid
