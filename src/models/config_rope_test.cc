// Rotations as config.json describes them (rope_parameters, or rope_scaling and rope_theta) against
// the tables that transformers makes of the same descriptions (fixtures/component/rope).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "base/component_test_util.h"
#include "format/checkpoint.h"
#include "models/arch_test_util.h"
#include "models/load.h"

namespace lucid {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

TEST(ConfigRope, BothDialectsGiveTheFrequenciesAndFactorsOfTransformers) {
  LUCID_NEEDS_COMPONENTS();
  const testing_util::ComponentFixture fixture("rope");
  const ArchSpec& llama = **FindArchByHf("LlamaForCausalLM");
  int compared = 0;
  for (const auto& c : fixture.cases) {
    if (!c.contains("rope_parameters")) continue;
    const int64_t head_dim = c["head_dim"];
    const Json common = {
        {"num_hidden_layers", 1},
        {"hidden_size", head_dim},
        {"num_attention_heads", 1},
        {"max_position_embeddings", c["max_position_embeddings"]},
        {"partial_rotary_factor", c["rotary_dim"].get<double>() / static_cast<double>(head_dim)}};
    Json now = common;
    now["rope_parameters"] = c["rope_parameters"];
    Json before = common;
    Json scaling = c["rope_parameters"];
    before["rope_theta"] = scaling["rope_theta"];
    scaling.erase("rope_theta");
    if (scaling["rope_type"] != "default") before["rope_scaling"] = scaling;
    for (const Json& config : {now, before}) {
      const std::string what = config.dump();
      const Result<ModelConfig> read = llama.from_hf(config);
      ASSERT_TRUE(read.has_value()) << what << ": " << read.error().message;
      ASSERT_TRUE(ValidateConfig(*read).has_value()) << what;
      const RopeSpec& rope = read->layers[0].rope;
      EXPECT_NEAR(rope.attn_factor, c["attention_factor"].get<double>(), 1e-6) << what;
      const int64_t length = c["seq_len"].is_null() ? 1 : c["seq_len"].get<int64_t>();
      const std::vector<float> got = InverseFrequencies(rope, length);
      const std::vector<float> want = fixture.Floats(c["name"].get<std::string>() + ".inv_freq");
      ASSERT_EQ(got.size(), want.size()) << what;
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_NEAR(got[i], want[i], 1e-6 * want[i]) << what << " " << i;
      }
      ++compared;
    }
  }
  EXPECT_GE(compared, 40);
}

// The message of Llama's reader for this scaling.
std::string Refusal(const Json& scaling) {
  const Result<ModelConfig> read =
      FindArchByHf("LlamaForCausalLM")
          .value()
          ->from_hf({{"num_hidden_layers", 1}, {"rope_scaling", scaling}});
  return read ? "" : read.error().message;
}

TEST(ConfigRope, NumbersThatARuleNeedsAreNotGuessed) {
  EXPECT_EQ(Refusal({{"rope_type", "linear"}}),
            "config.json: rope_scaling of type linear has no factor");
  EXPECT_THAT(Refusal({{"type", "dynamic"}}), HasSubstr("type dynamic has no factor"));
  EXPECT_THAT(Refusal({{"rope_type", "yarn"}}),
              HasSubstr("neither factor nor original_max_position_embeddings"));
  EXPECT_THAT(Refusal({{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"original_max_position_embeddings", 8192}}),
              HasSubstr("has no high_freq_factor"));
  EXPECT_THAT(Refusal({{"rope_type", "longrope"}, {"factor", 4.0}}), HasSubstr("short_factor"));
  EXPECT_THAT(Refusal({{"factor", 4.0}}), HasSubstr("a factor and no rope_type"));
  EXPECT_THAT(Refusal({{"rope_type", "linear"}, {"factor", "2"}}),
              HasSubstr("rope_scaling.factor is not a number"));
}

TEST(ConfigRope, MembersThatARuleDoesNotKnowAreRefused) {
  EXPECT_EQ(Refusal({{"rope_type", "linear"}, {"factor", 2.0}, {"foo", 1}}),
            "config.json: rope_scaling.foo is not supported with type linear");
  EXPECT_THAT(Refusal({{"rope_type", "dynamic"}, {"factor", 2.0}, {"alpha", 1000.0}}),
              HasSubstr("rope_scaling.alpha"));
  EXPECT_EQ(Refusal({{"rope_type", "linear"}, {"factor", 2.0}, {"foo", nullptr}}), "");
}

// Published files of Llama 3.1 and 3.2 have a divisor for each frequency and not the rule.
TEST(ConfigRope, BandsOfAGgufFileAreThoseOfTheFolder) {
  const std::string fixtures = std::string(LUCID_SHARED_DIR) + "/fixtures/";
  if (!std::filesystem::exists(fixtures)) GTEST_SKIP() << "no fixtures at " << fixtures;
  const auto rope_of = [&](const std::string& path, const RopeOverrides& overrides) {
    const auto checkpoint = OpenCheckpoint(fixtures + path);
    EXPECT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
    const auto read = ReadModelConfig(**checkpoint, overrides);
    EXPECT_TRUE(read.has_value()) << read.error().message;
    RopeSpec rope = read->config.layers[0].rope;
    rope.style = {};  // of the file's order of rows
    return rope;
  };
  const RopeOverrides overrides[] = {{},
                                     {.scaling = RopeSpec::Scaling::kNone},
                                     {.scaling = RopeSpec::Scaling::kLinear},
                                     {.scaling = RopeSpec::Scaling::kYarn, .scale = 4.0},
                                     {.freq_base = 7777.0}};
  for (const RopeOverrides& o : overrides) {
    const RopeSpec folder = rope_of("models/llama3_gqa", o);
    EXPECT_EQ(rope_of("gguf/models/llama3_gqa.gguf", o), folder) << Describe(folder, 16);
  }
}

TEST(ConfigRope, OverridesAreForTheLayersThatSeeAllPositions) {
  const ArchSpec& gemma = **FindArchByHf("Gemma3ForCausalLM");
  ModelConfig config = gemma.from_hf(SmallConfig(gemma)).value();
  ASSERT_GT(config.layers[0].window, 0);
  ASSERT_EQ(config.layers[1].window, 0);
  const RopeSpec windowed = config.layers[0].rope;
  ASSERT_TRUE(OverrideRope(config, {.freq_base = 777.0}).has_value());
  EXPECT_EQ(config.layers[0].rope, windowed);
  EXPECT_EQ(config.layers[1].rope.theta, 777.0);
}

TEST(ConfigRope, FactorsThatDivideByNothingAreRefused) {
  const ArchSpec& llama = **FindArchByHf("LlamaForCausalLM");
  ModelConfig config = llama.from_hf(SmallConfig(llama)).value();
  config.layers[0].rope.divisors = {1, 1, 1, 0, 1, 1, 1, 1};
  const Status valid = ValidateConfig(config);
  ASSERT_FALSE(valid.has_value());
  EXPECT_THAT(valid.error().message, HasSubstr("rope_freqs hold 0"));
}

}  // namespace
}  // namespace lucid
