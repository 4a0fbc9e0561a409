// Every architecture of the registry: its plan as text against a golden file, before and after
// fusing, and the readers' answers to configs that make no sense. LUCID_UPDATE_GOLDENS=1 rewrites
// the files.
#include "models/arch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string_view>

#include "models/arch_test_util.h"
#include "models/load.h"
#include "plan/pass.h"
#include "plan/print.h"

namespace lucid {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::string ReadFile(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class ArchTest : public testing::TestWithParam<const ArchSpec*> {};

TEST_P(ArchTest, PlanMatchesTheGoldenDump) {
  const ArchSpec& arch = *GetParam();
  const Result<ModelConfig> config = arch.from_hf(SmallConfig(arch));
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
  nlohmann::ordered_json json = SmallConfig(arch);
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
    nlohmann::ordered_json json = SmallConfig(*GetParam());
    json[key] = "many";
    const Result<ModelConfig> config = GetParam()->from_hf(json);
    ASSERT_FALSE(config.has_value()) << key;
    EXPECT_THAT(config.error().message, HasSubstr(key));
  }
}

TEST_P(ArchTest, NumbersOutOfRangeAreNamed) {
  const auto message = [&](const char* key, int64_t value) {
    nlohmann::ordered_json json = SmallConfig(*GetParam());
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
  const ModelConfig small = *GetParam()->from_hf(SmallConfig(*GetParam()));
  if (small.mla.kv_lora > 0) {
    EXPECT_THAT(message("kv_lora_rank", -1), HasSubstr("kv_lora_rank is -1"));
    EXPECT_THAT(message("v_head_dim", 0), HasSubstr("v_head_dim is 0"));
  } else {
    if (!OwnHeads(*GetParam())) {
      EXPECT_THAT(message("num_attention_heads", 3), HasSubstr("3 heads cannot share 2 KV heads"));
    }
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
  const auto gguf = FindArchByGguf("mamba");
  ASSERT_FALSE(gguf.has_value());
  EXPECT_THAT(gguf.error().message,
              StartsWith("architecture 'mamba' is not supported; this build runs llama, qwen2, "));
  EXPECT_THAT(gguf.error().message, Not(HasSubstr(", ,")));
  EXPECT_FALSE(FindArchByGguf("").has_value());
  const auto hf = FindArchByHf("MambaForCausalLM");
  ASSERT_FALSE(hf.has_value());
  EXPECT_THAT(hf.error().message, HasSubstr("LlamaForCausalLM, "));
  EXPECT_FALSE(FindArchByHf("").has_value());
}

TEST(RegistryTest, NamesAreOfOneArchitectureOnly) {
  std::set<std::string_view> names;
  std::set<std::string_view> files;
  for (const ArchSpec* arch : AllArchs()) {
    EXPECT_TRUE(names.insert(arch->name).second) << arch->name;
    if (!arch->gguf.empty()) {
      EXPECT_TRUE(files.insert(arch->gguf).second) << arch->gguf;
      EXPECT_NE(arch->from_gguf, nullptr) << arch->name;
    }
    for (const std::string_view name : arch->hf) {
      EXPECT_TRUE(name.empty() || names.insert(name).second) << name;
    }
  }
}

// What an architecture cannot do is said, not skipped.
TEST(RegistryTest, OptionsThatChangeResultsAreRefusedByName) {
  const struct {
    const char* arch;
    const char* key;
    nlohmann::ordered_json value;
  } rows[] = {
      {"OPTForCausalLM", "do_layer_norm_before", false},
      {"OPTForCausalLM", "word_embed_proj_dim", 32},
      {"GPT2LMHeadModel", "add_cross_attention", true},
      {"MptForCausalLM", "attn_config", {{"qk_ln", true}}},
      {"MptForCausalLM", "attn_config", {{"alibi", false}}},
      {"MptForCausalLM", "logit_scale", 0.5},
      {"PhiForCausalLM", "qk_layernorm", true},
      {"StableLmForCausalLM", "use_parallel_residual", true},
      {"LlamaForCausalLM", "hidden_act", "mish"},
      {"LlamaForCausalLM", "rope_scaling", {{"rope_type", "spiral"}}},
      {"LlamaForCausalLM", "quantization_config", {{"quant_method", "gptq"}}},
      {"LlamaForCausalLM", "rope_parameters", {{"full_attention", {{"rope_theta", 5e5}}}}},
      {"SmolLM3ForCausalLM", "layer_types", {"sliding_attention", "full_attention"}},
      {"DeepseekV3ForCausalLM", "num_key_value_heads", 2},
      {"MptForCausalLM", "norm_type", "rmsnorm"},
      {"Gemma2ForCausalLM", "layer_types", {"full_attention", "linear_attention"}},
      {"Exaone4ForCausalLM", "sliding_window_pattern", "LXG"},
  };
  for (const auto& row : rows) {
    const auto arch = FindArchByHf(row.arch);
    ASSERT_TRUE(arch.has_value()) << row.arch;
    nlohmann::ordered_json json = SmallConfig(**arch);
    json[row.key] = row.value;
    const Result<ModelConfig> config = (*arch)->from_hf(json);
    ASSERT_FALSE(config.has_value()) << row.arch << " " << row.key;
    const std::string key = row.value.is_object() ? row.value.begin().key() : row.key;
    const bool named = config.error().message.find(row.key) != std::string::npos ||
                       config.error().message.find(key) != std::string::npos ||
                       config.error().message.find("rope scaling") != std::string::npos ||
                       config.error().message.find("layer type") != std::string::npos;
    EXPECT_TRUE(named) << row.arch << ": " << config.error().message;
    EXPECT_THAT(config.error().message, HasSubstr("support")) << row.arch << " " << row.key;
  }
}

TEST(LoadTest, AllSpellingsOfAConfigGiveOneModel) {
  const std::string fixtures = std::string(LUCID_SHARED_DIR) + "/fixtures/models/";
  if (!std::filesystem::exists(fixtures)) GTEST_SKIP() << "no fixtures at " << fixtures;
  int compared = 0;
  for (const auto& folder : std::filesystem::directory_iterator(fixtures)) {
    const std::string name = folder.path().filename();
    std::vector<std::string> dumps;
    for (const char* file : {"config.json", "config.min.json", "config.v5.json"}) {
      const auto json = nlohmann::ordered_json::parse(std::ifstream(folder.path() / file));
      const auto arch = FindArchByHf(json["architectures"][0].get<std::string>());
      if (!arch.has_value()) continue;
      const auto config = (*arch)->from_hf(json);
      ASSERT_TRUE(config.has_value()) << name << " " << file << ": " << config.error().message;
      const Status valid = ValidateConfig(*config);
      ASSERT_TRUE(valid.has_value()) << name << " " << file << ": " << valid.error().message;
      dumps.push_back(PrintPlan(BuildPlan(**arch, *config)));
    }
    if (dumps.empty()) continue;
    ++compared;
    EXPECT_EQ(dumps[0], dumps[1]) << name;
    EXPECT_EQ(dumps[0], dumps[2]) << name;
  }
  EXPECT_GE(compared, 30);
}

}  // namespace
}  // namespace lucid
