// The flow of shapes of published models against what texts about inference state of them, and of
// every reference model against its own plan.
#include "engine/shape_flow.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "exec/packed_weights.h"
#include "models/outline.h"

namespace lucid {
namespace {

namespace fs = std::filesystem;

Model Published(const std::string& name) {
  return OutlineModel(std::string(LUCID_SOURCE_DIR) + "/tests/data/configs/" + name + ".json", "")
      .value();
}

ShapeFlow Flow(const Model& model, const FlowOptions& options = {}, bool fused = false) {
  return MakeShapeFlow(fused ? FusedPlan(model) : model.plan, model.config, model.weights.dtypes(),
                       options)
      .value();
}

const FlowStep& Step(const ShapeFlow& flow, const std::string& name) {
  for (const FlowBlock& block : flow.blocks) {
    for (const FlowStep& step : block.steps) {
      if (step.name == name) return step;
    }
  }
  ADD_FAILURE() << "no step " << name;
  return flow.blocks.front().steps.front();
}

// "[B, n_q, S, d] [2, 32, 10, 128] [2, 32, 1, 128]" of a step's tensor, the only one without a
// name.
std::string Line(const ShapeFlow& flow, const std::string& step, const std::string& tensor = "") {
  for (const FlowTensor& t : Step(flow, step).tensors) {
    if (t.name == tensor) return t.Symbolic() + " " + t.Concrete(0) + " " + t.Concrete(1);
  }
  ADD_FAILURE() << step << " has no tensor '" << tensor << "'";
  return "";
}

int64_t Symbol(const ShapeFlow& flow, const std::string& name) {
  const auto found = std::ranges::find(flow.symbols, name, &FlowSymbol::symbol);
  return found == flow.symbols.end() ? -1 : found->value[0];
}

// The walk through Llama 3 8B of the texts: two prompts of ten tokens, then the first token of
// each.
TEST(ShapeFlowTest, Llama3WithTwoPromptsOfTenTokens) {
  const ShapeFlow flow = Flow(Published("llama-3-8b"));
  EXPECT_EQ(flow.n_layers, 32);
  ASSERT_EQ(flow.blocks.size(), 3u);
  EXPECT_EQ(flow.blocks[1].title, "layers 0 to 31 (32 times)");
  EXPECT_EQ(Line(flow, "input_ids"), "[B, S] [2, 10] [2, 1]");
  EXPECT_EQ(Line(flow, "embed"), "[B, S, H] [2, 10, 4096] [2, 1, 4096]");
  EXPECT_EQ(Line(flow, "attn_norm"), "[B, S, H] [2, 10, 4096] [2, 1, 4096]");
  EXPECT_EQ(Line(flow, "attn_q"), "[B, S, n_q*d] [2, 10, 4096] [2, 1, 4096]");
  EXPECT_EQ(Line(flow, "attn_k"), "[B, S, n_kv*d] [2, 10, 1024] [2, 1, 1024]");
  EXPECT_EQ(Line(flow, "attn_v"), "[B, S, n_kv*d] [2, 10, 1024] [2, 1, 1024]");
  EXPECT_EQ(Line(flow, "attn_q.rope"), "[B, n_q, S, d] [2, 32, 10, 128] [2, 32, 1, 128]");
  EXPECT_EQ(Line(flow, "attn_k.rope"), "[B, n_kv, S, d] [2, 8, 10, 128] [2, 8, 1, 128]");
  EXPECT_EQ(Line(flow, "kv.store", "K_new"), "[B, n_kv, S, d] [2, 8, 10, 128] [2, 8, 1, 128]");
  EXPECT_EQ(Line(flow, "kv.store", "V_new"), "[B, n_kv, S, d] [2, 8, 10, 128] [2, 8, 1, 128]");
  EXPECT_EQ(Line(flow, "attn", "Q"), "[B, n_q, S, d] [2, 32, 10, 128] [2, 32, 1, 128]");
  EXPECT_EQ(Line(flow, "attn", "K_full"), "[B, n_kv, C, d] [2, 8, 10, 128] [2, 8, 11, 128]");
  EXPECT_EQ(Line(flow, "attn", "V_full"), "[B, n_kv, C, d] [2, 8, 10, 128] [2, 8, 11, 128]");
  EXPECT_EQ(Line(flow, "attn", "scores"), "[B, n_q, S, C] [2, 32, 10, 10] [2, 32, 1, 11]");
  EXPECT_EQ(Line(flow, "attn", "weights"), "[B, n_q, S, C] [2, 32, 10, 10] [2, 32, 1, 11]");
  EXPECT_EQ(Line(flow, "attn", "out"), "[B, n_q, S, d] [2, 32, 10, 128] [2, 32, 1, 128]");
  EXPECT_EQ(Line(flow, "attn", "rows"), "[B, S, n_q*d] [2, 10, 4096] [2, 1, 4096]");
  EXPECT_EQ(Line(flow, "attn_output"), "[B, S, H] [2, 10, 4096] [2, 1, 4096]");
  EXPECT_EQ(Line(flow, "attn_output.add"), "[B, S, H] [2, 10, 4096] [2, 1, 4096]");
  EXPECT_EQ(Line(flow, "ffn_gate"), "[B, S, I] [2, 10, 14336] [2, 1, 14336]");
  EXPECT_EQ(Line(flow, "ffn_gate.glu"), "[B, S, I] [2, 10, 14336] [2, 1, 14336]");
  EXPECT_EQ(Line(flow, "ffn_down"), "[B, S, H] [2, 10, 4096] [2, 1, 4096]");
  EXPECT_EQ(Line(flow, "out"), "[B, S, H] [2, 10, 4096] [2, 1, 4096]");
  // Only the last position meets the output matrix.
  EXPECT_EQ(Line(flow, "blk.31.out.rows"), "[B, H] [2, 4096] [2, 4096]");
  EXPECT_EQ(Line(flow, "output_norm"), "[B, H] [2, 4096] [2, 4096]");
  EXPECT_EQ(Line(flow, "logits"), "[B, V] [2, 128256] [2, 128256]");
  EXPECT_EQ(Line(flow, "next_token"), "[B, 1] [2, 1] [2, 1]");

  const FlowStep& q = Step(flow, "attn_q");
  ASSERT_EQ(q.weights.size(), 1u);
  EXPECT_EQ(q.weights[0].name, "blk.0.attn_q");
  EXPECT_EQ(q.weights[0].dtype, "BF16");
  EXPECT_EQ(q.weights[0].shape, "[4096, 4096]");
  EXPECT_EQ(q.weights[0].bytes, 33554432);
  EXPECT_EQ(q.cost[0].flops, int64_t{2} * 20 * 4096 * 4096);
  EXPECT_EQ(q.cost[1].flops, int64_t{2} * 2 * 4096 * 4096);
  EXPECT_EQ(Step(flow, "embed").formula, "the row of the table for each index");
  const std::map<std::string, int64_t> symbols = {
      {"B", 2}, {"H", 4096}, {"n_q", 32}, {"n_kv", 8}, {"d", 128}, {"I", 14336}, {"V", 128256}};
  for (const auto& [name, value] : symbols) EXPECT_EQ(Symbol(flow, name), value) << name;
}

// At a later step of the reply the cache is longer, and nothing else.
TEST(ShapeFlowTest, OnlyAttentionSeesTheCache) {
  const Model model = Published("llama-3-8b");
  const ShapeFlow near = Flow(model);
  const ShapeFlow far = Flow(model, {.cached = 2047});
  EXPECT_EQ(Line(far, "attn", "scores"), "[B, n_q, S, C] [2, 32, 10, 10] [2, 32, 1, 2048]");
  EXPECT_EQ(Line(far, "attn", "K_full"), "[B, n_kv, C, d] [2, 8, 10, 128] [2, 8, 2048, 128]");
  EXPECT_EQ(Line(far, "attn", "out"), Line(near, "attn", "out"));
  const std::vector<FlowStep>& a = near.blocks[1].steps;
  const std::vector<FlowStep>& b = far.blocks[1].steps;
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].kind == "attention") {
      EXPECT_GT(b[i].cost[1].flops, 100 * a[i].cost[1].flops);
    } else {
      EXPECT_EQ(a[i].cost[1].flops, b[i].cost[1].flops) << a[i].name;
    }
  }
}

