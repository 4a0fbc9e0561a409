// Nothing of a GGUF file's numbers is guessed: for every architecture that such files have, each
// key that changes what some model computes is set by itself. The reader must then describe another
// model, or refuse; the keys that have no influence are listed with the reason.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "format/gguf_writer.h"
#include "format/test_util.h"
#include "models/load.h"
#include "plan/print.h"

namespace lucid {
namespace {

using Setting = std::variant<int, double, bool, std::string, std::vector<uint64_t>>;
using Settings = std::map<std::string, Setting>;

// What a file of every architecture has.
const Settings kCommon = {{"block_count", 2},
                          {"embedding_length", 64},
                          {"feed_forward_length", 96},
                          {"attention.head_count", 4},
                          {"attention.head_count_kv", 2},
                          {"context_length", 128},
                          {"attention.layer_norm_epsilon", 1e-5},
                          {"attention.layer_norm_rms_epsilon", 1e-5},
                          {"rope.freq_base", 20000.0}};
const Settings kExperts = {{"expert_count", 4}, {"expert_used_count", 2}};
const Settings kWindow = {{"attention.sliding_window", 40}};
const Settings kYarn = {{"rope.scaling.type", "yarn"},
                        {"rope.scaling.factor", 4.0},
                        {"rope.scaling.original_context_length", 32}};
const Settings kLatent = {{"attention.key_length", 48},     {"attention.value_length", 32},
                          {"attention.key_length_mla", 40}, {"attention.value_length_mla", 20},
                          {"attention.kv_lora_rank", 32},   {"rope.dimension_count", 16},
                          {"leading_dense_block_count", 1}};

// What the architecture's files cannot be without, beside kCommon.
Settings Required(std::string_view gguf) {
  Settings settings = kCommon;
  const auto add = [&](const Settings& more) { settings.insert(more.begin(), more.end()); };
  const bool experts = gguf.ends_with("moe") || gguf == "gpt-oss" || gguf == "deepseek2";
  if (experts) add(kExperts);
  if (gguf == "deepseek2") add(kLatent);
  if (gguf == "gpt-oss" || gguf == "cohere2") add(kWindow);
  return settings;
}

// Every key of the format that says something of a model with attention, with a value that no
// model here has by itself.
const Settings kOther = {
    {"block_count", 3},
    {"context_length", 100},
    {"embedding_length", 128},
    {"feed_forward_length", 100},
    {"attention.causal", false},
    {"attention.clamp_kqv", 0.5},
    {"attention.head_count", 8},
    {"attention.head_count_kv", 1},
    {"attention.indexer.top_k", 4},
    {"attention.key_length", 24},
    {"attention.key_length_mla", 44},
    {"attention.key_length_swa", 8},
    {"attention.kv_lora_rank", 24},
    {"attention.layer_norm_epsilon", 0.01},
    {"attention.layer_norm_rms_epsilon", 0.01},
    {"attention.max_alibi_bias", 4.0},
    {"attention.output_scale", 0.5},
    {"attention.relative_buckets_count", 32},
    {"attention.scale", 0.3},
    {"attention.shared_kv_layers", 1},
    {"attention.sliding_window", 20},
    {"attention.sliding_window_pattern", std::vector<uint64_t>{0, 1}},
    {"attention.temperature_length", 64},
    {"attention.temperature_scale", 0.1},
    {"attention.value_length", 8},
    {"attention.value_length_mla", 24},
    {"attention.value_length_swa", 8},
    {"activation_sparsity_scale", 0.5},
    {"altup.num_inputs", 4},
    {"attn_logit_softcapping", 25.0},
    {"embedding_length_per_layer_input", 8},
    {"embedding_scale", 3.0},
    {"expert_count", 8},
    {"expert_used_count", 1},
    {"expert_feed_forward_length", 40},
    {"expert_gating_func", 3},
    {"expert_group_count", 2},
    {"expert_group_scale", 0.5},
    {"expert_shared_count", 3},
    {"expert_shared_feed_forward_length", 44},
    {"expert_weights_norm", true},
    {"expert_weights_scale", 1.5},
    {"experts_per_group", 2},
    {"final_logit_softcapping", 25.0},
    {"full_attention_interval", 4},
    {"interleave_moe_layer_step", 2},
    {"leading_dense_block_count", 2},
    {"logit_scale", 0.5},
    {"moe_every_n_layers", 2},
    {"moe_latent_size", 16},
    {"n_deepstack_layers", 1},
    {"nextn_predict_layers", 1},
    {"residual_scale", 0.5},
    {"rope.dimension_count", 8},
    {"rope.dimension_count_swa", 8},
    {"rope.dimension_sections", std::vector<uint64_t>{2, 3, 3, 0}},
    {"rope.freq_base", 30000.0},
    {"rope.freq_base_swa", 5000.0},
    {"rope.scaling.alpha", 1000.0},
    {"rope.scaling.attn_factor", 1.3},
    {"rope.scaling.factor", 3.0},
    {"rope.scaling.original_context_length", 48},
    {"rope.scaling.type", "linear"},
    {"rope.scaling.yarn_attn_factor", 1.3},
    {"rope.scaling.yarn_beta_fast", 20.0},
    {"rope.scaling.yarn_beta_slow", 2.0},
    {"rope.scaling.yarn_ext_factor", 0.5},
    {"rope.scaling.yarn_log_multiplier", 0.05},
    {"router_logit_softcapping", 30.0},
    {"swiglu_clamp_exp", 7.0},
    {"swiglu_clamp_shexp", 7.0},
    {"swin_norm", true},
    {"use_parallel_residual", true},
};

std::string Written(const TempFolder& folder, std::string_view arch, const Settings& settings) {
  GgufWriter writer;
  EXPECT_TRUE(writer.AddString("general.architecture", arch));
  for (const auto& [name, setting] : settings) {
    const std::string key = std::string(arch) + "." + name;
    Status added;
    if (const auto* v = std::get_if<int>(&setting)) {
      added = writer.AddUint32(key, static_cast<uint32_t>(*v));
    } else if (const auto* f = std::get_if<double>(&setting)) {
      added = writer.AddFloat32(key, static_cast<float>(*f));
    } else if (const auto* b = std::get_if<bool>(&setting)) {
      added = writer.AddBool(key, *b);
    } else if (const auto* s = std::get_if<std::string>(&setting)) {
      added = writer.AddString(key, *s);
    } else {
      GgufValue list{.type = GgufType::kArray, .element = GgufType::kInt32, .value = {}};
      const auto& numbers = std::get<std::vector<uint64_t>>(setting);
      if (name.ends_with("_pattern")) {
        list.element = GgufType::kBool;
        list.value = numbers;
      } else {
        list.value = std::vector<int64_t>(numbers.begin(), numbers.end());
      }
      added = writer.Add(key, list);
    }
    EXPECT_TRUE(added.has_value()) << key;
  }
  const int64_t shape[] = {100, 64};
  const int64_t positions[] = {128, 64};
  EXPECT_TRUE(writer.AddTensor("token_embd.weight", DType::kF32, shape));
  if (arch == "gpt2") {
    EXPECT_TRUE(writer.AddTensor("position_embd.weight", DType::kF32, positions));
  }
  const std::string path = folder.File("keys.gguf");
  EXPECT_TRUE(writer.Begin(path));
  EXPECT_TRUE(writer.Write(std::vector<std::byte>(100 * 64 * sizeof(float))));
  if (arch == "gpt2") {
    EXPECT_TRUE(writer.Write(std::vector<std::byte>(128 * 64 * sizeof(float))));
  }
  EXPECT_TRUE(writer.Finish());
  return path;
}

// All that the reader says of a model, or why it refuses.
Result<std::string> Described(const TempFolder& folder, const ArchSpec& arch,
                              const Settings& settings) {
  const auto file = GgufFile::Open(Written(folder, arch.gguf, settings));
  EXPECT_TRUE(file.has_value());
  LUCID_ASSIGN_OR_RETURN(const ModelConfig config, arch.from_gguf(**file));
  LUCID_RETURN_IF_ERROR(ValidateConfig(config));
  return PrintPlan(BuildPlan(arch, config)) + std::to_string(config.context_length);
}

// Why a key may change nothing in these settings, whose plan is given; "" where it may not.
std::string WhyNot(const std::string& key, const Settings& settings, const std::string& plan) {
  const bool rotates = plan.find("theta=") != std::string::npos;
  const auto has = [&](const char* name) { return settings.contains(name); };
  if (key == "attention.layer_norm_epsilon" || key == "attention.layer_norm_rms_epsilon") {
    return "norms are of one kind";
  }
  if (key.starts_with("rope.") && !rotates) return "nothing rotates";
  if (key == "rope.freq_base_swa" && !has("attention.sliding_window")) return "no windows";
  if (key.starts_with("rope.") && plan.find("window=0\n") == std::string::npos) {
    return "no layer sees all";
  }
  if (has("attention.kv_lora_rank") &&
      (key == "attention.head_count_kv" || key == "attention.key_length" ||
       key == "attention.value_length")) {
    return "of the cache, which other keys describe";
  }
  if (key == "expert_gating_func" && plan.find("score=chosen_softmax") != std::string::npos) {
    return "already so";
  }
  if (key.starts_with("rope.scaling.yarn_") && !has("rope.scaling.type")) return "not YaRN's";
  if (key == "rope.scaling.original_context_length" && !has("rope.scaling.type")) {
    return "nothing is scaled";
  }
  if (key == "rope.scaling.yarn_log_multiplier" && !has("attention.kv_lora_rank")) {
    return "of latent attention";
  }
  if (key.starts_with("expert_") && key != "expert_count" && !has("expert_count")) {
    return "no experts";
  }
  if (key == "leading_dense_block_count" && !has("expert_count")) return "no experts";
  if (key == "expert_weights_norm" && plan.find("normalised") != std::string::npos) {
    return "already so";
  }
  if (key == "attention.sliding_window_pattern" && !has("attention.sliding_window")) {
    return "no windows";
  }
  return "";
}

// Of a switch both, since one of them is what models do by themselves.
std::vector<Setting> Values(const Setting& other) {
  if (const bool* b = std::get_if<bool>(&other)) return {*b, !*b};
  return {other};
}

class GgufKeys : public testing::TestWithParam<const ArchSpec*> {};

TEST_P(GgufKeys, AllChangeTheModelOrAreRefused) {
  const ArchSpec& arch = *GetParam();
  const TempFolder folder;
  const Settings plain = Required(arch.gguf);
  std::vector<Settings> bases = {plain};
  for (const Settings& more : {kYarn, kWindow, kExperts}) {
    Settings settings = plain;
    settings.insert(more.begin(), more.end());
    if (settings != plain) bases.push_back(settings);
  }
  for (const Settings& base : bases) {
    const Result<std::string> same = Described(folder, arch, base);
    if (!same && base != plain) continue;  // the architecture has no windows, or no experts
    ASSERT_TRUE(same.has_value()) << same.error().message;
    for (const auto& [key, other] : kOther) {
      const bool related = key.starts_with("rope.") || key.starts_with("expert") ||
                           key.starts_with("attention.sliding_window");
      if ((base != plain && !related) || !WhyNot(key, base, *same).empty()) continue;
      bool influence = false;
      for (const Setting& value : Values(other)) {
        Settings changed = base;
        changed[key] = value;
        const Result<std::string> now = Described(folder, arch, changed);
        influence = influence || !now || *now != *same;
        if (!now && now.error().code == ErrorCode::kUnsupported) {
          EXPECT_NE(now.error().message.find(key), std::string::npos)
              << key << ": " << now.error().message;
        }
      }
      EXPECT_TRUE(influence) << arch.gguf << "." << key
                             << " changes nothing: read it, refuse it (config_readers_gguf.cc), or "
                                "say why here";
    }
  }
}

std::vector<const ArchSpec*> GgufArchs() {
  std::vector<const ArchSpec*> archs;
  for (const ArchSpec* arch : AllArchs()) {
    if (arch->from_gguf != nullptr) archs.push_back(arch);
  }
  return archs;
}

INSTANTIATE_TEST_SUITE_P(Registry, GgufKeys, testing::ValuesIn(GgufArchs()),
                         [](const auto& test) { return std::string(test.param->name); });

// Which values are rotated together, as llama.cpp takes it for each architecture
// (llama_model_rope_type of llama-model.cpp): no key says it, and a file of ours that is read back
// cannot show a mistake that its writer and its reader share.
TEST(GgufPairs, AreThoseOfLlamaCpp) {
  const std::set<std::string_view> neighbours = {"llama",   "olmo",       "smollm3",
                                                 "granite", "granitemoe", "command-r",
                                                 "cohere2", "deepseek2",  "glm4"};
  const TempFolder folder;
  for (const ArchSpec* arch : GgufArchs()) {
    const auto file = GgufFile::Open(Written(folder, arch->gguf, Required(arch->gguf)));
    ASSERT_TRUE(file.has_value());
    const Result<ModelConfig> config = arch->from_gguf(**file);
    ASSERT_TRUE(config.has_value()) << arch->gguf << ": " << config.error().message;
    for (const LayerConfig& layer : config->layers) {
      if (!layer.use_rope) continue;
      EXPECT_EQ(layer.rope.style == RopeStyle::kInterleaved, neighbours.contains(arch->gguf))
          << arch->gguf;
    }
  }
}

// Gemma 2's converter wrote no caps at first, and all its models have these.
TEST(GgufDefaults, CapsOfGemma2) {
  const TempFolder folder;
  const auto file = GgufFile::Open(Written(folder, "gemma2", kCommon));
  ASSERT_TRUE(file.has_value());
  const ModelConfig config = FindArchByGguf("gemma2").value()->from_gguf(**file).value();
  EXPECT_EQ(config.attn_softcap, 50.0);
  EXPECT_EQ(config.logit_softcap, 30.0);
}

}  // namespace
}  // namespace lucid
