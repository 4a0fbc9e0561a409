// Linear, LinearGroup and GluLinear of packed quantised weights on every instruction set: close to
// the reference as their numbers allow, a row's bits a function of that row, and the same bits on
// all instruction sets with fused multiply-add.
#include <gtest/gtest.h>

#include "kernels/kernel_test_util.h"
#include "kernels/packed.h"

namespace lucid {
namespace {

using namespace testing_util;  // NOLINT: the helpers of these tests

std::vector<DType> PackedTypes() {
  std::vector<DType> types;
  for (const DTypeInfo& info : AllDTypes()) {
    const PackedForm* form = FindPackedForm(info.type);
    if (form != nullptr && !form->plain()) types.push_back(info.type);
  }
  return types;
}

// Instruction sets with packed kernels of their own, but for tiles: tile_linear_test.cc has those.
std::vector<std::string> PackedIsas() {
  std::vector<std::string> isas;
  LinearArgs args;
  std::byte something{};
  args.w.dtype = DType::kQ4_0;
  args.packed = &something;
  for (const std::string& isa : CpuIsas()) {
    if (isa == "amx") continue;
    if (ChooseKernel(SelectTables(isa).value(), KernelOp::kLinear, &args).isa == isa) {
      isas.push_back(isa);
    }
  }
  return isas;
}

struct PackedCase {
  Weights w;
  std::vector<std::byte> packed;
  std::vector<float> x, bias, y;
  LinearArgs args;
  PackedCase(DType type, int64_t n_out, int64_t n_in, int64_t rows, bool with_bias) {
    w = RandomWeights(type, n_out, n_in, static_cast<uint32_t>(n_out + n_in));
    packed.resize(static_cast<size_t>(PackedBytes(w.tensor)));
    PackStrips(w.tensor, 0, (n_out + kStripRows - 1) / kStripRows, packed.data());
    x = RandomFloats(static_cast<size_t>(rows * n_in), 7);
    bias = RandomFloats(static_cast<size_t>(n_out), 8);
    y.assign(static_cast<size_t>(rows * n_out), NAN);
    args.w = w.tensor;
    args.packed = packed.data();
    args.bias = with_bias ? bias.data() : nullptr;
    args.x = x.data();
    args.y = y.data();
  }
  std::vector<float> Run(std::string_view isa, const StepView& step, int threads) {
    std::fill(y.begin(), y.end(), NAN);
    RunAs(KernelOf(isa, KernelOp::kLinear, &args), &args, step, threads);
    return {y.begin(), y.begin() + step.n_tokens * w.tensor.rows()};
  }
  std::vector<float> Reference(int32_t rows) {
    LinearArgs plain = args;
    plain.packed = nullptr;
    std::fill(y.begin(), y.end(), NAN);
    RunAs(KernelOf("reference", KernelOp::kLinear, &plain), &plain, TokensStep(rows), 1);
    return {y.begin(), y.begin() + rows * w.tensor.rows()};
  }
};

TEST(PackedLinear, RowsWithBothPlanesMatchTheReferenceForEveryTypeAndShape) {
  for (const std::string& isa : PackedIsas()) {
    for (const DType type : PackedTypes()) {
      const int64_t unit = Info(type).block_elems;
      for (const int64_t n_in : {unit, 3 * unit, unit == 32 ? 18 * unit : 10 * unit}) {
        for (const int64_t n_out : {1, 37}) {
          for (const int32_t rows : {1, 3, 29}) {
            PackedCase c(type, n_out, n_in, rows, n_out == 37);
            const std::vector<float> want = c.Reference(rows);
            c.args.error_budget = 0;
            // 15 bits of an activation: an error of 2^-15 of its block's largest value.
            const double tolerance =
                4 * std::ldexp(1.0, -15) * std::sqrt(static_cast<double>(n_in)) * c.w.max;
            ExpectNear(c.Run(isa, TokensStep(rows), 2), want, 1e-5, tolerance,
                       fmt::format("{} {} [{}, {}] x {}", isa, Name(type), n_out, n_in, rows));
          }
        }
      }
    }
  }
}

// Writes `fill` to every byte of a block that still means ordinary numbers with it: all of its
// codes, and what of its scales allows it.
void FillCodes(Weights& w, std::byte fill) {
  const DTypeInfo& info = Info(w.tensor.dtype);
  std::vector<float> values(static_cast<size_t>(info.block_elems));
  w.max = 0;
  const auto block_bytes = static_cast<size_t>(info.block_bytes);
  for (size_t at = 1; at < w.bytes.size(); at += block_bytes) {
    std::byte* block = w.bytes.data() + at;
    for (size_t i = 0; i < block_bytes; ++i) {
      const std::byte before = std::exchange(block[i], fill);
      info.decode(block, values.data(), info.block_elems);
      const bool ordinary = std::all_of(values.begin(), values.end(), [](float v) {
        return std::isfinite(v) && std::fabs(v) < 100.0f;
      });
      if (!ordinary) block[i] = before;
    }
    info.decode(block, values.data(), info.block_elems);
    for (float v : values) w.max = std::max(w.max, std::fabs(v));
  }
}

// Sets that add products up in 16 bits must know how many of the largest fit.
TEST(PackedLinear, SumsOfTheLargestCodesAndActivationsDoNotOverflow) {
  constexpr int64_t kIn = 512;
  for (const std::string& isa : PackedIsas()) {
    for (const DType type : PackedTypes()) {
      for (const int fill : {0xff, 0x80, 0x7f, 0x00}) {
        PackedCase c(type, 16, kIn, 4, false);
        FillCodes(c.w, static_cast<std::byte>(fill));
        PackStrips(c.w.tensor, 0, 1, c.packed.data());
        for (size_t i = 0; i < c.x.size(); ++i) {
          const bool plus = i / kIn == 0 || (i / kIn == 2 && i % 2 == 0);
          // The last row has the largest low plane too: 64 128ths of a unit of the high one.
          c.x[i] = i / kIn == 3 ? (i % 32 == 0 ? 127.0f : 126.496f) : (plus ? 1.0f : -1.0f);
        }
        const std::vector<float> want = c.Reference(4);
        c.args.error_budget = 0;
        const std::vector<float> got = c.Run(isa, TokensStep(4), 1);
        ExpectNear(got, want, 1e-5, 0.01 * kIn * c.w.max,
                   fmt::format("{} {} of bytes {:#x}", isa, Name(type), fill));
      }
    }
  }
}

TEST(PackedLinear, RowsKeepTheErrorBudget) {
  constexpr int32_t kRows = 23;
  for (const std::string& isa : PackedIsas()) {
    for (const DType type : {DType::kQ4_0, DType::kQ4_K, DType::kQ6_K, DType::kQ8_0}) {
      PackedCase c(type, 64, 1024, kRows, false);
      for (size_t i = 0; i < c.x.size(); i += 97) c.x[i] *= 50.0f;  // blocks with outliers
      const std::vector<float> want = c.Reference(kRows);
      double previous = 0;
      for (const float budget : {1e-6f, 1e-4f, 1.0f}) {
        c.args.error_budget = budget;
        const std::vector<float> got = c.Run(isa, TokensStep(kRows), 1);
        double error = 0;
        double energy = 0;
        for (size_t i = 0; i < got.size(); ++i) {
          error += (static_cast<double>(got[i]) - want[i]) * (got[i] - want[i]);
          energy += static_cast<double>(want[i]) * want[i];
        }
        // A random matrix passes on the error of its input, up to chance.
        EXPECT_LE(error / energy, 2.0 * budget) << isa << " " << Name(type);
        EXPECT_GT(error, previous) << isa << " " << Name(type) << ": the budget saves work";
        previous = error;
      }
    }
  }
}

TEST(PackedLinear, ARowHasTheSameBitsAloneAndAmongOthersAndForAnyNumberOfThreads) {
  constexpr int32_t kRows = 70;
  for (const std::string& isa : PackedIsas()) {
    for (const DType type : PackedTypes()) {
      const int64_t n_in = Info(type).block_elems == 32 ? 32 * 75 : 256 * 9;
      const int64_t n_out = 77;
      PackedCase c(type, n_out, n_in, kRows, true);
      for (size_t i = 0; i < c.x.size(); i += 331) c.x[i] *= 40.0f;  // their blocks get a low plane
      std::vector<float> alone;
      for (int32_t r = 0; r < kRows; ++r) {
        c.args.x = c.x.data() + r * n_in;
        const std::vector<float> row = c.Run(isa, TokensStep(1), 1);
        alone.insert(alone.end(), row.begin(), row.end());
      }
      c.args.x = c.x.data();
      for (const int32_t rows : {1, 2, 3, 5, 6, 7, 12, 13, 33, kRows}) {
        const std::vector<float> want(alone.begin(), alone.begin() + rows * n_out);
        for (const int threads : {1, 2, 3, 5}) {
          ExpectSameBits(c.Run(isa, TokensStep(rows), threads), want,
                         fmt::format("{} {} rows {} threads {}", isa, Name(type), rows, threads));
        }
      }
    }
  }
}

TEST(PackedLinear, InstructionSetsWithFusedMultiplyAddAgreeToTheBit) {
  for (const DType type : PackedTypes()) {
    PackedCase c(type, 48, 768, 9, true);
    std::vector<float> want;
    for (const std::string& isa : PackedIsas()) {
      if (isa == "generic") continue;
      const std::vector<float> got = c.Run(isa, TokensStep(9), 1);
      if (!want.empty()) ExpectSameBits(got, want, fmt::format("{} {}", isa, Name(type)));
      want = got;
    }
  }
}

// FNV-1a of the bits.
uint64_t HashOf(const std::vector<float>& values) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const float value : values) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    for (int i = 0; i < 4; ++i) hash = (hash ^ ((bits >> (8 * i)) & 0xff)) * 0x100000001b3u;
  }
  return hash;
}

