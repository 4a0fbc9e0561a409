// GPT-OSS (OpenAI 2025, arXiv 2508.10925): every other layer has a window, each head a sink;
// experts with biases and a clamped gated unit, published in MXFP4.
#include <nlohmann/json.hpp>

#include "models/arch.h"
#include "models/config_readers.h"
#include "models/gguf_key_writer.h"
#include "models/moe.h"
#include "models/parts.h"

namespace lucid {
namespace {

constexpr RoutingRule kRule = {.score = RouteScore::kChosenSoftmax};
constexpr double kLimit = 7.0;
constexpr double kAlpha = 1.702;  // of the gate's sigmoid: what kGeluQuick has

void SetCommon(ModelConfig& c, double limit) {
  c.attn_sinks = true;
  c.moe.router_bias = c.moe.expert_bias = true;
  c.moe.glu = {.act = Activation::kGeluQuick, .limit = static_cast<float>(limit)};
}

Result<ModelConfig> FromGguf(const GgufFile& file) {
  GgufHparams h(file, "gpt-oss");
  ModelConfig c = ReadGgufCommon(h, "gpt_oss", RopeStyle::kHalfSplit);
  c.qkv_bias = c.attn_out_bias = true;
  ReadGgufExperts(h, kRule, c);
  SetCommon(c, kLimit);
  const int64_t window = h.Int("attention.sliding_window");
  const std::vector<bool> sliding = ReadGgufSlidingLayers(h, c, /*absent=*/2);
  for (size_t i = 0; i < c.layers.size(); ++i) {
    c.layers[i].window = sliding[i] ? window : 0;
    c.layers[i].rope.truncate = false;  // which files do not say
  }
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

void ToGguf(const ModelConfig& c, GgufKeyWriter& keys) {
  const RopeSpec& rope = c.layers[0].rope;
  if (rope.scaling == RopeSpec::Scaling::kYarn && !rope.truncate) {
    keys.Note("llama.cpp rounds the ends of YaRN's ramp, which this model does not");
  }
}

RopeSpec ReadRope(HfConfigReader& h, const ModelConfig& c) {
  RopeSpec rope = ReadHfRope(h, c, {.theta = 150000.0});
  if (h.Has("rope_scaling") || h.Has("rope_parameters")) return rope;
  rope.scaling = RopeSpec::Scaling::kYarn;
  rope.factor = 32.0;
  rope.original_context = 4096;
  rope.truncate = false;
  rope.attn_factor = YarnAttnFactor(rope.factor);
  return rope;
}

Result<ModelConfig> FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "gpt_oss",
                               {.hidden_size = 2880,
                                .intermediate_size = 2880,
                                .num_hidden_layers = 36,
                                .num_attention_heads = 64,
                                .num_key_value_heads = 8,
                                .head_dim = 64,
                                .vocab_size = 201088,
                                .max_position_embeddings = 131072,
                                .norm_eps = 1e-5,
                                .reads_quantization = true});
  c.qkv_bias = c.attn_out_bias = h.Bool("attention_bias", true);
  SetLayers(c, ReadRope(h, c));
  const std::optional<std::vector<bool>> sliding = ReadHfSlidingLayers(h, c);
  const int64_t window = h.Int("sliding_window", 128);
  for (size_t i = 0; i < c.layers.size(); ++i) {
    c.layers[i].window = (sliding ? (*sliding)[i] : i % 2 == 0) ? window : 0;
  }
  ReadHfExperts(h,
                {.n_experts = "num_local_experts",
                 .n_experts_absent = 128,
                 .dim = "intermediate_size",
                 .dim_absent = c.ffn_dim,
                 .n_used_absent = 4},
                kRule, c);
  SetCommon(c, h.Float("swiglu_limit", kLimit));
  h.Only("swiglu_alpha", kAlpha);
  if (h.Has("quantization_config")) {
    const nlohmann::ordered_json& q = h.json()["quantization_config"];
    if (!q.is_object() || q.value("quant_method", "") != "mxfp4") {
      h.Fail({ErrorCode::kUnsupported,
              "config.json: quantization_config is not mxfp4, the only one supported here"});
    }
  }
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

// Gate and up are the even and odd outputs of one matrix, which is transposed unless it is in
// MXFP4.
constexpr std::array kHfNames = {
    NameRule{"blk.{}.attn_sinks", "model.layers.{}.self_attn.sinks"},
    NameRule{"blk.{}.ffn_gate_inp", "model.layers.{}.mlp.router.weight"},
    NameRule{"blk.{}.ffn_gate_inp.bias", "model.layers.{}.mlp.router.bias"},
    NameRule{"blk.{}.ffn_gate_exps", "model.layers.{}.mlp.experts.gate_up_proj",
             Transform::kTranspose, Rows::kEven},
    NameRule{"blk.{}.ffn_up_exps", "model.layers.{}.mlp.experts.gate_up_proj",
             Transform::kTranspose, Rows::kOdd},
    NameRule{"blk.{}.ffn_down_exps", "model.layers.{}.mlp.experts.down_proj",
             Transform::kTranspose},
    NameRule{"blk.{}.ffn_gate_exps", "model.layers.{}.mlp.experts.gate_up_proj", Transform::kMxfp4,
             Rows::kEven},
    NameRule{"blk.{}.ffn_up_exps", "model.layers.{}.mlp.experts.gate_up_proj", Transform::kMxfp4,
             Rows::kOdd},
    NameRule{"blk.{}.ffn_down_exps", "model.layers.{}.mlp.experts.down_proj", Transform::kMxfp4},
    NameRule{"blk.{}.ffn_gate_exps.bias", "model.layers.{}.mlp.experts.gate_up_proj_bias",
             Transform::kNone, Rows::kEven},
    NameRule{"blk.{}.ffn_up_exps.bias", "model.layers.{}.mlp.experts.gate_up_proj_bias",
             Transform::kNone, Rows::kOdd},
    NameRule{"blk.{}.ffn_down_exps.bias", "model.layers.{}.mlp.experts.down_proj_bias"},
};

// The norm before the experts, by its name in Hugging Face files.
constexpr std::array kGgufNames = {
    NameRule{"blk.{}.ffn_norm", "blk.{}.post_attention_norm.weight"},
};

}  // namespace

extern const ArchSpec kGptOss = {
    .name = "gpt_oss",
    .gguf = "gpt-oss",
    .hf = {"GptOssForCausalLM"},
    .from_gguf = FromGguf,
    .from_hf = FromHf,
    .hf_names = {names::kEnds, names::kPreNorms, names::kAttention, kHfNames},
    .to_gguf = ToGguf,
    .gguf_names = kGgufNames,
    .embed = parts::Embed,
    .block = parts::ExpertBlock,
    .head = parts::Head,
};

}  // namespace lucid
