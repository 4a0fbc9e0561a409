// Qwen1.5-MoE and Qwen2-MoE: Qwen2's attention; experts in some layers, beside an expert of all
// tokens that a gate of its own weighs.
#include "models/arch.h"
#include "models/config_readers.h"
#include "models/gguf_key_writer.h"
#include "models/moe.h"
#include "models/parts.h"

namespace lucid {
namespace {

Result<ModelConfig> FromGguf(const GgufFile& file) {
  GgufHparams h(file, "qwen2moe");
  ModelConfig c = ReadGgufCommon(h, "qwen2_moe", RopeStyle::kHalfSplit);
  ReadGgufExperts(h, {.score = RouteScore::kSoftmax}, c);
  if (c.moe.shared_dim == 0) c.moe.shared_dim = c.ffn_dim;
  c.moe.shared_gate = true;
  ReadGgufWindows(h, c);
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

void ToGguf(const ModelConfig& c, GgufKeyWriter& keys) {
  NoteQwenExperts(c, /*normalise=*/false, keys);
}

Result<ModelConfig> FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "qwen2_moe",
                               {.hidden_size = 2048,
                                .intermediate_size = 5632,
                                .num_hidden_layers = 24,
                                .num_attention_heads = 16,
                                .num_key_value_heads = 16,
                                .vocab_size = 151936,
                                .max_position_embeddings = 32768});
  c.qkv_bias = h.Bool("qkv_bias", true);
  SetLayers(c, ReadHfRope(h, c));
  SetQwenWindows(h, c);
  ReadHfExperts(h, {.n_experts_absent = 60, .dim_absent = 1408, .n_used_absent = 4},
                {.score = RouteScore::kSoftmax, .normalise = h.Bool("norm_topk_prob", false)}, c);
  SetQwenExpertLayers(h, c);
  c.moe.shared_dim = h.Int("shared_expert_intermediate_size", 5632);
  c.moe.shared_gate = true;
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

constexpr std::array kHfNames = {
    NameRule{"blk.{}.ffn_gate_inp_shexp", "model.layers.{}.mlp.shared_expert_gate.weight"},
    NameRule{"blk.{}.ffn_gate_shexp", "model.layers.{}.mlp.shared_expert.gate_proj.weight"},
    NameRule{"blk.{}.ffn_up_shexp", "model.layers.{}.mlp.shared_expert.up_proj.weight"},
    NameRule{"blk.{}.ffn_down_shexp", "model.layers.{}.mlp.shared_expert.down_proj.weight"},
};

}  // namespace

extern const ArchSpec kQwen2Moe = {
    .name = "qwen2_moe",
    .gguf = "qwen2moe",
    .hf = {"Qwen2MoeForCausalLM"},
    .from_gguf = FromGguf,
    .from_hf = FromHf,
    .hf_names = {names::kEnds, names::kPreNorms, names::kAttention, names::kFfn, names::kExperts,
                 kHfNames},
    .to_gguf = ToGguf,
    .embed = parts::Embed,
    .block = parts::ExpertBlock,
    .head = parts::Head,
};

}  // namespace lucid