// Computed with avx2; operands are made of integers alone, since a mathematical library may round
// otherwise elsewhere.
TEST(PackedLinear, InstructionSetsOfOtherMachinesGaveTheSameBits) {
  constexpr std::pair<DType, uint64_t> kHashes[] = {
      {DType::kQ4_0, 0xa2e4debf9ad38ba4},   {DType::kQ4_1, 0xae73afac0dd80b08},
      {DType::kQ5_0, 0xd31ba718d46287ff},   {DType::kQ5_1, 0xbc1110cf2e4603b5},
      {DType::kQ8_0, 0x170f92981248afdb},   {DType::kQ2_K, 0xf784e82ffc178dde},
      {DType::kQ3_K, 0x7f341f7755e81788},   {DType::kQ4_K, 0x8810f87d8434b968},
      {DType::kQ5_K, 0x78649ff62db00302},   {DType::kQ6_K, 0x9f53c66198f9e8df},
      {DType::kIQ4_NL, 0x37eaa37e85d0f811}, {DType::kIQ4_XS, 0x2182e182b5c72c8b},
      {DType::kMXFP4, 0x501a325ce11b5b03},
  };
  for (const auto& [type, hash] : kHashes) {
    PackedCase c(type, 48, 768, 9, true);
    std::mt19937 rng(5);
    for (std::vector<float>* operand : {&c.x, &c.bias}) {
      for (float& v : *operand) v = static_cast<float>(static_cast<int32_t>(rng())) * 0x1p-31f;
    }
    for (size_t i = 0; i < c.x.size(); i += 331) c.x[i] *= 40.0f;  // their blocks get a low plane
    for (const std::string& isa : PackedIsas()) {
      if (isa == "generic") continue;
      EXPECT_EQ(fmt::format("{:#x}", HashOf(c.Run(isa, TokensStep(9), 1))),
                fmt::format("{:#x}", hash))
          << isa << " " << Name(type);
    }
  }
}

