// The ledger's own rules, on plans small enough to count by hand; numbers of real models are in
// sources_test.cc.
#include "account/ledger.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "models/arch.h"
#include "plan/pass.h"

namespace lucid {
namespace {

nlohmann::ordered_json SmallConfig() {
  return {{"hidden_size", 64},           {"intermediate_size", 96},  {"num_hidden_layers", 2},
          {"num_attention_heads", 4},    {"num_key_value_heads", 2}, {"head_dim", 16},
          {"vocab_size", 100},           {"num_local_experts", 4},   {"num_experts_per_tok", 2},
          {"tie_word_embeddings", false}};
}

Plan PlanOf(const char* arch, const nlohmann::ordered_json& json) {
  const ArchSpec& spec = **FindArchByHf(arch);
  return BuildPlan(spec, *spec.from_hf(json));
}

int64_t Sum(const std::vector<LedgerWeight>& weights, Part part) {
  int64_t params = 0;
  for (const LedgerWeight& weight : weights) {
    if (weight.part == part) params += weight.params;
  }
  return params;
}

TEST(ListWeights, PutsEveryWeightInItsPartOnce) {
  const Plan plan = PlanOf("LlamaForCausalLM", SmallConfig());
  const std::vector<LedgerWeight> weights = ListWeights(plan, {});
  EXPECT_EQ(weights.size(), plan.Weights().size());
  EXPECT_EQ(Sum(weights, Part::kEmbedding), 100 * 64);
  EXPECT_EQ(Sum(weights, Part::kAttention), 2 * (64 * 64 * 2 + 32 * 64 * 2));
  EXPECT_EQ(Sum(weights, Part::kFfn), 2 * 3 * 96 * 64);
  EXPECT_EQ(Sum(weights, Part::kNorm), (2 * 2 + 1) * 64);
  EXPECT_EQ(Sum(weights, Part::kHead), 100 * 64);
  EXPECT_EQ(Sum(weights, Part::kExperts), 0);
}

TEST(ListWeights, ATiedMatrixIsEmbeddingAndCountsOnce) {
  nlohmann::ordered_json json = SmallConfig();
  json["tie_word_embeddings"] = true;
  const Plan plan = PlanOf("LlamaForCausalLM", json);
  const std::vector<LedgerWeight> weights = ListWeights(plan, {});
  EXPECT_EQ(Sum(weights, Part::kEmbedding), 100 * 64);
  EXPECT_EQ(Sum(weights, Part::kHead), 0);
  // It is streamed as the output matrix all the same.
  const Ledger ledger = MakeLedger(plan, DecodeWork(1, 8, {}));
  EXPECT_EQ(ledger.parts[static_cast<size_t>(Part::kHead)].weight_bytes, 4 * 100 * 64);
  EXPECT_EQ(ledger.parts[static_cast<size_t>(Part::kEmbedding)].weight_bytes, 4 * 64);
}

TEST(ListWeights, OfExpertsATokenUsesSome) {
  const Plan plan = PlanOf("MixtralForCausalLM", SmallConfig());
  for (const LedgerWeight& weight : ListWeights(plan, {})) {
    const bool expert = weight.name.ends_with("_exps");
    EXPECT_EQ(weight.used, expert ? 0.5 : 1) << weight.name;
    EXPECT_EQ(weight.part == Part::kExperts, expert || weight.name.ends_with("ffn_gate_inp"));
  }
  // Two of four experts a token: its step reads half of the stacks.
  const Ledger ledger = MakeLedger(plan, DecodeWork(1, 8, {}));
  int64_t read = 0;
  for (const LedgerRow& row : ledger.rows) {
    if (row.kind == OpKind::kExpertGlu || row.kind == OpKind::kExpertLinear) {
      read += row.cost.weight_bytes;
    }
  }
  EXPECT_EQ(read, 2 * 4 * (4 / 2) * 3 * 96 * 64);
}

TEST(MakeLedger, TotalsAreTheSumsOfItsRows) {
  for (const char* arch : {"LlamaForCausalLM", "MixtralForCausalLM", "GPT2LMHeadModel"}) {
    const Plan plan = PlanOf(arch, SmallConfig());
    const Ledger ledger = MakeLedger(plan, PromptWork(2, 7, {}));
    EXPECT_EQ(ledger.rows.size(), plan.ops.size());
    Cost rows, parts;
    int64_t square = 0;
    for (const LedgerRow& row : ledger.rows) {
      rows += row.cost;
      square += row.square_flops;
      EXPECT_GE(row.square_flops, row.cost.flops) << row.name;
    }
    for (const Cost& part : ledger.parts) parts += part;
    EXPECT_EQ(rows.flops, ledger.total.flops);
    EXPECT_EQ(parts.flops, ledger.total.flops);
    EXPECT_EQ(parts.weight_bytes, ledger.total.weight_bytes);
    EXPECT_EQ(square, ledger.square_flops);
  }
}

// What a mask leaves of a square: S (S + 1) / 2 of S S pairs; of a window W the newest W.
TEST(MakeLedger, MasksAndWindowsLeavePairs) {
  Workload work = PromptWork(1, 6, {});
  EXPECT_EQ(work.AttendedPairs(0), 21);
  EXPECT_EQ(work.AttendedPairs(4), 1 + 2 + 3 + 4 + 4 + 4);
  work.causal = false;
  EXPECT_EQ(work.AttendedPairs(0), 36);
  EXPECT_EQ(work.AttendedPairs(4), 24);
  work = DecodeWork(3, 10, {});
  EXPECT_EQ(work.AttendedPairs(0), 30);
  EXPECT_EQ(work.AttendedPairs(4), 12);
  work.sequences = {{.start = 2, .count = 5}};  // queries at 2 to 6
  EXPECT_EQ(work.AttendedPairs(0), 3 + 4 + 5 + 6 + 7);
  EXPECT_EQ(work.AttendedPairs(4), 3 + 4 + 4 + 4 + 4);
}

TEST(StreamedBytes, AreThoseOfAStepWithoutTheEmbeddingsRow) {
  const Plan plan = PlanOf("LlamaForCausalLM", SmallConfig());
  const Ledger ledger = MakeLedger(plan, DecodeWork(1, 8, {}));
  EXPECT_EQ(StreamedBytes(plan, {}), ledger.total.weight_bytes - 4 * 64);
}

TEST(KvPassesWeights, IsTheFirstContextThatDoes) {
  const Plan plan = PlanOf("LlamaForCausalLM", SmallConfig());
  const int64_t passes = KvPassesWeights(plan, {});
  const auto at = [&](int64_t context) {
    return MakeLedger(plan, DecodeWork(1, context, {})).total;
  };
  EXPECT_GE(at(passes).kv_read_bytes, at(passes).weight_bytes);
  EXPECT_LT(at(passes - 1).kv_read_bytes, at(passes - 1).weight_bytes);
  // A window bounds what is read, here below the weights.
  nlohmann::ordered_json json = SmallConfig();
  json["sliding_window"] = 16;
  EXPECT_EQ(KvPassesWeights(PlanOf("MistralForCausalLM", json), {}), 0);
}

}  // namespace
}  // namespace lucid
