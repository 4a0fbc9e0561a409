#include "models/gguf_key_writer.h"

#include <algorithm>
#include <array>

namespace lucid {

void GgufKeyWriter::Int(std::string_view key, int64_t value) {
  if (value < 0 || value > int64_t{UINT32_MAX}) {
    Cannot(fmt::format("{} is {}", key, value));
    return;
  }
  metadata_.SetUint32(Key(key), static_cast<uint32_t>(value));
}
void GgufKeyWriter::Float(std::string_view key, double value) {
  metadata_.SetFloat32(Key(key), value);
}
void GgufKeyWriter::Bool(std::string_view key, bool value) {
  metadata_.SetBool(Key(key), value);
}
void GgufKeyWriter::String(std::string_view key, std::string_view value) {
  metadata_.SetString(Key(key), std::string(value));
}
void GgufKeyWriter::Bools(std::string_view key, const std::vector<bool>& values) {
  metadata_.SetBools(Key(key), values);
}

void GgufKeyWriter::Cannot(std::string_view what) {
  if (error_) return;
  error_ = Error{ErrorCode::kUnsupported,
                 fmt::format("a GGUF file of architecture {} cannot say that {}", prefix_, what)};
}

Status GgufKeyWriter::status() const {
  if (error_) return tl::unexpected<Error>(*error_);
  return {};
}

namespace {

// Architectures whose windows llama.cpp heeds; in files of the others it reads no window, or leaves
// it unused.
constexpr std::array<std::string_view, 5> kWindowsHeeded = {"gemma2", "gemma3", "cohere2",
                                                            "gpt-oss", "exaone4"};

void WriteSizes(const ModelConfig& c, GgufKeyWriter& k) {
  k.Int("vocab_size", c.vocab_size);
  k.Int("context_length", c.context_length);
  k.Int("embedding_length", c.dim);
  k.Int("block_count", c.n_layers);
  k.Int("feed_forward_length", c.ffn_dim);
  k.Int("attention.head_count", c.n_heads);
  k.Int("attention.head_count_kv", c.n_kv_heads);
  k.Int("attention.key_length", c.head_dim);
  k.Int("attention.value_length", c.head_dim);
  k.Float(c.norm == NormKind::kRms ? "attention.layer_norm_rms_epsilon"
                                   : "attention.layer_norm_epsilon",
          c.norm_eps);
  if (c.clip_qkv > 0) k.Float("attention.clamp_kqv", c.clip_qkv);
  if (c.attn_softcap > 0) k.Float("attn_logit_softcapping", c.attn_softcap);
  if (c.logit_softcap > 0) k.Float("final_logit_softcapping", c.logit_softcap);
}

// The pattern is n where every n-th layer sees all positions, else a flag for each layer.
void WriteWindows(const ModelConfig& c, GgufKeyWriter& k) {
  int64_t window = 0;
  std::vector<bool> sliding;
  for (const LayerConfig& layer : c.layers) {
    sliding.push_back(layer.window > 0);
    if (layer.window == 0) continue;
    if (window != 0 && layer.window != window) k.Cannot("its layers have windows of two sizes");
    window = layer.window;
  }
  if (window == 0) return;
  k.Int("attention.sliding_window", window);
  if (std::ranges::find(sliding, false) == sliding.end()) {
    k.Int("attention.sliding_window_pattern", 0);
  } else {
    const auto period = std::ranges::find(sliding, false) - sliding.begin() + 1;
    const auto periodic = [&] {
      for (size_t i = 0; i < sliding.size(); ++i) {
        if (sliding[i] != ((static_cast<int64_t>(i) + 1) % period != 0)) return false;
      }
      return true;
    };
    if (periodic()) {
      k.Int("attention.sliding_window_pattern", period);
    } else {
      k.Bools("attention.sliding_window_pattern", sliding);
    }
  }
  if (std::ranges::find(kWindowsHeeded, k.prefix()) == kWindowsHeeded.end()) {
    k.Note(
        fmt::format("llama.cpp lets all layers of architecture {} see all positions: beyond {} "
                    "tokens its results differ",
                    k.prefix(), window));
  }
}

// llama.cpp takes YaRN's logarithm by itself.
void WriteYarn(const RopeSpec& rope, bool latent, GgufKeyWriter& k) {
  k.String("rope.scaling.type", "yarn");
  k.Float("rope.scaling.factor", rope.factor);
  k.Int("rope.scaling.original_context_length", static_cast<int64_t>(rope.original_context));
  const double attn_factor = rope.attn_factor / YarnAttnFactor(rope);
  // Files of latent attention say it in another key (deepseek.cc).
  if (!latent && attn_factor != 1.0) k.Float("rope.scaling.attn_factor", attn_factor);
  if (rope.ext_factor != 1.0) k.Float("rope.scaling.yarn_ext_factor", rope.ext_factor);
  if (rope.beta_fast != 32.0) k.Float("rope.scaling.yarn_beta_fast", rope.beta_fast);
  if (rope.beta_slow != 1.0) k.Float("rope.scaling.yarn_beta_slow", rope.beta_slow);
}

void WriteRope(const ModelConfig& c, GgufKeyWriter& k) {
  const RopeSpec* rope = nullptr;   // of the layers that see all positions, else of the others
  const RopeSpec* local = nullptr;  // of those with a window
  for (const LayerConfig& layer : c.layers) {
    if (!layer.use_rope) continue;
    (layer.window > 0 ? local : rope) = &layer.rope;
  }
  if (rope == nullptr) rope = local;
  if (rope == nullptr) return;
  k.Int("rope.dimension_count", rope->rotary_dim);
  k.Float("rope.freq_base", rope->theta);
  if (local != nullptr) k.Float("rope.freq_base_swa", local->theta);
  switch (rope->scaling) {
    case RopeSpec::Scaling::kNone:
    case RopeSpec::Scaling::kLlama3:  // a tensor of divisors
      break;
    case RopeSpec::Scaling::kLinear:
      k.String("rope.scaling.type", "linear");
      k.Float("rope.scaling.factor", rope->factor);
      break;
    case RopeSpec::Scaling::kYarn:
      WriteYarn(*rope, c.mla.kv_lora > 0, k);
      break;
    case RopeSpec::Scaling::kLongRope:  // its factors are tensors
      k.Note(fmt::format(
          "llama.cpp takes LongRoPE's long factors where the context is larger than {0} "
          "tokens, this model where the text is longer: in larger contexts texts of up "
          "to {0} tokens give other results there",
          static_cast<int64_t>(rope->original_context)));
      k.String("rope.scaling.type", "longrope");
      k.Float("rope.scaling.attn_factor", rope->attn_factor);
      k.Int("rope.scaling.original_context_length", static_cast<int64_t>(rope->original_context));
      break;
    case RopeSpec::Scaling::kNtk:
    case RopeSpec::Scaling::kDynamic:
      k.Cannot(fmt::format("rope scaling is '{}'", Name(rope->scaling)));
      break;
  }
}

// expert_gating_func
int64_t GatingNumber(RouteScore score) {
  switch (score) {
    case RouteScore::kSoftmax:
      return 1;
    case RouteScore::kSigmoid:
      return 2;
    case RouteScore::kChosenSoftmax:
      return 3;
  }
  return 0;
}

void WriteExperts(const ModelConfig& c, GgufKeyWriter& k) {
  const MoeConfig& moe = c.moe;
  if (moe.n_experts == 0) return;
  k.Int("expert_count", moe.n_experts);
  k.Int("expert_used_count", moe.rule.n_used);
  k.Int("expert_feed_forward_length", moe.expert_dim);
  k.Int("expert_gating_func", GatingNumber(moe.rule.score));
  k.Bool("expert_weights_norm", moe.rule.normalise);
  if (moe.rule.scale != 1.0f) k.Float("expert_weights_scale", moe.rule.scale);
  if (moe.rule.n_groups > 1) {
    k.Int("expert_group_count", moe.rule.n_groups);
    k.Int("expert_group_used_count", moe.rule.groups_used);
  }
  k.Int("expert_shared_count", moe.expert_dim > 0 ? moe.shared_dim / moe.expert_dim : 0);
  if (moe.shared_dim > 0) k.Int("expert_shared_feed_forward_length", moe.shared_dim);
  const auto first = std::ranges::find_if(c.layers, &LayerConfig::experts);
  k.Int("leading_dense_block_count", first - c.layers.begin());
}

}  // namespace

void WriteCommonKeys(const ModelConfig& c, GgufKeyWriter& k) {
  WriteSizes(c, k);
  WriteWindows(c, k);
  WriteRope(c, k);
  WriteExperts(c, k);
}

void NoteQwenExperts(const ModelConfig& c, bool normalise, GgufKeyWriter& k) {
  if (c.moe.rule.normalise != normalise) {
    k.Cannot(fmt::format("norm_topk_prob is {}", c.moe.rule.normalise));
  }
  if (std::ranges::find(c.layers, false, &LayerConfig::experts) != c.layers.end()) {
    k.Note(fmt::format("llama.cpp cannot load the file: it expects experts in every layer of {}",
                       k.prefix()));
  }
}

}  // namespace lucid
