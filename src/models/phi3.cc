// Phi-3: a Llama block whose q, k and v are one stored matrix, gate and up another; long contexts
// by LongRoPE.
#include <array>

#include "models/arch.h"
#include "models/config_readers.h"
#include "models/gguf_key_writer.h"
#include "models/parts.h"

namespace lucid {
namespace {

Result<ModelConfig> FromGguf(const GgufFile& file) {
  GgufHparams h(file, "phi3");
  ModelConfig c = ReadGgufCommon(h, "phi3", RopeStyle::kHalfSplit);
  ReadGgufWindows(h, c);
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

// Without the key, llama.cpp has taken the window of the first Phi-3 for granted.
void ToGguf(const ModelConfig& c, GgufKeyWriter& keys) {
  if (c.layers[0].window == 0) keys.Int("attention.sliding_window", 0);
}

Result<ModelConfig> FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "phi3",
                               {.hidden_size = 3072,
                                .intermediate_size = 8192,
                                .vocab_size = 32064,
                                .max_position_embeddings = 4096,
                                .norm_eps = 1e-5});
  SetLayers(c, ReadHfRope(h, c, {.original_context = 4096}), h.Int("sliding_window", 0));
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

constexpr std::array kNames = {
    NameRule{"blk.{}.attn_q", "model.layers.{}.self_attn.qkv_proj.weight", Transform::kNone,
             Rows::kQ},
    NameRule{"blk.{}.attn_k", "model.layers.{}.self_attn.qkv_proj.weight", Transform::kNone,
             Rows::kK},
    NameRule{"blk.{}.attn_v", "model.layers.{}.self_attn.qkv_proj.weight", Transform::kNone,
             Rows::kV},
    NameRule{"blk.{}.attn_output", "model.layers.{}.self_attn.o_proj.weight"},
};

}  // namespace

extern const ArchSpec kPhi3 = {
    .name = "phi3",
    .gguf = "phi3",
    .hf = {"Phi3ForCausalLM"},
    .from_gguf = FromGguf,
    .from_hf = FromHf,
    .hf_names = {kNames, names::kEnds, names::kPreNorms, names::kFusedGateUp},
    .to_gguf = ToGguf,
    .embed = parts::Embed,
    .block = parts::GatedBlock,
    .head = parts::Head,
};

}  // namespace lucid
