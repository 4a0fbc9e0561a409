// Every architecture of the registry: its plan as text against a golden file, before and after
// fusing, and the readers' answers to configs that make no sense. LUCID_UPDATE_GOLDENS=1 rewrites
// the files.
#include "models/arch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "models/load.h"
#include "plan/pass.h"
#include "plan/print.h"

namespace lucid {
namespace {

using testing::HasSubstr;

// A config small enough to read in a golden file, with every feature the architecture can have by
// default.
nlohmann::ordered_json SmallConfig() {
  return {{"hidden_size", 64},
          {"intermediate_size", 96},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"head_dim", 16},
          {"vocab_size", 100},
          {"max_position_embeddings", 128},
          {"sliding_window", 32},
          {"sliding_window_pattern", 2},
          {"num_experts", 4},
          {"num_local_experts", 4},
          {"n_routed_experts", 4},
          {"num_experts_per_tok", 2},
          {"moe_intermediate_size", 24},
          {"n_shared_experts", 1},
          {"n_group", 2},
          {"topk_group", 1},
          {"first_k_dense_replace", 1},
          {"kv_lora_rank", 32},
          {"q_lora_rank", 24},
          {"qk_nope_head_dim", 24},
          {"qk_rope_head_dim", 16},
          {"v_head_dim", 20},
          {"shared_expert_intermediate_size", 40}};
}

std::string ReadFile(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class ArchTest : public testing::TestWithParam<const ArchSpec*> {};

TEST_P(ArchTest, PlanMatchesTheGoldenDump) {
  const ArchSpec& arch = *GetParam();
  const Result<ModelConfig> config = arch.from_hf(SmallConfig());
  ASSERT_TRUE(config.has_value()) << config.error().message;
  ASSERT_TRUE(ValidateConfig(*config).has_value());
  const Plan plan = BuildPlan(arch, *config);
  ASSERT_TRUE(VerifyPlan(plan).has_value());
  const Plan fused = FusePlan(plan);
  ASSERT_TRUE(VerifyPlan(fused).has_value());
  const std::string text = PrintPlan(plan) + "\n# fused\n" + PrintPlan(fused);
  const std::string path =
      std::string(LUCID_SOURCE_DIR) + "/tests/plans/" + std::string(arch.name) + ".txt";
  if (std::getenv("LUCID_UPDATE_GOLDENS") != nullptr) std::ofstream(path) << text;
  EXPECT_EQ(text, ReadFile(path)) << "LUCID_UPDATE_GOLDENS=1 accepts the new plan";
}

TEST_P(ArchTest, EveryWeightHasANameInHuggingFaceFiles) {
  const ArchSpec& arch = *GetParam();
  nlohmann::ordered_json json = SmallConfig();
  json["tie_word_embeddings"] = false;
  const Plan plan = BuildPlan(arch, *arch.from_hf(json));
  for (const Value v : plan.Weights()) {
    std::string slot = plan.Info(v).name;
    if (slot.starts_with("blk.")) slot = "blk.{}" + slot.substr(slot.find('.', 4));
    const bool named =
        std::any_of(arch.hf_names.begin(), arch.hf_names.end(), [&](NameTable table) {
          return std::any_of(table.begin(), table.end(),
                             [&](const NameRule& rule) { return rule.slot == slot; });
        });
    EXPECT_TRUE(named) << slot;
  }
}

TEST_P(ArchTest, WrongTypesAreNamed) {
  for (const char* key : {"hidden_size", "num_hidden_layers", "head_dim", "vocab_size"}) {
    nlohmann::ordered_json json = SmallConfig();
    json[key] = "many";
    const Result<ModelConfig> config = GetParam()->from_hf(json);
    ASSERT_FALSE(config.has_value()) << key;
    EXPECT_THAT(config.error().message, HasSubstr(key));
  }
}

TEST_P(ArchTest, NumbersOutOfRangeAreNamed) {
  const auto message = [&](const char* key, int64_t value) {
    nlohmann::ordered_json json = SmallConfig();
    json[key] = value;
    const Result<ModelConfig> config = GetParam()->from_hf(json);
    if (!config) return config.error().message;
    const Status status = ValidateConfig(*config);
    return status ? std::string() : status.error().message;
  };
  EXPECT_THAT(message("num_hidden_layers", 0), HasSubstr("number of layers is 0"));
  EXPECT_THAT(message("num_hidden_layers", 1000000000),
              HasSubstr("number of layers is 1000000000"));
  EXPECT_THAT(message("vocab_size", 0), HasSubstr("vocabulary size is 0"));
  const ModelConfig small = *GetParam()->from_hf(SmallConfig());
  if (small.mla.kv_lora > 0) {
    EXPECT_THAT(message("kv_lora_rank", -1), HasSubstr("kv_lora_rank is -1"));
    EXPECT_THAT(message("v_head_dim", 0), HasSubstr("v_head_dim is 0"));
  } else {
    EXPECT_THAT(message("num_attention_heads", 3), HasSubstr("3 heads cannot share 2 KV heads"));
    EXPECT_THAT(message("head_dim", -16), HasSubstr("head_dim is -16"));
  }
  if (small.moe.n_experts > 0) {
    EXPECT_THAT(message("num_experts_per_tok", 5), HasSubstr("number of experts of a token is 5"));
  }
  EXPECT_THAT(message("vocab_size", int64_t{1} << 40), HasSubstr("vocabulary size"));
}

INSTANTIATE_TEST_SUITE_P(Registry, ArchTest,
                         testing::ValuesIn(AllArchs().begin(), AllArchs().end()),
                         [](const auto& test) { return std::string(test.param->name); });

TEST(RegistryTest, UnknownArchitecturesAreNamedWithTheKnownOnes) {
  const auto found = FindArchByGguf("mamba");
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(
      found.error().message,
      "architecture 'mamba' is not supported; this build runs llama, qwen2, gemma3, qwen2moe, "
      "qwen3moe, olmoe, granitemoe, glm4moe, gpt-oss, deepseek2");
}

TEST(LoadTest, AllSpellingsOfAConfigGiveOneModel) {
  const std::string fixtures = std::string(LUCID_SHARED_DIR) + "/fixtures/models/";
  for (const char* name :
       {"llama_mha_tied", "llama3_gqa", "llama_biases", "qwen2", "gemma3_text", "mixtral",
        "qwen2_moe", "qwen3_moe", "olmoe", "granitemoe", "glm4_moe", "gpt_oss", "gpt_oss_mxfp4",
        "deepseek_v2_lite", "deepseek_v2", "deepseek_v3", "deepseek_v3_noqlora"}) {
    if (!std::ifstream(fixtures + name + "/config.json"))
      GTEST_SKIP() << "no fixtures at " << fixtures;
    std::vector<std::string> dumps;
    for (const char* file : {"config.json", "config.min.json", "config.v5.json"}) {
      const auto json = nlohmann::ordered_json::parse(std::ifstream(fixtures + name + "/" + file));
      const auto arch = FindArchByHf(json["architectures"][0].get<std::string>());
      ASSERT_TRUE(arch.has_value());
      const auto config = (*arch)->from_hf(json);
      ASSERT_TRUE(config.has_value()) << name << " " << file << ": " << config.error().message;
      dumps.push_back(PrintPlan(BuildPlan(**arch, *config)));
    }
    EXPECT_EQ(dumps[0], dumps[1]) << name;
    EXPECT_EQ(dumps[0], dumps[2]) << name;
  }
}

}  // namespace
}  // namespace lucid
