// Granite 3 MoE: a Llama block with factors on embedding, scores, residuals and logits; the
// experts' gate and up matrices are stored as one.
#include "models/arch.h"
#include "models/config_readers.h"
#include "models/gguf_key_writer.h"
#include "models/moe.h"
#include "models/parts.h"

namespace lucid {
namespace {

constexpr RoutingRule kRule = {.score = RouteScore::kChosenSoftmax};

Result<ModelConfig> FromGguf(const GgufFile& file) {
  GgufHparams h(file, "granitemoe");
  // As Llama's, converted files have q and k permuted.
  ModelConfig c = ReadGgufCommon(h, "granitemoe", RopeStyle::kInterleaved);
  c.embed_scale = h.FloatOr("embedding_scale", 1.0);
  c.residual_scale = h.FloatOr("residual_scale", 1.0);
  c.logit_scale = 1.0 / h.FloatOr("logit_scale", 1.0);
  c.attn_scale = h.FloatOr("attention.scale", c.attn_scale);
  ReadGgufExperts(h, kRule, c);
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Result<ModelConfig> FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "granitemoe", {});
  c.qkv_bias = c.attn_out_bias = h.Bool("attention_bias", false);
  c.embed_scale = h.Float("embedding_multiplier", 1.0);
  c.residual_scale = h.Float("residual_multiplier", 1.0);
  c.attn_scale = h.Float("attention_multiplier", 1.0);
  c.logit_scale = 1.0 / h.Float("logits_scaling", 1.0);
  SetLayers(c, ReadHfRope(h, c));
  ReadHfExperts(h,
                {.n_experts = "num_local_experts",
                 .n_experts_absent = 8,
                 .dim = "intermediate_size",
                 .dim_absent = c.ffn_dim,
                 .n_used_absent = 2},
                kRule, c);
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Value Block(Builder& b, const ModelConfig& c, int layer, Value x) {
  return parts::PreNormBlock(b, c, layer, x, parts::ExpertFfn);
}

constexpr std::array kHfNames = {
    NameRule{"blk.{}.ffn_gate_inp", "model.layers.{}.block_sparse_moe.router.layer.weight"},
    NameRule{"blk.{}.ffn_gate_exps", "model.layers.{}.block_sparse_moe.input_linear.weight",
             Transform::kNone, Rows::kFirstHalf},
    NameRule{"blk.{}.ffn_up_exps", "model.layers.{}.block_sparse_moe.input_linear.weight",
             Transform::kNone, Rows::kSecondHalf},
    NameRule{"blk.{}.ffn_down_exps", "model.layers.{}.block_sparse_moe.output_linear.weight"},
};

}  // namespace

extern const ArchSpec kGraniteMoe = {
    .name = "granitemoe",
    .gguf = "granitemoe",
    .hf = {"GraniteMoeForCausalLM"},
    .from_gguf = FromGguf,
    .from_hf = FromHf,
    .hf_names = {names::kEnds, names::kPreNorms, names::kAttention, kHfNames},
    .to_gguf = WriteGraniteScales,
    .embed = parts::Embed,
    .block = Block,
    .head = parts::Head,
};

}  // namespace lucid
