// The GGUF readers of models with experts: of a Hugging Face fixture a GGUF file is written with
// the names and keys that llama.cpp gives such a model; both must give the same plan and the same
// weights.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "format/gguf_writer.h"
#include "format/test_util.h"
#include "models/load.h"
#include "plan/print.h"

namespace lucid {
namespace {

namespace fs = std::filesystem;
const std::string kModels = std::string(LUCID_SHARED_DIR) + "/fixtures/models/";

struct Twin {
  const char* fixture;
  const char* arch;
  std::map<std::string, uint32_t> numbers;
  std::map<std::string, float> floats;
  bool normalised = false;  // expert_weights_norm
  bool yarn = false;
  bool split_kv_b = true;  // attn_k_b and attn_v_b, not the attn_kv_b of older files
  bool post_norm = false;  // ffn_norm is called post_attention_norm
};

void PrintTo(const Twin& twin, std::ostream* out) {
  *out << twin.fixture << (twin.split_kv_b ? "" : " with attn_kv_b");
}

const std::map<std::string, uint32_t> kDeepSeekSizes = {{"attention.key_length", 48},
                                                        {"attention.value_length", 32},
                                                        {"attention.key_length_mla", 40},
                                                        {"attention.value_length_mla", 20},
                                                        {"attention.kv_lora_rank", 32},
                                                        {"rope.dimension_count", 16},
                                                        {"expert_count", 8},
                                                        {"expert_used_count", 3},
                                                        {"expert_feed_forward_length", 40},
                                                        {"leading_dense_block_count", 1}};

std::map<std::string, uint32_t> With(std::map<std::string, uint32_t> base,
                                     const std::map<std::string, uint32_t>& more) {
  for (const auto& [key, value] : more) base[key] = value;
  return base;
}

std::vector<Twin> Twins() {
  std::vector<Twin> twins = {
      {.fixture = "deepseek_v2_lite",
       .arch = "deepseek2",
       .numbers = With(kDeepSeekSizes,
                       {{"expert_shared_count", 2}, {"rope.scaling.original_context_length", 64}}),
       .floats = {{"rope.scaling.factor", 4.0f}, {"rope.scaling.yarn_log_multiplier", 0.0707f}},
       .yarn = true},
      {.fixture = "deepseek_v2",
       .arch = "deepseek2",
       .numbers = With(kDeepSeekSizes, {{"expert_shared_count", 1},
                                        {"attention.q_lora_rank", 24},
                                        {"expert_group_count", 4},
                                        {"expert_group_used_count", 2}}),
       .floats = {{"expert_weights_scale", 4.0f}}},
      {.fixture = "deepseek_v3",
       .arch = "deepseek2",
       .numbers = With(kDeepSeekSizes, {{"expert_shared_count", 1},
                                        {"attention.q_lora_rank", 24},
                                        {"expert_gating_func", 2},
                                        {"expert_group_count", 4},
                                        {"expert_group_used_count", 2},
                                        {"rope.scaling.original_context_length", 64}}),
       .floats = {{"expert_weights_scale", 2.5f},
                  {"rope.scaling.factor", 4.0f},
                  {"rope.scaling.yarn_log_multiplier", 0.1f}},
       .normalised = true,
       .yarn = true},
      {.fixture = "glm4_moe",
       .arch = "glm4moe",
       .numbers = {{"attention.key_length", 16},
                   {"attention.value_length", 16},
                   {"rope.dimension_count", 8},
                   {"expert_count", 8},
                   {"expert_used_count", 3},
                   {"expert_shared_count", 1},
                   {"expert_feed_forward_length", 40},
                   {"expert_gating_func", 2},
                   {"leading_dense_block_count", 1}},
       .floats = {{"expert_weights_scale", 1.5f}},
       .normalised = true,
       .post_norm = true},
      {.fixture = "gpt_oss_mxfp4",
       .arch = "gpt-oss",
       .numbers = {{"attention.key_length", 16},
                   {"attention.value_length", 16},
                   {"attention.sliding_window", 32},
                   {"expert_count", 4},
                   {"expert_used_count", 2},
                   {"expert_feed_forward_length", 64},
                   {"rope.scaling.original_context_length", 64}},
       .floats = {{"rope.scaling.factor", 4.0f}},
       .yarn = true,
       .post_norm = true},
  };
  Twin older = twins[0];
  older.split_kv_b = false;
  older.numbers["attention.key_length"] = 40;
  older.numbers["attention.value_length"] = 20;
  older.numbers.erase("attention.key_length_mla");
  older.numbers.erase("attention.value_length_mla");
  twins.push_back(older);
  return twins;
}

struct FileTensor {
  std::string name;
  DType type;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};

std::vector<std::byte> BytesOf(const Model& model, Value v) {
  const Tensor& w = model.weights[v];
  if (w.rank != 3) return {w.data, w.data + w.bytes()};
  std::vector<std::byte> bytes;
  const int64_t one = w.shape[1] * w.row_bytes();
  for (const std::byte* part : model.weights.parts(v)) bytes.insert(bytes.end(), part, part + one);
  return bytes;
}

// The tensor of the checkpoint itself, under another name.
void AddStored(const Model& model, const std::string& from, const std::string& to,
               std::vector<FileTensor>& tensors) {
  const Tensor& t = model.checkpoint->Find(from)->tensor;
  tensors.push_back({to, t.dtype, {t.shape[0], t.shape[1]}, {t.data, t.data + t.bytes()}});
}

std::vector<FileTensor> TensorsOf(const Model& model, const Twin& twin) {
  std::vector<FileTensor> tensors;
  for (const Value v : model.plan.Weights()) {
    const ValueInfo& slot = model.plan.Info(v);
    std::string name = slot.name.ends_with(".bias") ? slot.name : slot.name + ".weight";
    const std::string layer = slot.name.substr(0, slot.name.find('.', 4));
    const std::string stored =
        "model.layers." + (layer.starts_with("blk.") ? layer.substr(4) : "") + ".self_attn.";
    if (slot.name.ends_with(".attn_k_pe")) continue;
    if (slot.name.ends_with(".attn_kv_a")) {
      AddStored(model, stored + "kv_a_proj_with_mqa.weight", layer + ".attn_kv_a_mqa.weight",
                tensors);
      continue;
    }
    if (!twin.split_kv_b && slot.name.ends_with(".attn_v_b")) continue;
    if (!twin.split_kv_b && slot.name.ends_with(".attn_k_b")) {
      AddStored(model, stored + "kv_b_proj.weight", layer + ".attn_kv_b.weight", tensors);
      continue;
    }
    if (twin.post_norm && slot.name.ends_with(".ffn_norm"))
      name = layer + ".post_attention_norm.weight";
    FileTensor t{name, model.weights[v].dtype, {}, BytesOf(model, v)};
    for (int i = 0; i < slot.shape.rank; ++i) t.shape.push_back(slot.shape[i].size);
    tensors.push_back(std::move(t));
  }
  return tensors;
}

void WriteTwin(const Model& model, const Twin& twin, const std::string& path) {
  const ModelConfig& c = model.config;
  const std::string prefix = std::string(twin.arch) + ".";
  GgufWriter writer;
  ASSERT_TRUE(writer.AddString("general.architecture", twin.arch));
  const auto number = [&](const std::string& key, int64_t value) {
    ASSERT_TRUE(writer.AddUint32(prefix + key, static_cast<uint32_t>(value)));
  };
  number("block_count", c.n_layers);
  number("embedding_length", c.dim);
  number("feed_forward_length", c.ffn_dim);
  number("attention.head_count", c.n_heads);
  number("attention.head_count_kv", c.n_kv_heads);
  number("context_length", c.context_length);
  for (const auto& [key, value] : twin.numbers) number(key, value);
  for (const auto& [key, value] : twin.floats) ASSERT_TRUE(writer.AddFloat32(prefix + key, value));
  ASSERT_TRUE(writer.AddFloat32(prefix + "attention.layer_norm_rms_epsilon", 1e-6f));
  ASSERT_TRUE(
      writer.AddFloat32(prefix + "rope.freq_base", static_cast<float>(c.layers[0].rope.theta)));
  ASSERT_TRUE(writer.AddBool(prefix + "expert_weights_norm", twin.normalised));
  if (twin.yarn) {
    ASSERT_TRUE(writer.AddString(prefix + "rope.scaling.type", "yarn"));
  }
  const std::vector<FileTensor> tensors = TensorsOf(model, twin);
  for (const FileTensor& t : tensors)
    ASSERT_TRUE(writer.AddTensor(t.name, t.type, t.shape)) << t.name;
  ASSERT_TRUE(writer.Begin(path));
  for (const FileTensor& t : tensors) ASSERT_TRUE(writer.Write(t.bytes)) << t.name;
  ASSERT_TRUE(writer.Finish());
}

class GgufTwin : public testing::TestWithParam<Twin> {};

TEST_P(GgufTwin, HasThePlanAndTheWeightsOfTheFolder) {
  const Twin& twin = GetParam();
  const fs::path source = kModels + twin.fixture;
  if (!fs::exists(source)) GTEST_SKIP() << "the reference fixtures are not at " << kModels;
  // Norms of latent attention have an epsilon of their own in Hugging Face's code only: here all
  // are alike.
  TempFolder folder;
  nlohmann::ordered_json config =
      nlohmann::ordered_json::parse(std::ifstream(source / "config.json"));
  config["rms_norm_eps"] = 1e-6;
  folder.Put("config.json", config.dump());
  for (const auto& entry : fs::directory_iterator(source)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("model")) fs::create_symlink(entry.path(), folder.File(name));
  }
  const Result<Model> model = LoadModel(folder.path());
  ASSERT_TRUE(model.has_value()) << model.error().message;
  const std::string path = folder.File("twin.gguf");
  WriteTwin(*model, twin, path);
  const Result<Model> other = LoadModel(path);
  ASSERT_TRUE(other.has_value()) << other.error().message;

