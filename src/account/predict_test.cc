// Times of a plan small enough to count by hand, on machines of round numbers.
#include "account/predict.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "account/ledger.h"
#include "plan/builder.h"

namespace lucid {
namespace {

constexpr int64_t kDim = 8, kHeadDim = 4, kVocab = 10;

// A norm, q, k and v of one head, attention, an output matrix: enough for every kind of time.
Plan SmallPlan() {
  Builder b("small");
  Value x = b.Embed(b.Mat("token_embd", kVocab, kDim));
  const LayerScope w = b.Layer(0);
  const Value h = b.RmsNorm(x, w.Vec("attn_norm", kDim), 1e-5);
  const Value q = b.Linear(h, w.Mat("attn_q", kHeadDim, kDim));
  const Value k = b.Linear(h, w.Mat("attn_k", kHeadDim, kDim));
  const Value v = b.Linear(h, w.Mat("attn_v", kHeadDim, kDim));
  Value kv = b.Kv({.heads = 1, .k_dim = kHeadDim, .v_dim = kHeadDim}, "blk.0.kv");
  kv = b.KvStore(kv, k, v);
  const Value a = b.Attention(q, kv, {.scale = 0.5});
  x = b.Add(x, b.Linear(a, w.Mat("attn_output", kDim, kHeadDim)));
  return b.Finish(b.Linear(b.GatherRows(x), b.Mat("output", kVocab, kDim)));
}

Hardware Round(double bytes, double flops) {
  return {.name = "round",
          .source = "",
          .bytes_per_second = bytes,
          .memory_bytes = 0,
          .peaks = {{"16 bit", flops}},
          .kernels = {}};
}

const Op& Find(const Plan& plan, std::string_view name) {
  for (const Op& op : plan.ops) {
    if (op.name == name) return op;
  }
  ADD_FAILURE() << name;
  return plan.ops.front();
}

OpTime Time(const Hardware& hardware, const Plan& plan, std::string_view name,
            const Workload& work) {
  const Op& op = Find(plan, name);
  return TimeOf(hardware, plan, op, work, Info(op.kind).cost(plan, op, work));
}

// roofline: t = max(FLOPs / peak, bytes / bandwidth), on both sides of the ridge.
TEST(TimeOf, IsTheLongerOfBytesAndArithmetic) {
  const Plan plan = SmallPlan();
  const Workload token = DecodeWork(1, 6, {});
  const OpTime slow_memory = Time(Round(32, 1e9), plan, "blk.0.attn_q", token);
  EXPECT_TRUE(slow_memory.by_memory());
  EXPECT_DOUBLE_EQ(slow_memory.seconds(), 4.0 * 4 * 8 / 32);
  const OpTime slow_units = Time(Round(1e9, 32), plan, "blk.0.attn_q", token);
  EXPECT_FALSE(slow_units.by_memory());
  EXPECT_DOUBLE_EQ(slow_units.seconds(), 2.0 * 4 * 8 / 32);
  // At the ridge both are equal: 0.5 FLOPs a byte.
  const OpTime ridge = Time(Round(100, 50), plan, "blk.0.attn_q", token);
  EXPECT_DOUBLE_EQ(ridge.memory, ridge.arithmetic);
}

TEST(PredictStep, AddsTheOpsUp) {
  const Plan plan = SmallPlan();
  const Workload token = DecodeWork(1, 6, {});
  const Ledger ledger = MakeLedger(plan, token);
  const StepTime step = PredictStep(Round(100, 1e12), plan, token);
  EXPECT_TRUE(step.by_memory());
  EXPECT_NEAR(step.seconds, static_cast<double>(ledger.memory_bytes()) / 100, 1e-6);
  EXPECT_NEAR(step.roof, step.memory, 1e-12);
  const StepTime slow = PredictStep(Round(1e12, 100), plan, token);
  EXPECT_NEAR(slow.seconds, static_cast<double>(ledger.total.flops) / 100, 1e-6);
}

TEST(PredictPrompts, ReadTheWeightsInEveryStep) {
  const Plan plan = SmallPlan();
  const Hardware memory = Round(100, 1e12);
  const double whole = PredictPrompts(memory, plan, 1, 8, 8, {}).seconds;
  const double cut = PredictPrompts(memory, plan, 1, 8, 4, {}).seconds;
  EXPECT_NEAR(whole, PredictStep(memory, plan, PromptWork(1, 8, {})).seconds, 1e-9);
  // The layer's weights twice, the keys and values of the first step again, the output matrix once.
  const double layer = 4.0 * (8 + 4 * 4 * 8), keys = 4.0 * 2 * 2 * 4;
  EXPECT_NEAR(cut - whole, (layer + keys) / 100, 1e-6);
  // Two prompts share a step; together they need one row of logits each.
  EXPECT_NEAR(PredictPrompts(memory, plan, 2, 4, 8, {}).seconds,
              PredictStep(memory, plan, PromptWork(2, 4, {})).seconds, 1e-9);
}

TEST(ComputeBoundBatch, IsWhereBothTimesMeet) {
  const Plan plan = SmallPlan();
  const Hardware hardware = Round(1000, 1000);
  const int64_t batch = ComputeBoundBatch(hardware, plan, 6, {});
  ASSERT_GT(batch, 1);
  EXPECT_FALSE(PredictStep(hardware, plan, DecodeWork(batch, 6, {})).by_memory());
  EXPECT_TRUE(PredictStep(hardware, plan, DecodeWork(batch - 1, 6, {})).by_memory());
  // Each sequence's own keys take longer than its own arithmetic: no batch ever computes longer.
  EXPECT_EQ(ComputeBoundBatch(Round(1000, 1e6), plan, 6, {}), 0);
}

// Kernels of round numbers.
Hardware Measured() {
  Hardware hardware = Round(1000, 1e9);
  hardware.kernels = {{.weights = "F32",
                       .numerics = "default",
                       .threads = 1,
                       .isa = "none",
                       .build = "",
                       .stream_bytes_per_second = 64,
                       .cached_bytes_per_second = 256,
                       .macs_per_second = 16,
                       .attention_macs_per_second = 8,
                       .token_attention_macs_per_second = 4,
                       .activation_bytes_per_second = 32,
                       .op_seconds = 0.25}};
  return hardware;
}

TEST(TimeOf, TakesMeasuredKernelsWhereThereAreAny) {
  const Plan plan = SmallPlan();
  const Hardware hardware = Measured();
  const Workload token = DecodeWork(1, 6, {});
  const OpTime product = Time(hardware, plan, "blk.0.attn_q", token);
  EXPECT_DOUBLE_EQ(product.memory, 4.0 * 4 * 8 / 64);
  EXPECT_DOUBLE_EQ(product.arithmetic, 4.0 * 8 / 16);
  EXPECT_DOUBLE_EQ(product.other, 0.25);
  const OpTime attention = Time(hardware, plan, "blk.0.attn", token);
  EXPECT_DOUBLE_EQ(attention.arithmetic, 6.0 * 8 / 4);
  EXPECT_DOUBLE_EQ(attention.memory, 6.0 * 2 * 2 * 4 / 1000);
  const OpTime prompt = Time(hardware, plan, "blk.0.attn", PromptWork(1, 6, {}));
  EXPECT_DOUBLE_EQ(prompt.arithmetic, 21.0 * 8 / 8) << "every query meets the keys up to its own";
  const OpTime norm = Time(hardware, plan, "blk.0.attn_norm", token);
  EXPECT_DOUBLE_EQ(norm.other, 0.25 + 2.0 * 4 * 8 / 32);
}

// What an op needs by itself: its bytes at the speed of the memory, its kernel without memory.
TEST(LeastTimesOf, TellsReadingFromComputing) {
  const Plan plan = SmallPlan();
  const Hardware hardware = Measured();
  const auto least = [&](std::string_view name, const Workload& work) {
    const Op& op = Find(plan, name);
    return LeastTimesOf(hardware, plan, op, work, Info(op.kind).cost(plan, op, work));
  };
  const LeastTimes token = least("blk.0.attn_q", DecodeWork(1, 6, {}));
  EXPECT_DOUBLE_EQ(token.reading, 4.0 * 4 * 8 / 1000);
  EXPECT_DOUBLE_EQ(token.computing, std::max(4.0 * 4 * 8 / 256, 4.0 * 8 / 16));
  EXPECT_FALSE(token.quantised);
  const LeastTimes prompt = least("blk.0.attn_q", PromptWork(1, 100, {}));
  EXPECT_DOUBLE_EQ(prompt.reading, token.reading);
  EXPECT_DOUBLE_EQ(prompt.computing, 100 * 4.0 * 8 / 16);
  const LeastTimes attention = least("blk.0.attn", DecodeWork(1, 6, {}));
  EXPECT_DOUBLE_EQ(attention.computing, 6.0 * 8 / 4);
  EXPECT_EQ(least("blk.0.attn_norm", DecodeWork(1, 6, {})).computing, 0);
  std::vector<DType> types(plan.values.size(), DType::kF32);
  for (const Value v : plan.Weights()) types[static_cast<size_t>(v.id)] = DType::kQ8_0;
  Workload quantised;
  quantised.weight_dtypes = types;
  EXPECT_TRUE(least("blk.0.attn_q", DecodeWork(1, 6, quantised)).quantised);
}

}  // namespace
}  // namespace lucid
