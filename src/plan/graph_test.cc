// Graphs of plans small enough to know by heart: blocks, where operands come from, traces, lanes.
#include "plan/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/builder.h"
#include "plan/graph_labels.h"
#include "plan/graph_lanes.h"
#include "plan/graph_test_util.h"
#include "plan/op_table.h"
#include "plan/pass.h"

namespace lucid {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kDim = 8, kFfn = 16, kVocab = 10;

// A layer of attention with one head, and a feed-forward half.
Value Layer(Builder& b, int layer, Value x, int64_t window) {
  const LayerScope w = b.Layer(layer);
  Value h = b.RmsNorm(x, w.Vec("attn_norm", kDim), 1e-5);
  const Value q = b.Linear(h, w.Mat("attn_q", kDim, kDim));
  const Value k = b.Linear(h, w.Mat("attn_k", kDim, kDim));
  const Value v = b.Linear(h, w.Mat("attn_v", kDim, kDim));
  Value kv = b.Kv({.heads = 1, .k_dim = kDim, .v_dim = kDim, .window = window},
                  fmt::format("blk.{}.kv", layer));
  kv = b.KvStore(kv, k, v);
  const Value a = b.Attention(q, kv, {.scale = 0.5, .window = window});
  x = b.Add(x, b.Linear(a, w.Mat("attn_output", kDim, kDim)));
  h = b.RmsNorm(x, w.Vec("ffn_norm", kDim), 1e-5);
  const Value up = b.Activate(b.Linear(h, w.Mat("ffn_up", kFfn, kDim)), Activation::kRelu);
  return b.Named(b.Add(x, b.Linear(up, w.Mat("ffn_down", kDim, kFfn))),
                 fmt::format("blk.{}.out", layer));
}

// Layers with these windows between an embedding and a head.
Plan LayeredPlan(const std::vector<int64_t>& windows) {
  Builder b("test");
  Value x = b.Named(b.Embed(b.Mat("token_embd", kVocab, kDim)), "embed");
  for (size_t i = 0; i < windows.size(); ++i) x = Layer(b, static_cast<int>(i), x, windows[i]);
  x = b.RmsNorm(b.GatherRows(x), b.Vec("output_norm", kDim), 1e-5);
  return b.Finish(b.Linear(x, b.Mat("output", kVocab, kDim)));
}

// One latent attention: a form of it for each phase.
Plan TwoFormPlan() {
  constexpr int64_t kRope = 4, kNope = 4, kLora = 8, kHeads = 2;
  Builder b("forms");
  const Value x = b.Named(b.Embed(b.Mat("token_embd", kVocab, kDim)), "embed");
  const LayerScope w = b.Layer(0);
  const Value q = b.Linear(x, w.Mat("attn_q", kHeads * (kNope + kRope), kDim));
  Value kv = b.Kv({.heads = 1, .k_dim = kLora + kRope, .v_dim = 0}, "blk.0.kv");
  kv = b.KvStore(kv, b.Linear(x, w.Mat("attn_kv", kLora + kRope, kDim)), {});
  const Value w_k = w.Stack("attn_k_b", kHeads, kLora, kNope);
  const Value w_v = w.Stack("attn_v_b", kHeads, kDim / kHeads, kLora);
  const Value given =
      b.MlaAttention(q, kv, w_k, w_v, {.scale = 1, .n_heads = kHeads, .rope_dim = kRope});
  const Value absorbed = b.Concat(b.HeadLinear(q, w_k, true), q,
                                  {.parts = kHeads, .b_dim = kRope, .generated_only = true});
  const Value latents =
      b.Attention(absorbed, kv, {.scale = 1, .v_in_k = kLora, .generated_only = true});
  const Value both = b.ByPhase(given, b.HeadLinear(latents, w_v, true));
  const Value out =
      b.Named(b.Add(x, b.Linear(both, w.Mat("attn_output", kDim, kDim))), "blk.0.out");
  return b.Finish(b.Linear(b.GatherRows(out), b.Mat("output", kVocab, kDim)));
}

Graph Make(const Plan& plan, GraphOptions options = {}) {
  options.sizes = {.tokens = 5, .outputs = 1, .sequences = 1, .context = 5};
  Result<Graph> graph = MakeGraph(plan, std::move(options));
  EXPECT_TRUE(graph.has_value()) << graph.error().message;
  return graph ? *std::move(graph) : Graph();
}

std::string Failure(const Plan& plan, const GraphOptions& options) {
  const Result<Graph> graph = MakeGraph(plan, options);
  EXPECT_FALSE(graph.has_value());
  return graph ? "" : graph.error().message;
}

std::vector<std::string> Titles(const Graph& graph) {
  std::vector<std::string> titles;
  for (const GraphBlock& block : graph.blocks) titles.push_back(BlockTitle(graph, block));
  return titles;
}

// Names of all ops drawn, those of equal layers once.
std::vector<std::string> Names(const Graph& graph) {
  std::vector<std::string> names;
  for (const GraphBlock& block : graph.blocks) {
    for (const GraphNode& node : block.nodes) names.push_back(graph.op(node).name);
  }
  return names;
}

size_t CountOps(const Graph& graph) {
  size_t count = 0;
  for (const GraphBlock& block : graph.blocks) {
    count += block.nodes.size() * std::max<size_t>(1, block.layers.size());
  }
  return count;
}

TEST(GraphTest, EqualLayersAreOneBlock) {
  const Plan plan = LayeredPlan({0, 0, 0});
  const Graph graph = Make(plan);
  EXPECT_THAT(Titles(graph),
              ElementsAre("before the layers", "layers 0 to 2 (3 times)", "after the layers"));
  EXPECT_EQ(CountOps(graph), plan.ops.size());
}

TEST(GraphTest, KindsOfLayersAreToldApart) {
  const Plan plan = LayeredPlan({4, 4, 0, 4, 4, 0, 4});
  EXPECT_THAT(Titles(Make(plan)),
              ElementsAre("before the layers", "layers 0, 1, 3, 4 and 6 (5 times)",
                          "layers 2 and 5 (2 times)", "after the layers"));
}

TEST(GraphTest, TypesOfWeightsTellLayersApart) {
  const Plan plan = LayeredPlan({0, 0, 0});
  std::vector<DType> dtypes(plan.values.size(), DType::kQ4_K);
  for (size_t i = 0; i < plan.values.size(); ++i) {
    if (plan.values[i].name == "blk.2.ffn_down") dtypes[i] = DType::kQ6_K;
  }
  EXPECT_THAT(
      Titles(Make(plan, {.weight_dtypes = dtypes})),
      ElementsAre("before the layers", "layers 0 and 1 (2 times)", "layer 2", "after the layers"));
}

TEST(GraphTest, LayersCanBeShownByThemselves) {
  const Plan plan = LayeredPlan({0, 0, 0, 0});
  EXPECT_THAT(Titles(Make(plan, {.layers = std::pair{1, 2}})),
              ElementsAre("before the layers", "layers 0 and 3 (2 times)", "layer 1", "layer 2",
                          "after the layers"));
  EXPECT_EQ(Make(plan, {.all_layers = true}).blocks.size(), 6u);
  EXPECT_EQ(Failure(plan, {.layers = std::pair{2, 4}}), "the model has layers 0 to 3, not 2-4");
  EXPECT_EQ(Failure(plan, {.layers = std::pair{7, 7}}), "the model has layers 0 to 3, not 7");
}

TEST(GraphTest, PortsSayWhoWroteThem) {
  const Plan plan = LayeredPlan({0, 0, 0});
  const Graph graph = Make(plan);
  const GraphBlock& layers = graph.blocks[1];
  ASSERT_EQ(layers.ports.size(), 1u);
  ASSERT_EQ(layers.ports[0].links.size(), 2u);
  EXPECT_EQ(PortText(graph, layers, layers.ports[0]),
            "layer 0: embed; layers 1 and 2: out of the layer before");
  const GraphBlock& after = graph.blocks[2];
  ASSERT_EQ(after.ports.size(), 1u);
  EXPECT_EQ(LinkText(graph, after, after.ports[0], after.ports[0].links[0]), "blk.2.out");
  EXPECT_EQ(after.ports[0].links[0].block, 1);
}

TEST(GraphTest, OperandsSayWhereTheyComeFrom) {
  const Plan plan = LayeredPlan({0});
  const Graph graph = Make(plan);
  const GraphBlock& layer = graph.blocks[1];
  const auto store = std::ranges::find_if(
      layer.nodes, [&](const GraphNode& node) { return graph.op(node).kind == OpKind::kKvStore; });
  ASSERT_NE(store, layer.nodes.end());
  EXPECT_EQ(store->inputs[0].source, GraphSource::kCache);
  EXPECT_EQ(store->inputs[1].source, GraphSource::kNode);
  EXPECT_EQ(graph.op(layer.nodes[static_cast<size_t>(store->inputs[1].index)]).name,
            "blk.0.attn_k");
  EXPECT_EQ(store->inputs[3].role, "positions");
  EXPECT_EQ(store->inputs[3].source, GraphSource::kBatch);
  EXPECT_EQ(layer.nodes[0].inputs[0].source, GraphSource::kPort);
  EXPECT_EQ(layer.nodes[0].inputs[1].source, GraphSource::kWeight);
  EXPECT_EQ(layer.nodes[1].inputs[2].source, GraphSource::kAbsent);
}

TEST(GraphTest, FusedOpsThatReachIntoTheNextLayerAreLinks) {
  const Plan fused = FusePlan(LayeredPlan({0, 0, 0, 0}));
  const Graph graph = Make(fused);
  EXPECT_EQ(CountOps(graph), fused.ops.size());
  EXPECT_THAT(Titles(graph), ElementsAre("before the layers", "layer 0", "layers 1 and 2 (2 times)",
                                         "layer 3", "after the layers"));
  // The sum and its norm, both from the layer before.
  const GraphBlock& inner = graph.blocks[2];
  ASSERT_EQ(inner.ports.size(), 2u);
  EXPECT_EQ(LinkText(graph, inner, inner.ports[0], inner.ports[0].links[0]),
            "attn_norm of the layer before");
  EXPECT_EQ(PortText(graph, inner, inner.ports[0]), "attn_norm of the layer before");
}

TEST(GraphTest, APlanWithoutLayersIsOneBlock) {
  Builder b("flat");
  const Value x = b.Embed(b.Mat("token_embd", kVocab, kDim));
  const Plan plan = b.Finish(b.Linear(b.GatherRows(x), b.Mat("output", kVocab, kDim)));
  EXPECT_THAT(Titles(Make(plan)), ElementsAre("all ops"));
  EXPECT_EQ(Failure(plan, {.layers = std::pair{0, 0}}), "the plan has no layers");
}

TEST(GraphTest, EachPhaseHasItsForm) {
  const Plan plan = TwoFormPlan();
  const std::vector<std::string> given = Names(Make(plan, {.phase = Phase::kPrompt}));
  const std::vector<std::string> made = Names(Make(plan, {.phase = Phase::kGenerated}));
  EXPECT_THAT(given, testing::Contains("blk.0.attn_q.mla"));
  EXPECT_THAT(given, testing::Not(testing::Contains("blk.0.attn")));
  EXPECT_THAT(made, testing::Contains("blk.0.attn"));
  EXPECT_THAT(made, testing::Not(testing::Contains("blk.0.attn_q.mla")));
  const Graph graph = Make(plan, {.phase = Phase::kPrompt});
  for (const GraphNode& node : graph.blocks[1].nodes) {
    if (graph.op(node).kind != OpKind::kByPhase) continue;
    EXPECT_EQ(node.inputs[0].source, GraphSource::kNode);
    EXPECT_EQ(node.inputs[1].source, GraphSource::kOtherPhase);
  }
}

TEST(TraceBackTest, LogitsReachEveryOp) {
  for (const Plan& plan : {LayeredPlan({0, 4, 0}), FusePlan(LayeredPlan({0, 0, 0}))}) {
    const Graph graph = Make(plan, {.trace_back = "logits"});
    EXPECT_EQ(graph.target, "logits");
    EXPECT_EQ(CountOps(graph), plan.ops.size());
  }
}

TEST(TraceBackTest, FollowsOperandsOnly) {
  const Plan plan = LayeredPlan({0, 0});
  const Graph graph = Make(plan, {.trace_back = "blk.0.attn"});
  EXPECT_THAT(Names(graph), ElementsAre("embed", "blk.0.attn_norm", "blk.0.attn_q", "blk.0.attn_k",
                                        "blk.0.attn_v", "blk.0.kv.store", "blk.0.attn"));
  EXPECT_THAT(Names(Make(plan, {.trace_back = "embed"})), ElementsAre("embed"));
}

TEST(TraceBackTest, DepthIsTheLongestWay) {
  const Plan plan = LayeredPlan({0});
  const Graph graph = Make(plan, {.trace_back = "blk.0.attn"});
  std::vector<int32_t> depths;
  for (const GraphBlock& block : graph.blocks) {
    for (const GraphNode& node : block.nodes) depths.push_back(node.depth);
  }
  // q is one step before the attention, k and v are two: through the store.
  EXPECT_THAT(depths, ElementsAre(4, 3, 1, 2, 2, 1, 0));
  // The residual stream is one step before the sum, and five through the feed-forward half.
  const Graph whole = Make(plan, {.trace_back = "blk.0.out"});
  depths.clear();
  for (const GraphBlock& block : whole.blocks) {
    for (const GraphNode& node : block.nodes) depths.push_back(node.depth);
  }
  EXPECT_THAT(depths, ElementsAre(11, 10, 8, 9, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0));
}

TEST(TraceBackTest, APartOfALayerIsNoLayerOfTheOthers) {
  const Plan plan = LayeredPlan({0, 0, 0});
  EXPECT_THAT(Titles(Make(plan, {.trace_back = "blk.2.attn"})),
              ElementsAre("before the layers", "layers 0 and 1 (2 times)", "layer 2"));
}

TEST(TraceBackTest, FollowsTheFormOfThePhase) {
  const Plan plan = TwoFormPlan();
  const auto names = Names(Make(plan, {.phase = Phase::kGenerated, .trace_back = "logits"}));
  EXPECT_THAT(names, testing::Contains("blk.0.attn_k_b"));
  EXPECT_THAT(names, testing::Not(testing::Contains("blk.0.attn_q.mla")));
}

TEST(TraceBackTest, NamesThatCannotBeTracedAreExplained) {
  const Plan plan = LayeredPlan({0, 0});
  EXPECT_EQ(Failure(plan, {.trace_back = "blk.0.atn"}).substr(0, 59),
            "no op is called 'blk.0.atn'; these are like it: blk.0.attn,");
  EXPECT_THAT(Failure(plan, {.trace_back = "attn_q"}), HasSubstr("blk.0.attn_q, blk.1.attn_q"));
  EXPECT_EQ(Failure(plan, {.trace_back = "tokens"}),
            "tokens is read and depends on nothing; it is read by embed");
  EXPECT_EQ(Failure(plan, {.trace_back = "token_embd"}),
            "token_embd is read and depends on nothing; it is read by embed");
  EXPECT_EQ(Failure(TwoFormPlan(), {.phase = Phase::kPrompt, .trace_back = "blk.0.attn"}),
            "blk.0.attn is not computed in prefill, only in decode");
}

TEST(GraphLabelsTest, LayersReadAsAPersonWouldSayThem) {
  EXPECT_EQ(LayersText(std::vector<int32_t>{3}), "layer 3");
  EXPECT_EQ(LayersText(std::vector<int32_t>{3, 4}), "layers 3 and 4");
  EXPECT_EQ(LayersText(std::vector<int32_t>{0, 1, 2, 5, 7, 8, 9, 10}),
            "layers 0 to 2, 5 and 7 to 10");
}

TEST(GraphLanesTest, WiresNeverShareALane) {
  for (const Plan& plan : {LayeredPlan({0, 4}), FusePlan(LayeredPlan({0, 0, 0})), TwoFormPlan()}) {
    const Graph graph = Make(plan);
    for (size_t b = 0; b < graph.blocks.size(); ++b) EXPECT_EQ(LaneCollision(graph, b), "");
  }
}

TEST(GraphLanesTest, EveryReaderIsOnItsWire) {
  const Plan plan = LayeredPlan({0});
  const Graph graph = Make(plan);
  const GraphLanes lanes = LayOutLanes(graph, 1);
  size_t reads = 0;
  for (const GraphNode& node : graph.blocks[1].nodes) {
    for (const GraphInput& input : node.inputs) {
      reads += input.source == GraphSource::kNode || input.source == GraphSource::kPort;
    }
  }
  size_t drawn = 0;
  for (const GraphWire& wire : lanes.wires) drawn += wire.readers.size();
  EXPECT_EQ(drawn, reads);
  EXPECT_EQ(lanes.wires.front().from, -1);
  EXPECT_THAT(lanes.wires.front().readers, ElementsAre(0, 7));  // attn_norm and the first sum
}

}  // namespace
}  // namespace lucid
