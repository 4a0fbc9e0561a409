// DeepSeek-V2 (arXiv 2405.04434) and V3 (arXiv 2412.19437), also Moonlight and what else is built
// so: latent attention (mla.h), dense first layers, routed experts beside shared ones. V3 scores
// experts by sigmoid and chooses them with a bias. Layers that predict further tokens are not read.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "models/arch.h"
#include "models/config_readers.h"
#include "models/gguf_key_writer.h"
#include "models/mla.h"
#include "models/moe.h"
#include "models/parts.h"

namespace lucid {
namespace {

// After the sizes of c.mla are known: what else follows from them. `mscale` is YaRN's factor of the
// scores' square root.
void SetLatent(ModelConfig& c, double mscale) {
  c.head_dim = c.mla.nope + c.mla.rope;
  c.n_kv_heads = c.n_heads;
  c.attn_scale = mscale * mscale / std::sqrt(static_cast<double>(c.head_dim));
}

Result<ModelConfig> FromGguf(const GgufFile& file) {
  GgufHparams h(file, "deepseek2");
  ModelConfig c = ReadGgufCommon(h, "deepseek2", RopeStyle::kInterleaved);
  c.n_unrun_layers = std::clamp<int64_t>(h.IntOr("nextn_predict_layers", 0), 0, 4096);
  c.n_layers -= c.n_unrun_layers;
  c.layers.resize(static_cast<size_t>(std::clamp<int64_t>(c.n_layers, 0, 4096)));
  c.mla.rope = h.Int("rope.dimension_count");
  // Files whose kv_b is one tensor have the heads' own sizes in the keys without _mla.
  c.mla.nope = h.IntOr("attention.key_length_mla", h.Int("attention.key_length")) - c.mla.rope;
  c.mla.v_dim = h.IntOr("attention.value_length_mla", h.Int("attention.value_length"));
  c.mla.kv_lora = h.Int("attention.kv_lora_rank");
  const bool q_lora = h.LayersHave({"attn_q_a.weight", "attn_q_a_norm.weight", "attn_q_b.weight"});
  c.mla.q_lora = q_lora ? h.Int("attention.q_lora_rank") : 0;
  c.mla.norm_eps = c.norm_eps;
  double mscale = 1.0;
  for (LayerConfig& layer : c.layers) {
    if (layer.rope.scaling != RopeSpec::Scaling::kYarn) break;
    // The file has 0.1 mscale_all_dim; all published models have mscale the same, so that the
    // factor of cosine and sine is 1.
    mscale = 1.0 + h.FloatOr("rope.scaling.yarn_log_multiplier", 0) * std::log(layer.rope.factor);
    layer.rope.attn_factor /= YarnAttnFactor(layer.rope);
  }
  SetLatent(c, mscale);
  if (c.clip_qkv > 0) {
    h.Fail({ErrorCode::kUnsupported,
            "deepseek2.attention.clamp_kqv is not supported with latent attention"});
  }
  ReadGgufExperts(h, {.score = RouteScore::kSoftmax}, c);
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

void ToGguf(const ModelConfig& c, GgufKeyWriter& keys) {
  // The cache has one head of latents.
  keys.Int("attention.head_count_kv", 1);
  keys.Int("attention.key_length", c.mla.kv_lora + c.mla.rope);
  keys.Int("attention.value_length", c.mla.kv_lora);
  keys.Int("attention.key_length_mla", c.head_dim);
  keys.Int("attention.value_length_mla", c.mla.v_dim);
  keys.Int("attention.kv_lora_rank", c.mla.kv_lora);
  keys.Int("attention.q_lora_rank", c.mla.q_lora);
  const RopeSpec& rope = c.layers[0].rope;
  if (rope.scaling == RopeSpec::Scaling::kYarn && rope.factor > 1.0) {
    const double mscale = std::sqrt(c.attn_scale * std::sqrt(static_cast<double>(c.head_dim)));
    keys.Float("rope.scaling.yarn_log_multiplier", (mscale - 1.0) / std::log(rope.factor));
  }
  if (c.moe.rule.n_groups > 1 && !c.moe.rule.group_pairs) {
    keys.Note(
        "llama.cpp chooses groups by their two best experts, this model by the best one: experts "
        "may differ there");
  }
}

// YaRN's factor of the scores' square root, in DeepSeek's dialect.
double ScoreFactor(HfConfigReader& h, const RopeSpec& rope) {
  const char* key = h.Pick({"rope_parameters", "rope_scaling"});
  if (!h.Has(key) || !h.json()[key].is_object()) return 1.0;
  HfConfigReader s(h.json()[key], key);
  const double all = s.Float("mscale_all_dim", 0);
  if (const Status status = s.status(); !status) h.Fail(status.error());
  return all != 0 ? YarnAttnFactor(rope.factor, all) : 1.0;
}

// The parts of config.json that V2 and V3 share.
void ReadLatent(HfConfigReader& h, RopeStyle style, ModelConfig& c) {
  h.Only("attention_bias", false);
  if (h.Has("num_key_value_heads") && c.n_kv_heads != c.n_heads) {
    h.Fail({ErrorCode::kUnsupported,
            fmt::format("config.json: num_key_value_heads is {}; only {}, that of the heads, is "
                        "supported with latent attention",
                        c.n_kv_heads, c.n_heads)});
  }
  c.mla.kv_lora = h.Int("kv_lora_rank", 512);
  // null: q is not factored; absent: the class's default.
  c.mla.q_lora = h.json().contains("q_lora_rank") ? h.Int("q_lora_rank", 0) : 1536;
  c.mla.nope = h.Int("qk_nope_head_dim", 128);
  c.mla.rope = h.Int("qk_rope_head_dim", 64);
  c.mla.v_dim = h.Int("v_head_dim", 128);
  c.mla.norm_eps = 1e-6;  // whatever rms_norm_eps says
  c.head_dim = c.mla.rope;
  const RopeSpec rope = ReadHfRope(h, c, {.style = style});
  SetLayers(c, rope);
  SetLatent(c, ScoreFactor(h, rope));
}

Result<ModelConfig> V2FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "deepseek2", {.vocab_size = 102400});
  ReadLatent(h, RopeStyle::kInterleaved, c);
  h.Only("mlp_bias", false);
  h.Only("moe_layer_freq", 1.0);
  h.Only("scoring_func", "softmax");
  // norm_topk_prob is in the files and not in the model.
  RoutingRule rule = {.score = RouteScore::kSoftmax,
                      .scale = static_cast<float>(h.Float("routed_scaling_factor", 1.0))};
  const std::string method = h.String("topk_method", "greedy");
  if (method == "group_limited_greedy") {
    rule.n_groups = static_cast<int32_t>(h.Int("n_group", 1));
    rule.groups_used = static_cast<int32_t>(h.Int("topk_group", 1));
  } else if (method != "greedy") {
    h.Fail({ErrorCode::kUnsupported,
            fmt::format("config.json: topk_method '{}' is not supported; supported: greedy, "
                        "group_limited_greedy",
                        method)});
  }
  ReadHfExperts(h,
                {.n_experts = "n_routed_experts",
                 .n_experts_absent = 64,
                 .dim_absent = 1407,
                 .first = "first_k_dense_replace"},
                rule, c);
  c.moe.shared_dim = h.Int("n_shared_experts", 2) * c.moe.expert_dim;
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Result<ModelConfig> V3FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "deepseek3",
                               {.hidden_size = 7168,
                                .intermediate_size = 18432,
                                .num_hidden_layers = 61,
                                .num_attention_heads = 128,
                                .num_key_value_heads = 128,
                                .vocab_size = 129280,
                                .max_position_embeddings = 4096});
  c.n_unrun_layers = h.Int("num_nextn_predict_layers", 0);
  ReadLatent(h, h.Bool("rope_interleave", true) ? RopeStyle::kInterleaved : RopeStyle::kHalfSplit,
             c);
  h.Only("moe_layer_freq", 1.0);
  h.Only("scoring_func", "sigmoid");
  h.Only("topk_method", "noaux_tc");
  ReadHfExperts(h,
                {.n_experts = "n_routed_experts",
                 .n_experts_absent = 256,
                 .dim_absent = 2048,
                 .n_used_absent = 8,
                 .first = "first_k_dense_replace",
                 .first_absent = 3},
                {}, c);
  ReadHfSigmoidRouting(h, /*scale_absent=*/2.5, /*groups_absent=*/8, /*groups_used_absent=*/4, c);
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Value Block(Builder& b, const ModelConfig& c, int layer, Value x) {
  Value h = parts::Norm(b, c, layer, x, "attn_norm");
  x = b.Add(x, parts::LatentAttention(b, c, layer, h));
  h = parts::Norm(b, c, layer, x, "ffn_norm");
  return b.Add(x, parts::ExpertFfn(b, c, layer, h));
}

constexpr std::array kHfNames = {
    NameRule{"blk.{}.attn_q", "model.layers.{}.self_attn.q_proj.weight"},
    NameRule{"blk.{}.attn_q_a", "model.layers.{}.self_attn.q_a_proj.weight"},
    NameRule{"blk.{}.attn_q_a_norm", "model.layers.{}.self_attn.q_a_layernorm.weight"},
    NameRule{"blk.{}.attn_q_b", "model.layers.{}.self_attn.q_b_proj.weight"},
    NameRule{"blk.{}.attn_kv_a", "model.layers.{}.self_attn.kv_a_proj_with_mqa.weight",
             Transform::kNone, Rows::kLatent},
    NameRule{"blk.{}.attn_k_pe", "model.layers.{}.self_attn.kv_a_proj_with_mqa.weight",
             Transform::kNone, Rows::kRotated},
    NameRule{"blk.{}.attn_kv_a_norm", "model.layers.{}.self_attn.kv_a_layernorm.weight"},
    NameRule{"blk.{}.attn_k_b", "model.layers.{}.self_attn.kv_b_proj.weight", Transform::kNone,
             Rows::kHeadKeys},
    NameRule{"blk.{}.attn_v_b", "model.layers.{}.self_attn.kv_b_proj.weight", Transform::kNone,
             Rows::kHeadValues},
    NameRule{"blk.{}.attn_output", "model.layers.{}.self_attn.o_proj.weight"},
};

}  // namespace

extern const ArchSpec kDeepseek2 = {
    .name = "deepseek2",
    .gguf = "deepseek2",
    .hf = {"DeepseekV2ForCausalLM"},
    .from_gguf = FromGguf,
    .from_hf = V2FromHf,
    .hf_names = {names::kEnds, names::kPreNorms, names::kFfn, names::kExperts, kHfNames},
    .to_gguf = ToGguf,
    .embed = parts::Embed,
    .block = Block,
    .head = parts::Head,
};

// GGUF files call it deepseek2, too.
extern const ArchSpec kDeepseek3 = {
    .name = "deepseek3",
    .gguf = "",
    .hf = {"DeepseekV3ForCausalLM"},
    .from_hf = V3FromHf,
    .hf_names = {names::kEnds, names::kPreNorms, names::kFfn, names::kExperts, kHfNames},
    .gguf_as = "deepseek2",
    .to_gguf = ToGguf,
    .embed = parts::Embed,
    .block = Block,
    .head = parts::Head,
};

}  // namespace lucid