// Row 5 of the same table of numbers: a prompt of 16 tokens and one token through Qwen2.5-7B.
TEST(ShapeFlowTest, Qwen25WithOnePrompt) {
  const ShapeFlow flow = Flow(Published("qwen2.5-7b"), {.batch = 1, .prompt = 16});
  EXPECT_EQ(Line(flow, "embed"), "[B, S, H] [1, 16, 3584] [1, 1, 3584]");
  EXPECT_EQ(Line(flow, "attn", "Q"), "[B, n_q, S, d] [1, 28, 16, 128] [1, 28, 1, 128]");
  EXPECT_EQ(Line(flow, "kv.store", "K_new"), "[B, n_kv, S, d] [1, 4, 16, 128] [1, 4, 1, 128]");
  EXPECT_EQ(Line(flow, "logits"), "[B, V] [1, 152064] [1, 152064]");
  EXPECT_EQ(Step(flow, "attn_q").weights.size(), 2u);  // a bias
}

TEST(ShapeFlowTest, LatentAttentionHasAFormForEachPhase) {
  const ShapeFlow flow = Flow(Published("deepseek-v3"));
  const FlowStep& expanded = Step(flow, "attn_q_b.rope.mla");
  EXPECT_TRUE(expanded.runs[0] && !expanded.runs[1]);
  EXPECT_EQ(Line(flow, "attn_q_b.rope.mla", "K_full"),
            "[B, n_q, C, d] [2, 128, 10, 192] [2, 128, 11, 192]");
  EXPECT_EQ(Line(flow, "attn_q_b.rope.mla", "V_full"),
            "[B, n_q, C, d_v] [2, 128, 10, 128] [2, 128, 11, 128]");
  const FlowStep& absorbed = Step(flow, "attn");
  EXPECT_TRUE(!absorbed.runs[0] && absorbed.runs[1]);
  EXPECT_EQ(Line(flow, "attn", "Q"), "[B, n_q, S, r+d_r] [2, 128, 10, 576] [2, 128, 1, 576]");
  EXPECT_EQ(Line(flow, "attn", "latents"), "[B, 1, C, r+d_r] [2, 1, 10, 576] [2, 1, 11, 576]");
  EXPECT_EQ(Line(flow, "kv.store", "latent"), "[B, 1, S, r+d_r] [2, 1, 10, 576] [2, 1, 1, 576]");
  EXPECT_EQ(Line(flow, "ffn_gate_exps.glu"), "[B, S, k, I_e] [2, 10, 8, 2048] [2, 1, 8, 2048]");
  EXPECT_EQ(flow.blocks[1].title, "layers 0 to 2 (3 times)");
  EXPECT_EQ(flow.blocks[2].title, "layers 3 to 60 (58 times)");
}

