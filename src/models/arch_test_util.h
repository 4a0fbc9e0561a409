// Configs for tests that go through the registry of architectures.
#pragma once

#include <set>
#include <string_view>

#include <nlohmann/json.hpp>

#include "models/arch.h"

namespace lucid {

// Of these a KV head for each head, or what other keys of their configs say.
inline bool OwnHeads(const ArchSpec& arch) {
  const std::set<std::string_view> names = {"gpt2", "gptj",   "gpt_neox",  "opt",      "bloom",
                                            "mpt",  "falcon", "deepseek2", "deepseek3"};
  return names.contains(arch.name);
}

// A config small enough to read in a golden file, with every feature the architecture can have by
// default.
inline nlohmann::ordered_json SmallConfig(const ArchSpec& arch) {
  nlohmann::ordered_json json = {{"hidden_size", 64},
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
  if (OwnHeads(arch)) json.erase("num_key_value_heads");
  if (arch.name == "gptj") json["rotary_dim"] = 8;  // its default is more than a head has here
  return json;
}

}  // namespace lucid