TEST(PackedLinear, ARowThatIsNoNumberSpoilsNoOther) {
  for (const std::string& isa : PackedIsas()) {
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      PackedCase c(DType::kQ4_K, 20, 512, 8, false);
      const std::vector<float> want = c.Run(isa, TokensStep(8), 1);
      c.x[3 * 512 + 100] = bad;
      const std::vector<float> got = c.Run(isa, TokensStep(8), 1);
      for (size_t i = 0; i < got.size(); ++i) {
        if (i / 20 == 3) {
          EXPECT_TRUE(std::isnan(got[i])) << isa;
        } else {
          EXPECT_EQ(got[i], want[i]) << isa;
        }
      }
    }
  }
}

TEST(PackedLinear, TakesZerosDenormalsAndExtremeScales) {
  for (const std::string& isa : PackedIsas()) {
    PackedCase c(DType::kQ4_0, 16, 128, 4, false);
    c.args.error_budget = 0;
    for (int64_t i = 0; i < 128; ++i) {
      c.x[static_cast<size_t>(i)] = 0.0f;
      c.x[static_cast<size_t>(128 + i)] = 1e-41f;
      c.x[static_cast<size_t>(256 + i)] *= 1e30f;
      c.x[static_cast<size_t>(384 + i)] *= i < 32 ? 1e10f : 1e-10f;
    }
    const std::vector<float> want = c.Reference(4);
    const std::vector<float> got = c.Run(isa, TokensStep(4), 1);
    for (int i = 0; i < 32; ++i) EXPECT_NEAR(got[static_cast<size_t>(i)], 0.0f, 1e-30f) << isa;
    for (size_t i = 32; i < 64; ++i) {
      const double scale = i < 48 ? 1e30 : 1e10;
      EXPECT_NEAR(got[i] / scale, want[i] / scale, 1e-2) << isa;
    }
  }
}

