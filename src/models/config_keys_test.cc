// Nothing of a config.json is guessed: every key that transformers' classes know, and every key of
// the reference models' own files, is changed by itself. The reader must then describe another
// model, or refuse; keys that have no influence on logits are listed here, with the reason.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "models/load.h"
#include "plan/print.h"

namespace lucid {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

const std::string kFixtures = std::string(LUCID_SHARED_DIR) + "/fixtures/";

// Keys without influence on logits, by name or path, or of one model_type: "type:path".
const std::map<std::string, std::string> kWithoutInfluence = {
    {"architectures", "chooses the reader"},
    {"model_type", "says what architectures says"},
    {"transformers_version", "what wrote the file"},
    {"_name_or_path", "where the file came from"},
    {"torch_dtype", "the file's tensors have their types"},
    {"dtype", "the file's tensors have their types"},
    {"modules_to_not_convert", "the file's tensors have their types"},
    {"bos_token_id", "of the tokenizer"},
    {"eos_token_id", "of the tokenizer"},
    {"pad_token_id", "of the tokenizer"},
    {"use_cache", "how transformers runs it"},
    {"attn_impl", "how transformers runs it"},
    {"chunk_size_feed_forward", "how transformers runs it"},
    {"reorder_and_upcast_attn", "how transformers runs it: rounding"},
    {"slow_but_exact", "how transformers runs it: rounding"},
    {"pretraining_tp", "how the products were cut in training: rounding"},
    {"output_attentions", "what transformers returns beside logits"},
    {"output_hidden_states", "what transformers returns beside logits"},
    {"output_router_logits", "what transformers returns beside logits"},
    {"return_dict", "what transformers returns beside logits"},
    {"is_encoder_decoder", "of another kind of model"},
    {"gpt_neox:is_decoder", "a causal model is one"},
    {"init_device", "of training"},
    {"init_std", "of training"},
    {"initializer_range", "of training"},
    {"embedding_fraction", "of training"},
    {"layerdrop", "of training"},
    {"dropout", "of training"},
    {"attention_dropout", "of training"},
    {"embedding_dropout", "of training"},
    {"hidden_dropout", "of training"},
    {"residual_dropout", "of training"},
    {"attn_pdrop", "of training"},
    {"emb_pdrop", "of training"},
    {"embd_pdrop", "of training"},
    {"resid_pdrop", "of training"},
    {"router_aux_loss_coef", "of training"},
    {"router_jitter_noise", "of training"},
    {"classifier_dropout", "of a classifier"},
    {"summary_first_dropout", "of a classifier"},
    {"summary_proj_to_labels", "of a classifier"},
    {"summary_type", "of a classifier"},
    {"summary_use_proj", "of a classifier"},
    {"num_nextn_predict_layers", "layers behind the last, which are not run"},
    {"initial_context_length", "what rope scaling says"},
    {"rope_parameters.type", "the former name of rope_type, which counts"},
    {"gpt2:n_ctx", "the former name of n_positions, which counts"},
    {"mpt:learned_pos_emb", "ALiBi takes their place"},
    {"smollm3:sliding_window", "of windows, which are refused"},
    {"gpt_oss:hidden_act", "its experts have an activation of their own"},
    {"deepseek_v2:head_dim", "the heads' parts have their own keys"},
    {"deepseek_v3:head_dim", "the heads' parts have their own keys"},
    {"qk_head_dim", "the heads' parts have their own keys"},
    {"deepseek_v2:norm_topk_prob", "in its files and not in its model"},
};

// Values that neither null nor the defaults stand for.
const std::map<std::string, Json> kOther = {
    {"attn_logit_softcapping", 20.0},
    {"clip_qkv", 0.5},
    {"final_logit_softcapping", 20.0},
    {"head_dim", 24},
    {"logit_scale", 0.5},
    {"n_group", 2},
    {"n_inner", 100},
    {"no_rope_layer_interval", 2},
    {"num_experts_per_tok", 1},
    {"num_key_value_heads", 1},
    {"num_ln_in_parallel_attn", 1},
    {"q_lora_rank", 20},
    {"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}},
    {"sliding_window", 7},
    {"softmax_scale", 0.3},
    {"topk_group", 2},
    {"use_bidirectional_attention", true},
};

// Values that give other keys their meaning: each set is tried as well as the file itself.
const Json kWindows = {{"use_sliding_window", true}, {"sliding_window", 20}};
const Json kUpperWindows = {
    {"use_sliding_window", true}, {"sliding_window", 20}, {"max_window_layers", 1}};
const std::map<std::string, Json> kSwitches = {
    {"qwen2", kUpperWindows},
    {"qwen3", kUpperWindows},
    {"qwen2_moe", kUpperWindows},
    {"qwen3_moe", kWindows},
    {"exaone4", {{"layer_types", nullptr}}},
    {"smollm3", {{"no_rope_layers", nullptr}}},
    {"gemma3_text", {{"layer_types", nullptr}, {"sliding_window_pattern", nullptr}}},
};

// All that a reader says of a model.
std::string Described(const ArchSpec& arch, const ModelConfig& config) {
  return PrintPlan(BuildPlan(arch, config)) + std::to_string(config.context_length);
}

// Another value of the kind of `value`; null where there is none.
Json Other(const std::string& key, const Json& value, size_t n_layers) {
  if (key == "layer_types") {
    Json types = Json::array();
    const bool all_full = value.is_array() && value.front() == "sliding_attention";
    for (size_t i = 0; i < n_layers; ++i) {
      types.push_back(all_full || i > 0 ? "full_attention" : "sliding_attention");
    }
    return types;
  }
  if (key == "mlp_only_layers") return Json::array({1});
  if (const auto found = kOther.find(key); found != kOther.end() && found->second != value) {
    return found->second;
  }
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number_integer()) return value.get<int64_t>() + 1;
  if (value.is_number_float()) return value.get<double>() * 1.5 + 0.125;
  if (value.is_string()) return value == "relu" ? "silu" : "relu";
  if (value.is_array() && !value.empty()) {
    Json list = value;
    list[0] = Other(key, value[0], n_layers);
    return list;
  }
  return {};
}

// Every value under `value` that is no object: its path, and a copy of `value` with another one.
void Changed(const std::string& path, const std::string& key, const Json& value, size_t n_layers,
             std::vector<std::pair<std::string, Json>>& out) {
  if (key == "id2label" || key == "label2id") return;  // of classifiers
  if (!value.is_object() || value.empty()) {
    if (Json other = Other(key, value, n_layers); !other.is_null()) {
      out.emplace_back(path, std::move(other));
    }
    return;
  }
  for (const auto& [name, member] : value.items()) {
    std::vector<std::pair<std::string, Json>> inner;
    Changed(path + "." + name, name, member, n_layers, inner);
    for (auto& [where, other] : inner) {
      Json copy = value;
      copy[name] = std::move(other);
      out.emplace_back(where, std::move(copy));
    }
  }
}

class Keys {
 public:
  // Changes each key of a config.json and of the class's defaults.
  void Try(const Json& config, const Json& defaults) {
    const auto arch = FindArchByHf(config["architectures"][0].get<std::string>());
    ASSERT_TRUE(arch.has_value()) << arch.error().message;
    const auto read = (*arch)->from_hf(config);
    ASSERT_TRUE(read.has_value()) << read.error().message;
    const std::string same = Described(**arch, *read);
    const auto n_layers = static_cast<size_t>(read->n_layers);
    const std::string type = config["model_type"];
    Json all = defaults;
    all.update(config);
    for (const auto& [key, value] : all.items()) {
      std::vector<std::pair<std::string, Json>> changes;
      Changed(key, key, value, n_layers, changes);
      for (const auto& [path, other] : changes) {
        Json changed = config;
        changed[key] = other;
        Note(type, path, **arch, changed, same);
      }
    }
  }

