#include "models/outline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "models/load.h"

namespace lucid {
namespace {

using testing::HasSubstr;

std::string Config(const std::string& name) {
  return std::string(LUCID_SOURCE_DIR) + "/tests/data/configs/" + name + ".json";
}

std::map<std::string, DType> TypesOf(const Model& model) {
  std::map<std::string, DType> types;
  for (const Value v : model.plan.Weights()) {
    types[model.plan.Info(v).name] = model.weights[v].dtype;
  }
  return types;
}

TEST(OutlineModel, TakesTypesFromTheConfig) {
  const Model llama = OutlineModel(Config("llama-3-8b"), "").value();
  EXPECT_EQ(llama.checkpoint, nullptr);
  EXPECT_EQ(TypesOf(llama)["blk.31.ffn_down"], DType::kBF16);
  EXPECT_EQ(TypesOf(llama)["output_norm"], DType::kF32);
  EXPECT_EQ(TypesOf(OutlineModel(Config("gpt2"), "").value())["blk.0.attn_q"], DType::kF32);
  const std::map<std::string, DType> deepseek =
      TypesOf(OutlineModel(Config("deepseek-v3"), "").value());
  EXPECT_EQ(deepseek.at("blk.5.ffn_gate_exps"), DType::kF8E4M3);
  EXPECT_EQ(deepseek.at("blk.5.attn_output"), DType::kF8E4M3);
  EXPECT_EQ(deepseek.at("blk.5.ffn_gate_inp"), DType::kBF16);
  EXPECT_EQ(deepseek.at("token_embd"), DType::kBF16);
}

TEST(OutlineModel, CountsOtherTypes) {
  const std::map<std::string, DType> q8 =
      TypesOf(OutlineModel(Config("llama-3-8b"), "q8_0").value());
  EXPECT_EQ(q8.at("blk.0.attn_q"), DType::kQ8_0);
  EXPECT_EQ(q8.at("output"), DType::kQ8_0);
  EXPECT_EQ(q8.at("blk.0.attn_norm"), DType::kF32);
  const auto wrong = OutlineModel(Config("llama-3-8b"), "q9");
  ASSERT_FALSE(wrong.has_value());
  EXPECT_THAT(wrong.error().message,
              HasSubstr("there are no weights of type 'q9'; choose q4_k_m, "));
}

// Of 32 layers the first and last four, and every third of those between.
TEST(OutlineModel, MixesTypesAsGgufFilesDo) {
  const std::map<std::string, DType> types =
      TypesOf(OutlineModel(Config("llama-3-8b"), "q4_k_m").value());
  EXPECT_EQ(types.at("output"), DType::kQ6_K);
  EXPECT_EQ(types.at("token_embd"), DType::kQ4_K);
  int more = 0;
  for (int layer = 0; layer < 32; ++layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    EXPECT_EQ(types.at(prefix + "attn_q"), DType::kQ4_K);
    EXPECT_EQ(types.at(prefix + "attn_v"), types.at(prefix + "ffn_down"));
    if (types.at(prefix + "attn_v") == DType::kQ6_K) ++more;
  }
  EXPECT_EQ(more, 16);
}

// Rows of 4544 are no multiple of 256, of 768 they are; tied embeddings are the output matrix.
TEST(OutlineModel, RowsThatBlocksDoNotDivideGetOtherTypes) {
  const std::map<std::string, DType> falcon =
      TypesOf(OutlineModel(Config("falcon-7b"), "q4_k_m").value());
  EXPECT_EQ(falcon.at("blk.12.attn_q"), DType::kQ5_0);
  EXPECT_EQ(falcon.at("token_embd"), DType::kQ8_0);
  const std::map<std::string, DType> gpt2 = TypesOf(OutlineModel(Config("gpt2"), "q4_k_m").value());
  EXPECT_EQ(gpt2.at("token_embd"), DType::kQ6_K);
  EXPECT_EQ(gpt2.at("blk.0.attn_q"), DType::kQ4_K);
}

// Loading without contents finds the same tensors in the same types, and takes as much memory.
TEST(LoadModel, WithoutContentsIsTheSameModel) {
  const std::string fixtures = std::string(LUCID_SHARED_DIR) + "/fixtures/models";
  if (!std::filesystem::exists(fixtures)) GTEST_SKIP() << "no fixtures in " << LUCID_SHARED_DIR;
  int compared = 0;
  for (const auto& entry : std::filesystem::directory_iterator(fixtures)) {
    const Result<Model> read = LoadModel(entry.path().string());
    if (!read) continue;
    const Model none = LoadModel(entry.path().string(), {}, Contents::kNone).value();
    EXPECT_EQ(read->weights.owned_bytes(), none.weights.owned_bytes()) << entry.path();
    for (const Value v : read->plan.Weights()) {
      EXPECT_EQ(read->weights[v].dtype, none.weights[v].dtype) << entry.path();
      EXPECT_EQ(read->weights[v].shape, none.weights[v].shape) << entry.path();
      EXPECT_EQ(read->weights.mapped(v), none.weights.mapped(v)) << entry.path();
      EXPECT_EQ(read->weights.parts(v).size(), none.weights.parts(v).size()) << entry.path();
    }
    ++compared;
  }
  EXPECT_GT(compared, 40);
}

}  // namespace
}  // namespace lucid
