// What the kernel tests share: the tables of this CPU, running one kernel as n threads would,
// random operands, and the reference fixtures.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "base/component_test_util.h"
#include "kernels/table.h"

namespace lucid::testing_util {

// The names of the instruction sets of this CPU that have kernels of their own.
inline std::vector<std::string> CpuIsas() {
  std::vector<std::string> names;
  const auto tables = SelectTables("auto").value();
  for (const KernelTable* table : tables) {
    if (table->isa != "reference") names.emplace_back(table->isa);
  }
  return names;
}

// And the reference kernels.
inline std::vector<std::string> AllIsas() {
  std::vector<std::string> names = CpuIsas();
  names.emplace_back("reference");
  return names;
}

// The kernel of exactly this instruction set; the next one's if it has none for this op.
inline const Kernel& KernelOf(std::string_view isa, KernelOp op, const void* args) {
  const auto tables = SelectTables(isa).value();
  const KernelChoice choice = ChooseKernel(tables, op, args);
  bool has_op = false;
  for (const Kernel& kernel : tables.front()->kernels) has_op = has_op || kernel.op == op;
  if (has_op && choice.isa != isa) {
    // Some sets have kernels of some weights only, and say which.
    EXPECT_NE(choice.refused.find("wants "), std::string::npos) << choice.refused;
  }
  return *choice.kernel;
}

// Runs every thread's part, one after the other, with scratch of exactly the size the kernel asks
// for. Which thread comes first and which last changes with the number of rows.
inline void RunAs(const Kernel& kernel, const void* args, const StepView& step, int threads) {
  const int64_t rows = std::max<int64_t>({1, step.n_tokens, step.n_outputs});
  const size_t bytes = kernel.scratch != nullptr ? kernel.scratch(args, rows) : 0;
  const size_t shared_bytes = kernel.shared != nullptr ? kernel.shared(args, rows) : 0;
  const auto counters = std::min(shared_bytes, static_cast<size_t>(kSharedCounterBytes));
  std::unique_ptr<std::byte, decltype(&std::free)> shared(
      static_cast<std::byte*>(std::aligned_alloc(64, (shared_bytes + 64) / 64 * 64)), &std::free);
  std::memset(shared.get(), 0xff, shared_bytes);
  std::memset(shared.get(), 0, counters);
  using Scratch = std::unique_ptr<std::byte, decltype(&std::free)>;
  const auto new_scratch = [bytes] {
    const size_t size = (bytes + 63) / 64 * 64;
    Scratch scratch(size > 0 ? static_cast<std::byte*>(std::aligned_alloc(64, size)) : nullptr,
                    &std::free);
    if (size > 0) std::memset(scratch.get(), 0xff, bytes);  // NaN: nothing may rely on zeros
    return scratch;
  };
  for (int t = 0; kernel.prepare != nullptr && t < threads; ++t) {
    const Scratch scratch = new_scratch();
    kernel.prepare(args, step, {t, threads, scratch.get(), shared.get()});
  }
  for (int i = 0; i < threads; ++i) {
    const int t = static_cast<int>((rows + i) % threads);
    const Scratch scratch = new_scratch();
    kernel.fn(args, step, {t, threads, scratch.get(), shared.get()});
  }
  EXPECT_TRUE(std::all_of(shared.get(), shared.get() + counters,
                          [](std::byte b) { return b == std::byte{0}; }));
}

inline std::vector<float> RandomFloats(size_t n, uint32_t seed, float scale = 1.0f) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> out(n);
  for (float& v : out) v = normal(rng);
  return out;
}

struct Weights {
  std::vector<std::byte> bytes;
  Tensor tensor;
  float max = 0;  // largest magnitude
};

// Random [n_out, n_in] of any type that decodes: random bytes, block by block, until they mean
// numbers of ordinary size. The data starts at an odd address, as it may in a file.
inline Weights RandomWeights(DType type, int64_t n_out, int64_t n_in, uint32_t seed) {
  const DTypeInfo& info = Info(type);
  std::mt19937 rng(seed);
  Weights w;
  const int64_t blocks = n_out * n_in / info.block_elems;
  w.bytes.resize(static_cast<size_t>(1 + blocks * info.block_bytes));
  std::vector<float> values(static_cast<size_t>(info.block_elems));
  std::normal_distribution<float> normal(0.0f, 0.5f);
  for (int64_t b = 0; b < blocks; ++b) {
    std::byte* block = w.bytes.data() + 1 + b * info.block_bytes;
    for (bool good = false; !good;) {
      if (info.block_elems == 1 && info.encode != nullptr) {
        const float value = normal(rng);
        info.encode(&value, block, 1);
      } else {
        for (int64_t i = 0; i < info.block_bytes; ++i) block[i] = static_cast<std::byte>(rng());
      }
      info.decode(block, values.data(), info.block_elems);
      good = true;
      for (float v : values) good = good && std::isfinite(v) && std::fabs(v) < 100.0f;
    }
    for (float v : values) w.max = std::max(w.max, std::fabs(v));
  }
  w.tensor.data = w.bytes.data() + 1;
  w.tensor.dtype = type;
  w.tensor.rank = 2;
  w.tensor.shape = {n_out, n_in};
  return w;
}

inline StepView TokensStep(int32_t n) {
  StepView step;
  step.n_tokens = n;
  return step;
}

// |got - want| <= relative * |want| + absolute for all values; says where the first miss is.
inline void ExpectNear(const std::vector<float>& got, const std::vector<float>& want,
                       double relative, double absolute, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    const double limit = relative * std::fabs(want[i]) + absolute;
    ASSERT_LE(std::fabs(static_cast<double>(got[i]) - want[i]), limit)
        << what << " at " << i << ": got " << got[i] << ", want " << want[i];
  }
}

inline void ExpectSameBits(const std::vector<float>& got, const std::vector<float>& want,
                           const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  ASSERT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)), 0) << what;
}

using Fixture = ComponentFixture;

}  // namespace lucid::testing_util

#define LUCID_NEEDS_FIXTURES LUCID_NEEDS_COMPONENTS
