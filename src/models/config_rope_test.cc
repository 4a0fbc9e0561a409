// Rotations as config.json describes them (rope_parameters, or rope_scaling and rope_theta) against
// the tables that transformers makes of the same descriptions (fixtures/component/rope).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/component_test_util.h"
#include "models/load.h"

namespace lucid {
namespace {

using Json = nlohmann::ordered_json;

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
      const std::vector<float> got = InverseFrequencies(rope, length, {});
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

}  // namespace
}  // namespace lucid