  EXPECT_NEAR(other->config.attn_scale, model->config.attn_scale, 1e-6);
  Model same = LoadModel(path).value();
  same.config.attn_scale = model->config.attn_scale;  // float32 in the file
  Plan plan = BuildPlan(*same.arch, same.config);
  plan.arch = model->plan.arch;
  EXPECT_EQ(PrintPlan(plan), PrintPlan(model->plan));
  for (size_t i = 0; i < model->config.layers.size(); ++i) {
    const RopeSpec& want = model->config.layers[i].rope;
    const RopeSpec& got = other->config.layers[i].rope;
    EXPECT_NEAR(got.attn_factor, want.attn_factor, 1e-6);
    const auto want_table = InverseFrequencies(want, 24);
    const auto got_table = InverseFrequencies(got, 24);
    ASSERT_EQ(got_table.size(), want_table.size());
    for (size_t j = 0; j < want_table.size(); ++j) EXPECT_NEAR(got_table[j], want_table[j], 1e-6);
  }
  const std::vector<Value> weights = model->plan.Weights();
  const std::vector<Value> others = other->plan.Weights();
  ASSERT_EQ(others.size(), weights.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    EXPECT_EQ(other->plan.Info(others[i]).name, model->plan.Info(weights[i]).name);
    EXPECT_EQ(BytesOf(*other, others[i]), BytesOf(*model, weights[i]))
        << model->plan.Info(weights[i]).name;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GgufTwin, testing::ValuesIn(Twins()), [](const auto& test) {
  return std::string(test.param.fixture) + (test.param.split_kv_b ? "" : "_older");
});

}  // namespace
}  // namespace lucid
