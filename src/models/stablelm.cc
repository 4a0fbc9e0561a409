// StableLM: a Llama block with layer norms, part of each head rotated.
#include "models/arch.h"
#include "models/config_readers.h"
#include "models/parts.h"

namespace lucid {
namespace {

Result<ModelConfig> FromGguf(const GgufFile& file) {
  GgufHparams h(file, "stablelm");
  ModelConfig c = ReadGgufCommon(h, "stablelm", RopeStyle::kHalfSplit, NormKind::kLayer);
  c.norm_bias = true;
  if (h.BoolOr("use_parallel_residual", false) || h.LayersHave({"attn_q_norm.weight"})) {
    h.Fail({ErrorCode::kUnsupported,
            "stablelm.use_parallel_residual and norms of q and k (as in StableLM 2 12B) are not "
            "supported"});
  }
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Result<ModelConfig> FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "stablelm",
                               {.hidden_size = 2560,
                                .intermediate_size = 6912,
                                .vocab_size = 50304,
                                .max_position_embeddings = 4096,
                                .norm = NormKind::kLayer,
                                .eps_key = "layer_norm_eps",
                                .norm_eps = 1e-5});
  c.norm_bias = true;
  c.qkv_bias = h.Bool("use_qkv_bias", false);
  h.Only("qk_layernorm", false);
  h.Only("use_parallel_residual", false);
  SetLayers(c, ReadHfRope(h, c, {.partial = 0.25}));
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

}  // namespace

extern const ArchSpec kStablelm = {
    .name = "stablelm",
    .gguf = "stablelm",
    .hf = {"StableLmForCausalLM", "StableLMEpochForCausalLM"},
    .from_gguf = FromGguf,
    .from_hf = FromHf,
    .hf_names = {names::kEnds, names::kPreNorms, names::kAttention, names::kFfn},
    .embed = parts::Embed,
    .block = parts::GatedBlock,
    .head = parts::Head,
};

}  // namespace lucid