TEST(PackedLinearGroup, EqualsItsMembers) {
  for (const std::string& isa : PackedIsas()) {
    PackedCase q(DType::kQ4_0, 48, 256, 15, true);
    PackedCase k(DType::kQ4_K, 19, 256, 15, false);
    PackedCase v(DType::kQ6_K, 7, 256, 15, false);
    LinearGroupArgs group;
    group.count = 3;
    PackedCase* members[] = {&q, &k, &v};
    for (int i = 0; i < 3; ++i) {
      members[i]->args.x = q.x.data();
      group.linear[i] = members[i]->args;
    }
    for (const int32_t rows : {1, 5, 15}) {
      std::vector<std::vector<float>> want;
      for (PackedCase* c : members) want.push_back(c->Run(isa, TokensStep(rows), 1));
      for (int threads = 1; threads <= 5; ++threads) {
        for (PackedCase* c : members) std::fill(c->y.begin(), c->y.end(), NAN);
        RunAs(KernelOf(isa, KernelOp::kLinearGroup, &group), &group, TokensStep(rows), threads);
        for (size_t i = 0; i < 3; ++i) {
          const auto n = rows * members[i]->w.tensor.rows();
          ExpectSameBits({members[i]->y.begin(), members[i]->y.begin() + n}, want[i], isa);
        }
      }
    }
  }
}

TEST(PackedGluLinear, IsTheActivationOfItsTwoProducts) {
  constexpr int32_t kRows = 31;
  constexpr int64_t kOut = 75, kIn = 2400;
  for (const std::string& isa : PackedIsas()) {
    PackedCase gate(DType::kQ4_1, kOut, kIn, kRows, true);
    PackedCase up(DType::kQ5_0, kOut, kIn, kRows, true);
    up.args.x = gate.args.x;
    std::vector<float> y(kRows * kOut);
    const GluLinearArgs args{gate.args, up.args, y.data(), Activation::kRelu};
    for (const int32_t rows : {1, 4, kRows}) {
      const std::vector<float> g = gate.Run(isa, TokensStep(rows), 1);
      const std::vector<float> u = up.Run(isa, TokensStep(rows), 1);
      for (int threads = 1; threads <= 4; ++threads) {
        std::fill(y.begin(), y.end(), NAN);
        RunAs(KernelOf(isa, KernelOp::kGluLinear, &args), &args, TokensStep(rows), threads);
        for (size_t i = 0; i < g.size(); ++i) {
          ASSERT_EQ(y[i], std::max(g[i], 0.0f) * u[i]) << isa << " at " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace lucid