TEST(ShapeFlowTest, AWindowBoundsWhatADecodeStepSees) {
  const ShapeFlow flow = Flow(Published("mistral-7b"), {.batch = 1, .cached = 9999});
  EXPECT_EQ(Line(flow, "attn", "scores"), "[B, n_q, S, C_w] [1, 32, 10, 10] [1, 32, 1, 4096]");
}

TEST(ShapeFlowTest, WrongSizesAreRefused) {
  const Model model = Published("gpt2");
  const auto refused = [&](const FlowOptions& options) {
    return MakeShapeFlow(model.plan, model.config, model.weights.dtypes(), options).error().message;
  };
  EXPECT_EQ(refused({.batch = 0}), "the number of sequences is 0, must be 1 to 16777216");
  EXPECT_EQ(refused({.prompt = 0}), "the number of tokens of a prompt is 0, must be 1 to 16777216");
  EXPECT_EQ(refused({.cached = -1}), "the number of cached positions is -1, must be 0 to 16777216");
  EXPECT_EQ(refused({.layers = std::pair(3, 12)}), "the model has layers 0 to 11, not 3-12");
}

// Of every reference model, as declared and fused: each op once, sums as the ledger has them,
// shapes that multiply to the plan's.
TEST(ShapeFlowTest, HasTheOpsOfThePlanAndTheCostsOfTheLedger) {
  const fs::path folder = std::string(LUCID_SHARED_DIR) + "/fixtures/models";
  if (!fs::exists(folder)) GTEST_SKIP() << "no reference models in " << folder;
  size_t models = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    Result<Model> model = LoadModel(entry.path().string());
    ASSERT_TRUE(model.has_value()) << model.error().message;
    ++models;
    for (const bool fused : {false, true}) {
      SCOPED_TRACE(entry.path().filename().string() + (fused ? " fused" : ""));
      const Plan plan = fused ? FusedPlan(*model) : model->plan;
      for (const bool all_layers : {false, true}) {
        const FlowOptions options{.batch = 3, .prompt = 7, .cached = 40, .all_layers = all_layers};
        const ShapeFlow flow =
            MakeShapeFlow(plan, model->config, model->weights.dtypes(), options).value();
        std::map<std::string, const Op*> ops;
        for (const Op& op : plan.ops) ops[op.name] = &op;
        size_t covered = 0;
        ByPhase<int64_t> flops{};
        for (const FlowBlock& block : flow.blocks) {
          const size_t times = std::max<size_t>(1, block.layers.size());
          for (size_t p = 0; p < 2; ++p) flops[p] += block.cost[p].flops;
          for (const FlowStep& step : block.steps) {
            if (step.op.empty()) continue;
            covered += times;
            EXPECT_FALSE(step.formula.empty()) << step.op;
            const Op& op = *ops.at(step.op);
            if (step.tensors.size() != op.outputs.size()) continue;  // those that name their parts
            for (size_t i = 0; i < op.outputs.size(); ++i) {
              const Shape& shape = plan.Info(op.outputs[i]).shape;
              if (plan.Info(op.outputs[i]).kind != ValueKind::kActivation) continue;
              Sizes sizes;
              sizes.tokens = 21;
              sizes.outputs = 3;
              int64_t elements = 1;
              for (const FlowDim& dim : step.tensors[i].dims) elements *= dim.size[0];
              EXPECT_EQ(elements, shape.Elements(sizes)) << step.op;
            }
          }
        }
        EXPECT_EQ(covered, plan.ops.size());
        for (size_t p = 0; p < 2; ++p) EXPECT_EQ(flops[p], flow.total[p].flops);
      }
    }
  }
  EXPECT_GT(models, 30u);
}

}  // namespace
}  // namespace lucid
