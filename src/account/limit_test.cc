// Limits of a model small enough to count by hand.
#include "account/limit.h"

#include <gtest/gtest.h>

#include "plan/builder.h"
#include "plan/pass.h"

namespace lucid {
namespace {

constexpr int64_t kDim = 8, kHeads = 2, kKvHeads = 1, kHeadDim = 4, kFfn = 16, kVocab = 10;

// One block like Llama's, with a tied output matrix. `window`: of its attention.
Plan SmallPlan(int64_t window = 0) {
  Builder b("small");
  Value x = b.Embed(b.Mat("token_embd", kVocab, kDim));
  const LayerScope w = b.Layer(0);
  Value h = b.RmsNorm(x, w.Vec("attn_norm", kDim), 1e-5);
  const Value q = b.Linear(h, w.Mat("attn_q", kHeads * kHeadDim, kDim));
  const Value k = b.Linear(h, w.Mat("attn_k", kKvHeads * kHeadDim, kDim));
  const Value v = b.Linear(h, w.Mat("attn_v", kKvHeads * kHeadDim, kDim));
  Value kv =
      b.Kv({.heads = kKvHeads, .k_dim = kHeadDim, .v_dim = kHeadDim, .window = window}, "blk.0.kv");
  kv = b.KvStore(kv, k, v);
  const Value a = b.Attention(q, kv, {.scale = 0.5, .window = window, .softcap = 0});
  x = b.Add(x, b.Linear(a, w.Mat("attn_output", kDim, kHeads * kHeadDim)));
  h = b.RmsNorm(x, w.Vec("ffn_norm", kDim), 1e-5);
  const Value gate = b.Linear(h, w.Mat("ffn_gate", kFfn, kDim));
  const Value up = b.Linear(h, w.Mat("ffn_up", kFfn, kDim));
  x = b.Add(x, b.Linear(b.Glu(gate, up, Activation::kSilu), w.Mat("ffn_down", kDim, kFfn)));
  x = b.RmsNorm(b.GatherRows(x), b.Vec("output_norm", kDim), 1e-5);
  return b.Finish(b.Linear(x, b.Mat("token_embd", kVocab, kDim)));
}

// Of a token: q 64, k and v 32 each, output 64, gate, up and down 128 each.
constexpr int64_t kBlockMacs = 64 + 32 + 32 + 64 + 3 * 128;
constexpr int64_t kHeadMacs = 80;
// Of a query and a key: two heads, products with a key and a value of 4 numbers each.
constexpr int64_t kPairMacs = 2 * (4 + 4);
// In float32: the block's matrices and the head, three norms, and a row of the embedding.
constexpr int64_t kMatrixBytes = 4 * (kBlockMacs + kHeadMacs);
constexpr int64_t kNormBytes = 3 * 4 * 8;
constexpr int64_t kEmbeddingRow = 4 * 8;
// A key and a value of one head in float16.
constexpr int64_t kKeyBytes = 2 * (4 + 4);

Workload Work(std::vector<SequenceSpan> sequences) {
  Workload work;
  work.outputs = static_cast<int64_t>(sequences.size());
  work.sequences = std::move(sequences);
  return work;
}

TEST(NeedsOf, CountsAPromptByHand) {
  const StepNeeds needs = NeedsOf(SmallPlan(), Work({{0, 3}}));
  EXPECT_EQ(needs.macs, 3 * kBlockMacs + kHeadMacs + 6 * kPairMacs);
  EXPECT_EQ(needs.weight_bytes, kMatrixBytes + kNormBytes + 3 * kEmbeddingRow);
  EXPECT_EQ(needs.kv_bytes, 3 * kKeyBytes);
}

TEST(NeedsOf, SequencesOfABatchShareTheWeightsAndNotTheCache) {
  const StepNeeds needs = NeedsOf(SmallPlan(), Work({{9, 1}, {19, 1}}));
  EXPECT_EQ(needs.macs, 2 * (kBlockMacs + kHeadMacs) + (10 + 20) * kPairMacs);
  EXPECT_EQ(needs.weight_bytes, kMatrixBytes + kNormBytes + 2 * kEmbeddingRow);
  EXPECT_EQ(needs.kv_bytes, (10 + 20) * kKeyBytes);
}

TEST(NeedsOf, AWindowBoundsTheCache) {
  const StepNeeds needs = NeedsOf(SmallPlan(4), Work({{9, 1}}));
  EXPECT_EQ(needs.kv_bytes, 4 * kKeyBytes);
  EXPECT_EQ(needs.macs, kBlockMacs + kHeadMacs + 4 * kPairMacs);
}

TEST(NeedsOf, FusingOpsChangesNothing) {
  const Plan plan = SmallPlan();
  const Workload work = Work({{5, 2}});
  const StepNeeds declared = NeedsOf(plan, work), fused = NeedsOf(FusePlan(plan), work);
  EXPECT_EQ(declared.macs, fused.macs);
  EXPECT_EQ(declared.weight_bytes, fused.weight_bytes);
  EXPECT_EQ(declared.kv_bytes, fused.kv_bytes);
}

TEST(TokenBytes, AreThoseOfOneStep) {
  EXPECT_EQ(TokenBytes(SmallPlan(), {}), kMatrixBytes + kNormBytes + kEmbeddingRow);
}

TEST(PromptLimit, IsTheSlowerOfBytesAndArithmetic) {
  const Plan plan = SmallPlan();
  const Workload work = Work({{0, 3}});
  const int64_t macs = 3 * kBlockMacs + kHeadMacs + 6 * kPairMacs;                      // 1904
  const int64_t bytes = kMatrixBytes + kNormBytes + 3 * kEmbeddingRow + 3 * kKeyBytes;  // 2864
  const SpeedLimit slow_memory = PromptLimit(plan, work, {1000, 1e9});
  EXPECT_TRUE(slow_memory.by_memory);
  EXPECT_DOUBLE_EQ(slow_memory.tokens_per_second, 3000.0 / static_cast<double>(bytes));
  const SpeedLimit slow_units = PromptLimit(plan, work, {1e9, 1000});
  EXPECT_FALSE(slow_units.by_memory);
  EXPECT_DOUBLE_EQ(slow_units.tokens_per_second, 3000.0 / static_cast<double>(macs));
  EXPECT_EQ(slow_units.needs.macs, 1904);
}

TEST(GenerationLimit, AddsTheStepsOfAGrowingCache) {
  const Plan plan = SmallPlan();
  const int64_t weights = kMatrixBytes + kNormBytes + kEmbeddingRow;
  // Two steps, at positions 7 and 8: 8 and 9 keys.
  const SpeedLimit limit = GenerationLimit(plan, Work({{7, 1}}), 2, {1000, 1e9});
  EXPECT_TRUE(limit.by_memory);
  EXPECT_DOUBLE_EQ(limit.tokens_per_second,
                   2000.0 / static_cast<double>(2 * weights + (8 + 9) * kKeyBytes));
  EXPECT_EQ(limit.needs.weight_bytes, weights);
  EXPECT_EQ(limit.needs.kv_bytes, (8 + 9) * kKeyBytes / 2);
}

TEST(GenerationLimit, OfABatchCountsAllItsTokensAndTheWeightsOnce) {
  const Plan plan = SmallPlan();
  const SpeedLimit limit = GenerationLimit(plan, Work({{7, 1}, {7, 1}}), 1, {1000, 1e9});
  const int64_t bytes = kMatrixBytes + kNormBytes + 2 * kEmbeddingRow + 2 * 8 * kKeyBytes;
  EXPECT_DOUBLE_EQ(limit.tokens_per_second, 2000.0 / static_cast<double>(bytes));
}

TEST(GenerationLimit, OfManyStepsIsThatOfTheMiddleOne) {
  const Plan plan = SmallPlan();
  const MachineSpeed speed{1000, 1e9};
  const double many = GenerationLimit(plan, Work({{0, 1}}), 10'000, speed).tokens_per_second;
  const double middle = GenerationLimit(plan, Work({{4999, 1}}), 1, speed).tokens_per_second;
  EXPECT_NEAR(many, middle, middle * 0.01);
}

TEST(BestArithmetic, IsTheFastestWithEnoughBits) {
  const std::vector<ComputePeak> peaks = {
      {"float32", "avx512", 2, 250e9},  {"bfloat16", "avx512bf16", 2, 500e9},
      {"int8", "avx512vnni", 2, 900e9}, {"float32", "avx2", 1, 120e9},
      {"int8", "generic", 1, 30e9},     {"int8", "amx", 4, 4000e9}};
  EXPECT_EQ(BestArithmetic(peaks, 2, Factors::kFloat32)->unit, "float32 avx512");
  EXPECT_EQ(BestArithmetic(peaks, 2, Factors::kBfloat16)->unit, "bfloat16 avx512bf16");
  EXPECT_EQ(BestArithmetic(peaks, 2, Factors::kBfloat16)->macs_per_second, 500e9);
  EXPECT_EQ(BestArithmetic(peaks, 2, Factors::kInt8)->unit, "int8 avx512vnni");
  EXPECT_EQ(BestArithmetic(peaks, 2, Factors::kInt8)->macs_per_second, 900e9);
  EXPECT_EQ(BestArithmetic(peaks, 2, Factors::kInt8Pairs)->unit, "bfloat16 avx512bf16");
  EXPECT_EQ(BestArithmetic(peaks, 1, Factors::kInt8)->unit, "float32 avx2");
  EXPECT_EQ(BestArithmetic(peaks, 4, Factors::kInt8Pairs)->unit, "int8 x 2 amx");
  EXPECT_EQ(BestArithmetic(peaks, 4, Factors::kInt8Pairs)->macs_per_second, 2000e9);
  EXPECT_FALSE(BestArithmetic(peaks, 4, Factors::kBfloat16));
  EXPECT_FALSE(BestArithmetic(peaks, 8, Factors::kInt8));
}

}  // namespace
}  // namespace lucid
