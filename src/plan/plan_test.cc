// The builder's shapes, the op table's costs, and the passes, on plans small enough to check by
// hand.
#include "plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/builder.h"
#include "plan/op_table.h"
#include "plan/pass.h"
#include "plan/print.h"

namespace lucid {
namespace {

using testing::HasSubstr;

constexpr int64_t kDim = 8, kHeads = 2, kKvHeads = 1, kHeadDim = 4, kFfn = 16, kVocab = 10;

// One llama-like block with an embedding and a head.
Plan SmallPlan() {
  Builder b("small");
  Value x = b.Named(b.Embed(b.Mat("token_embd", kVocab, kDim)), "embed");
  const LayerScope w = b.Layer(0);
  Value h = b.RmsNorm(x, w.Vec("attn_norm", kDim), 1e-5);
  Value q = b.Linear(h, w.Mat("attn_q", kHeads * kHeadDim, kDim),
                     w.Vec("attn_q.bias", kHeads * kHeadDim));
  Value k = b.Linear(h, w.Mat("attn_k", kKvHeads * kHeadDim, kDim));
  const Value v = b.Linear(h, w.Mat("attn_v", kKvHeads * kHeadDim, kDim));
  q = b.RmsNorm(q, w.Vec("attn_q_norm", kHeadDim), 1e-5);
  RopeSpec rope;
  rope.rotary_dim = kHeadDim;
  q = b.Rope(q, kHeadDim, rope);
  k = b.Rope(k, kHeadDim, rope);
  Value kv =
      b.Kv({.heads = kKvHeads, .k_dim = kHeadDim, .v_dim = kHeadDim, .window = 0}, "blk.0.kv");
  kv = b.KvStore(kv, k, v);
  const Value a = b.Attention(q, kv, {.scale = 0.5, .window = 0, .softcap = 0});
  x = b.Add(x, b.Linear(a, w.Mat("attn_output", kDim, kHeads * kHeadDim)));
  h = b.RmsNorm(x, w.Vec("ffn_norm", kDim), 1e-5);
  const Value gate = b.Linear(h, w.Mat("ffn_gate", kFfn, kDim));
  const Value up = b.Linear(h, w.Mat("ffn_up", kFfn, kDim));
  x = b.Named(b.Add(x, b.Linear(b.Glu(gate, up, Activation::kSilu), w.Mat("ffn_down", kDim, kFfn))),
              "blk.0.out");
  x = b.RmsNorm(b.GatherRows(x), b.Vec("output_norm", kDim), 1e-5);
  return b.Finish(b.Linear(x, b.Mat("token_embd", kVocab, kDim)));
}

const Op& FindOp(const Plan& plan, OpKind kind) {
  return *std::find_if(plan.ops.begin(), plan.ops.end(),
                       [kind](const Op& op) { return op.kind == kind; });
}

int Count(const Plan& plan, OpKind kind) {
  return static_cast<int>(std::count_if(plan.ops.begin(), plan.ops.end(),
                                        [kind](const Op& op) { return op.kind == kind; }));
}

Workload OneSequence(int64_t start, int64_t count) {
  Workload work;
  work.sequences = {{start, count}};
  work.outputs = 1;
  return work;
}

TEST(PlanTest, BuilderInfersShapes) {
  const Plan plan = SmallPlan();
  ASSERT_TRUE(VerifyPlan(plan).has_value());
  EXPECT_EQ(plan.Info(plan.logits).shape, (Shape{Symbol::kOutputs, kVocab}));
  const Value attention = FindOp(plan, OpKind::kAttention).outputs[0];
  EXPECT_EQ(plan.Info(attention).shape, (Shape{Symbol::kTokens, kHeads * kHeadDim}));
  const Value rope = FindOp(plan, OpKind::kRope).outputs[0];
  EXPECT_EQ(plan.Info(rope).shape.ToString(), "[T, 2, 4]");
}

TEST(PlanTest, TiedEmbeddingIsOneWeight) {
  const Plan plan = SmallPlan();
  const std::vector<Value> weights = plan.Weights();
  EXPECT_EQ(std::count_if(weights.begin(), weights.end(),
                          [&](Value v) { return plan.Info(v).name == "token_embd"; }),
            1);
}

TEST(PlanTest, EveryWriteToACacheIsANewVersion) {
  const Plan plan = SmallPlan();
  const Op& store = FindOp(plan, OpKind::kKvStore);
  const Op& attention = FindOp(plan, OpKind::kAttention);
  EXPECT_NE(store.inputs[0], store.outputs[0]);
  EXPECT_EQ(attention.inputs[1], store.outputs[0]);
}

TEST(PlanTest, OpsKnowTheLineThatEmittedThem) {
  const Plan plan = SmallPlan();
  EXPECT_THAT(plan.ops[0].where.file_name(), HasSubstr("plan_test.cc"));
  EXPECT_GT(plan.ops[0].where.line(), 0u);
}

TEST(VerifyTest, NamesTheOpThatReadsTooEarly) {
  Plan plan = SmallPlan();
  std::swap(plan.ops[1], plan.ops[2]);
  const Status status = VerifyPlan(plan);
  ASSERT_FALSE(status.has_value());
  EXPECT_THAT(status.error().message,
              HasSubstr("blk.0.attn_q: reads blk.0.attn_norm before it is written"));
}

TEST(VerifyTest, FindsAWrongShape) {
  Plan plan = SmallPlan();
  const Value v = FindOp(plan, OpKind::kLinear).outputs[0];
  plan.values[static_cast<size_t>(v.id)].shape = {Symbol::kTokens, 999};
  EXPECT_FALSE(VerifyPlan(plan).has_value());
}

TEST(FuseTest, ReplacesNeighboursAndKeepsNames) {
  const Plan plan = SmallPlan();
  const Plan fused = FusePlan(plan);
  const Status status = VerifyPlan(fused);
  ASSERT_TRUE(status.has_value()) << status.error().message;
  EXPECT_EQ(Count(fused, OpKind::kLinearGroup), 1);
  EXPECT_EQ(Count(fused, OpKind::kGluLinear), 1);
  EXPECT_EQ(Count(fused, OpKind::kAddRmsNorm), 1);
  EXPECT_EQ(Count(fused, OpKind::kNormRope), 1);
  EXPECT_EQ(Count(fused, OpKind::kGlu), 0);
  EXPECT_EQ(FindOp(fused, OpKind::kLinearGroup).name, "blk.0.attn_q+attn_k+attn_v");
  const bool has_name =
      std::any_of(fused.values.begin(), fused.values.end(),
                  [](const ValueInfo& v) { return v.producer >= 0 && v.name == "blk.0.out"; });
  EXPECT_TRUE(has_name);
  EXPECT_EQ(fused.logits, plan.logits);
}

TEST(FuseTest, LeavesAValueThatSomebodyElseReads) {
  Builder b("shared");
  const Value x = b.Embed(b.Mat("token_embd", kVocab, kDim));
  const Value gate = b.Linear(x, b.Mat("gate", kFfn, kDim));
  const Value up = b.Linear(x, b.Mat("up", kFfn, kDim));
  const Value glu = b.Glu(gate, up, Activation::kSilu);
  const Value sum = b.Add(glu, gate);  // reads the gate again
  const Plan fused = FusePlan(b.Finish(b.Linear(b.GatherRows(sum), b.Mat("output", kVocab, kFfn))));
  EXPECT_TRUE(VerifyPlan(fused).has_value());
  EXPECT_EQ(Count(fused, OpKind::kGluLinear), 0);
}

TEST(MemoryTest, LiveValuesNeverOverlap) {
  for (const Plan& plan : {SmallPlan(), FusePlan(SmallPlan())}) {
    Sizes sizes;
    sizes.tokens = 7;
    sizes.outputs = 3;
    const MemoryPlan memory = PlanMemory(plan, sizes);
    std::vector<size_t> last_read(plan.values.size(), 0);
    for (size_t i = 0; i < plan.ops.size(); ++i) {
      for (const Value v : plan.ops[i].inputs) {
        if (v.present()) last_read[static_cast<size_t>(v.id)] = i;
      }
    }
    last_read[static_cast<size_t>(plan.logits.id)] = plan.ops.size();
    const auto bytes = [&](size_t v) { return 4 * plan.values[v].shape.Elements(sizes); };
    int64_t sum = 0;
    for (size_t a = 0; a < plan.values.size(); ++a) {
      if (memory.offsets[a] < 0) continue;
      EXPECT_EQ(memory.offsets[a] % 64, 0);
      EXPECT_LE(memory.offsets[a] + bytes(a), memory.arena_bytes);
      sum += bytes(a);
      for (size_t b = 0; b < a; ++b) {
        if (memory.offsets[b] < 0) continue;
        const auto written = [&](size_t v) { return static_cast<size_t>(plan.values[v].producer); };
        const bool both_alive = written(a) <= std::max(last_read[b], written(b)) &&
                                written(b) <= std::max(last_read[a], written(a));
        const bool apart = memory.offsets[a] + bytes(a) <= memory.offsets[b] ||
                           memory.offsets[b] + bytes(b) <= memory.offsets[a];
        EXPECT_TRUE(!both_alive || apart) << plan.values[a].name << " and " << plan.values[b].name;
      }
    }
    EXPECT_LT(memory.arena_bytes, sum) << "memory is reused";
  }
}

TEST(CostTest, LinearCountsMultiplyAddsTwiceAndStreamsItsWeight) {
  const Plan plan = SmallPlan();
  const Op& op = FindOp(plan, OpKind::kLinear);  // attn_q with bias, [8, 8]
  const Cost cost = Info(op.kind).cost(plan, op, OneSequence(0, 3));
  EXPECT_EQ(cost.flops, 2 * 3 * 8 * 8 + 3 * 8);
  EXPECT_EQ(cost.weight_bytes, 4 * (8 * 8 + 8));
  EXPECT_EQ(cost.activation_bytes, 4 * 3 * (8 + 8));
}

TEST(CostTest, EmbeddingReadsOneRowPerToken) {
  const Plan plan = SmallPlan();
  const Cost cost = Info(OpKind::kEmbed).cost(plan, plan.ops[0], OneSequence(0, 3));
  EXPECT_EQ(cost.weight_bytes, 3 * 4 * kDim);
}

TEST(CostTest, AttentionCountsTheCausalTriangleAndTheWindow) {
  EXPECT_EQ(OneSequence(0, 4).AttendedPairs(0), 1 + 2 + 3 + 4);
  EXPECT_EQ(OneSequence(10, 1).AttendedPairs(0), 11);
  EXPECT_EQ(OneSequence(0, 4).AttendedPairs(2), 1 + 2 + 2 + 2);
  EXPECT_EQ(OneSequence(10, 2).KeysRead(0), 12);
  EXPECT_EQ(OneSequence(10, 2).KeysRead(4), 5);
  const Plan plan = SmallPlan();
  const Op& op = FindOp(plan, OpKind::kAttention);
  const Cost cost = Info(op.kind).cost(plan, op, OneSequence(9, 1));
  EXPECT_EQ(cost.flops, kHeads * 10 * (2 * kHeadDim + 2 * kHeadDim + 5));
  EXPECT_EQ(cost.kv_read_bytes, 10 * kKvHeads * 2 * kHeadDim * 2);  // f16 keys and values
}

TEST(CostTest, CacheTypesCountTheirScales) {
  const Plan plan = SmallPlan();
  const Op& store = FindOp(plan, OpKind::kKvStore);
  const Op& attention = FindOp(plan, OpKind::kAttention);
  Workload work = OneSequence(9, 2);
  work.k_type = KvType::kInt8;
  work.v_type = KvType::kInt4;
  const int64_t row = (kHeadDim + 2) + (4 + kHeadDim / 2);
  EXPECT_EQ(Info(store.kind).cost(plan, store, work).kv_write_bytes, 2 * kKvHeads * row);
  EXPECT_EQ(Info(attention.kind).cost(plan, attention, work).kv_read_bytes, 11 * kKvHeads * row);
}

TEST(CostTest, Kivi2ReadsOldBlocksPackedAndPacksThemOnce) {
  const Plan plan = SmallPlan();
  const Op& store = FindOp(plan, OpKind::kKvStore);
  const Op& attention = FindOp(plan, OpKind::kAttention);
  Workload work = OneSequence(kKiviResidual + 31, 1);  // the second block becomes old enough
  work.k_type = KvType::kKivi2;
  work.v_type = KvType::kKivi2;
  work.kv_block_size = 16;
  const int64_t f16_row = 2 * 2 * kHeadDim;
  const int64_t block = kHeadDim * (4 + 16 / 4) + 16 * (4 + kHeadDim / 4);
  const Cost write = Info(store.kind).cost(plan, store, work);
  EXPECT_EQ(write.kv_write_bytes, kKvHeads * (f16_row + block));
  EXPECT_EQ(write.kv_read_bytes, kKvHeads * 16 * f16_row);
  EXPECT_EQ(Info(attention.kind).cost(plan, attention, work).kv_read_bytes,
            kKvHeads * (kKiviResidual * f16_row + 2 * block));
}

TEST(CostTest, ExpertsCountThoseThatEvenChoicesTouch) {
  constexpr int64_t kExperts = 4, kWidth = 8, kInner = 16;
  Builder b("test");
  const Value x = b.Embed(b.Mat("token_embd", 10, kWidth));
  const LayerScope w = b.Layer(0);
  const Value logits = b.ExactLinear(x, w.Mat("router", kExperts, kWidth));
  const Routes routes = b.Route(logits, {}, {.n_used = 2});
  const ExpertWeights gate = {w.Stack("gate", kExperts, kInner, kWidth), {}};
  const ExpertWeights up = {w.Stack("up", kExperts, kInner, kWidth), {}};
  const ExpertWeights down = {w.Stack("down", kExperts, kWidth, kInner), {}};
  const Value h = b.ExpertGlu(x, routes.experts, gate, up, {});
  const Value y = b.MixExperts(b.ExpertLinear(h, routes.experts, down), routes.weights);
  const Plan plan = b.Finish(b.GatherRows(y));
  ASSERT_TRUE(VerifyPlan(plan).has_value());
  const auto find = [&](OpKind kind) {
    return *std::find_if(plan.ops.begin(), plan.ops.end(),
                         [kind](const Op& op) { return op.kind == kind; });
  };
  const Op glu = find(OpKind::kExpertGlu);
  const Workload one = OneSequence(5, 1);
  const Workload two = OneSequence(0, 2);
  const int64_t matrix = kInner * kWidth;
  EXPECT_EQ(Info(glu.kind).cost(plan, glu, one).macs, 2 * 2 * matrix);
  EXPECT_EQ(Info(glu.kind).cost(plan, glu, one).weight_bytes, 2 * 2 * matrix * 4);
  // Of four experts two tokens miss each with a chance of a quarter.
  EXPECT_EQ(Info(glu.kind).cost(plan, glu, two).weight_bytes, 2 * 3 * matrix * 4);
  const Op linear = find(OpKind::kExpertLinear);
  EXPECT_EQ(Info(linear.kind).cost(plan, linear, two).macs, 2 * 2 * matrix);
  EXPECT_EQ(Info(linear.kind).cost(plan, linear, two).weight_bytes, 3 * matrix * 4);
}

TEST(CostTest, FusingKeepsFlopsAndWeightBytes) {
  const Plan plan = SmallPlan();
  const auto total = [](const Plan& p) {
    Cost sum;
    for (const Op& op : p.ops) sum += Info(op.kind).cost(p, op, OneSequence(5, 2));
    return sum;
  };
  const Cost before = total(plan), after = total(FusePlan(plan));
  EXPECT_EQ(before.flops, after.flops);
  EXPECT_EQ(before.weight_bytes, after.weight_bytes);
  EXPECT_EQ(before.kv_read_bytes, after.kv_read_bytes);
  EXPECT_GT(before.activation_bytes, after.activation_bytes);
}

}  // namespace
}  // namespace lucid