  // Says which keys nothing became of, and which are listed in vain.
  void Check() const {
    std::set<std::string> used;
    for (const auto& [type_and_path, what] : seen_) {
      const auto& [type, path] = type_and_path;
      const std::string own = type + ":" + path;
      std::string listed;
      for (const std::string& name : {path.substr(path.rfind('.') + 1), path, own}) {
        if (kWithoutInfluence.contains(name)) listed = name;
      }
      EXPECT_TRUE(what.influence || !listed.empty())
          << "config.json of " << type << ": " << path << " became " << what.value
          << " and the model stayed the same: read it, refuse it, or list it as without influence";
      if (listed.empty()) continue;
      used.insert(listed);
      EXPECT_FALSE(what.influence) << own << " is listed as without influence, and has some";
    }
    for (const auto& [key, reason] : kWithoutInfluence) {
      EXPECT_TRUE(used.contains(key)) << key << " is listed, and no model here has it";
    }
  }
  size_t size() const { return seen_.size(); }

 private:
  struct Seen {
    bool influence = false;
    std::string value;
  };

  void Note(const std::string& type, const std::string& path, const ArchSpec& arch,
            const Json& changed, const std::string& same) {
    Seen& seen = seen_[{type, path}];
    const size_t at = path.find('.');
    seen.value = changed[path.substr(0, at)].dump();
    const Result<ModelConfig> config = arch.from_hf(changed);
    if (!config) {
      seen.influence = true;
      const std::string key = path.substr(path.rfind('.') + 1);
      if (config.error().code != ErrorCode::kUnsupported) return;
      EXPECT_NE(config.error().message.find("support"), std::string::npos)
          << type << " " << path << ": " << config.error().message;
      return;
    }
    seen.influence = seen.influence || !ValidateConfig(*config) || Described(arch, *config) != same;
  }

  std::map<std::pair<std::string, std::string>, Seen> seen_;  // by model_type and key
};

TEST(ConfigKeys, AllChangeTheModelOrAreRefusedOrAreListed) {
  if (!fs::exists(kFixtures)) GTEST_SKIP() << "the reference fixtures are not at " << kFixtures;
  const Json all = Json::parse(std::ifstream(kFixtures + "config_defaults.json"));
  Keys keys;
  for (const auto& folder : fs::directory_iterator(kFixtures + "models")) {
    SCOPED_TRACE(folder.path().filename());
    for (const char* file : {"config.json", "config.v5.json"}) {
      const Json config = Json::parse(std::ifstream(folder.path() / file));
      const std::string type = config["model_type"];
      ASSERT_TRUE(all.contains(type)) << type;
      keys.Try(config, all[type]);
      const auto switches = kSwitches.find(type);
      if (switches == kSwitches.end()) continue;
      Json switched = config;
      switched.update(switches->second);
      keys.Try(switched, all[type]);
    }
  }
  keys.Check();
  EXPECT_GE(keys.size(), 800u);
}

}  // namespace
}  // namespace lucid
