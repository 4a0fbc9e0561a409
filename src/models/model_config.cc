#include "models/model_config.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace lucid {
namespace {

struct Limit {
  const char* name;
  int64_t value;
  int64_t max;
};

Status CheckRope(const RopeSpec& rope, int64_t head_dim, int64_t layer) {
  const auto factors = static_cast<size_t>(rope.rotary_dim / 2);
  if (rope.rotary_dim <= 0 || rope.rotary_dim % 2 != 0 || rope.rotary_dim > head_dim) {
    return Err(ErrorCode::kInvalidFile, "layer {}: rotary dimension {} does not fit head_dim {}",
               layer, rope.rotary_dim, head_dim);
  }
  if (!(rope.theta > 0) || !std::isfinite(rope.theta)) {
    return Err(ErrorCode::kInvalidFile, "layer {}: rope_theta is {}, must be positive", layer,
               rope.theta);
  }
  if (!(rope.factor > 0) || !std::isfinite(rope.factor)) {
    return Err(ErrorCode::kInvalidFile, "layer {}: rope scaling factor is {}, must be positive",
               layer, rope.factor);
  }
  if (!(rope.original_context > 0) || !std::isfinite(rope.attn_factor)) {
    return Err(ErrorCode::kInvalidFile,
               "layer {}: rope scaling from {} positions with attention factor {}", layer,
               rope.original_context, rope.attn_factor);
  }
  if (rope.scaling == RopeSpec::Scaling::kYarn &&
      !(rope.beta_fast > rope.beta_slow && rope.beta_slow > 0 && rope.theta > 1)) {
    return Err(ErrorCode::kInvalidFile,
               "layer {}: yarn needs beta_fast > beta_slow > 0 and a rope_theta above 1", layer);
  }
  if (rope.scaling == RopeSpec::Scaling::kLongRope &&
      (rope.short_factors.size() != factors || rope.long_factors.size() != factors)) {
    return Err(ErrorCode::kInvalidFile,
               "layer {}: longrope has {} short and {} long factors for {} rotated pairs", layer,
               rope.short_factors.size(), rope.long_factors.size(), factors);
  }
  for (const auto& [list, name] :
       {std::pair{&rope.short_factors, "short factors"},
        std::pair{&rope.long_factors, "long factors"}, std::pair{&rope.divisors, "rope_freqs"}}) {
    const auto bad = std::ranges::find_if(
        *list, [](float factor) { return !(factor > 0) || !std::isfinite(factor); });
    if (bad == list->end()) continue;
    return Err(ErrorCode::kInvalidFile, "layer {}: {} hold {}, must be positive", layer, name,
               *bad);
  }
  if (rope.scaling == RopeSpec::Scaling::kLlama3 &&
      !(rope.high_freq_factor > rope.low_freq_factor && rope.low_freq_factor > 0)) {
    return Err(ErrorCode::kInvalidFile,
               "layer {}: llama3 rope scaling needs high_freq_factor > low_freq_factor > 0", layer);
  }
  return {};
}

Status CheckExperts(const MoeConfig& moe) {
  const auto bad = [](const char* name, int64_t value, int64_t max) {
    return Err(ErrorCode::kInvalidFile, "{} is {}, must be 1 to {}", name, value, max);
  };
  if (moe.n_experts < 1 || moe.n_experts > 4096) {
    return bad("number of experts", moe.n_experts, 4096);
  }
  if (moe.expert_dim < 1 || moe.expert_dim > (int64_t{1} << 20)) {
    return bad("inner width of the experts", moe.expert_dim, int64_t{1} << 20);
  }
  if (moe.shared_dim < 0 || moe.shared_dim > (int64_t{1} << 20)) {
    return bad("inner width of the shared expert", moe.shared_dim, int64_t{1} << 20);
  }
  if (moe.rule.n_used < 1 || moe.rule.n_used > moe.n_experts) {
    return bad("number of experts of a token", moe.rule.n_used, moe.n_experts);
  }
  if (moe.rule.n_groups < 1 || moe.n_experts % moe.rule.n_groups != 0) {
    return Err(ErrorCode::kInvalidFile, "{} experts cannot form {} groups", moe.n_experts,
               moe.rule.n_groups);
  }
  const int64_t group = moe.n_experts / moe.rule.n_groups;
  if (moe.rule.groups_used < 1 || moe.rule.groups_used > moe.rule.n_groups ||
      group * moe.rule.groups_used < moe.rule.n_used) {
    return Err(ErrorCode::kInvalidFile, "{} experts of a token cannot come from {} of {} groups",
               moe.rule.n_used, moe.rule.groups_used, moe.rule.n_groups);
  }
  if (!std::isfinite(moe.rule.scale)) {
    return Err(ErrorCode::kInvalidFile, "the factor of the experts' weights is {}", moe.rule.scale);
  }
  return {};
}

Status CheckLatent(const MlaConfig& mla) {
  constexpr int64_t kMax = 1 << 16;
  const Limit limits[] = {{"kv_lora_rank", mla.kv_lora, kMax},
                          {"qk_nope_head_dim", mla.nope, kMax},
                          {"qk_rope_head_dim", mla.rope, kMax},
                          {"v_head_dim", mla.v_dim, kMax}};
  for (const Limit& limit : limits) {
    if (limit.value <= 0 || limit.value > limit.max) {
      return Err(ErrorCode::kInvalidFile, "{} is {}, must be 1 to {}", limit.name, limit.value,
                 limit.max);
    }
  }
  if (mla.q_lora < 0 || mla.q_lora > kMax) {
    return Err(ErrorCode::kInvalidFile, "q_lora_rank is {}, must be 0 to {}", mla.q_lora, kMax);
  }
  return {};
}

}  // namespace

Status ValidateConfig(const ModelConfig& c) {
  // Far above any model, far below what would overflow a product of three.
  constexpr int64_t kMaxDim = int64_t{1} << 20;
  const Limit limits[] = {
      {"number of layers", c.n_layers, 4096},
      {"embedding length", c.dim, kMaxDim},
      {"feed-forward length", c.ffn_dim, kMaxDim},
      {"number of heads", c.n_heads, 4096},
      {"number of KV heads", c.n_kv_heads, 4096},
      {"head_dim", c.head_dim, 65536},
      {"vocabulary size", c.vocab_size, 1 << 24},
      {"context length", c.context_length, int64_t{1} << 30},
  };
  for (const Limit& limit : limits) {
    if (limit.value <= 0 || limit.value > limit.max) {
      return Err(ErrorCode::kInvalidFile, "{} is {}, must be 1 to {}", limit.name, limit.value,
                 limit.max);
    }
  }
  if (c.n_heads % c.n_kv_heads != 0) {
    return Err(ErrorCode::kInvalidFile, "{} heads cannot share {} KV heads evenly", c.n_heads,
               c.n_kv_heads);
  }
  if (!(c.norm_eps >= 0) || !std::isfinite(c.norm_eps)) {
    return Err(ErrorCode::kInvalidFile, "norm epsilon is {}, must not be negative", c.norm_eps);
  }
  if (!(c.attn_scale > 0) || !std::isfinite(c.attn_scale)) {
    return Err(ErrorCode::kInvalidFile, "attention scale is {}, must be positive", c.attn_scale);
  }
  for (const double factor : {c.embed_scale, c.residual_scale, c.logit_scale}) {
    if (!std::isfinite(factor)) {
      return Err(ErrorCode::kInvalidFile, "a factor of the model is {}", factor);
    }
  }
  if (c.position_rows > 0 && c.context_length > c.position_rows - c.position_offset) {
    return Err(ErrorCode::kInvalidFile, "{} positions are learned, the context length is {}",
               c.position_rows - c.position_offset, c.context_length);
  }
  if (static_cast<int64_t>(c.layers.size()) != c.n_layers) {
    return Err(ErrorCode::kInvalidFile, "{} layers are described, the model has {}",
               c.layers.size(), c.n_layers);
  }
  bool experts = false;
  for (int64_t i = 0; i < c.n_layers; ++i) {
    experts = experts || c.layers[static_cast<size_t>(i)].experts;
    const LayerConfig& layer = c.layers[static_cast<size_t>(i)];
    if (layer.window < 0 || layer.window > (int64_t{1} << 30)) {
      return Err(ErrorCode::kInvalidFile, "layer {}: sliding window is {}", i, layer.window);
    }
    if (layer.use_rope) LUCID_RETURN_IF_ERROR(CheckRope(layer.rope, c.head_dim, i));
  }
  if (experts) LUCID_RETURN_IF_ERROR(CheckExperts(c.moe));
  if (c.mla.kv_lora != 0) LUCID_RETURN_IF_ERROR(CheckLatent(c.mla));
  return {};
}

const RopeSpec* LengthDependentRope(const ModelConfig& c) {
  for (const LayerConfig& layer : c.layers) {
    if (layer.use_rope && layer.rope.by_length()) return &layer.rope;
  }
  return nullptr;
}

Status OverrideRope(ModelConfig& c, const RopeOverrides& overrides) {
  if (overrides == RopeOverrides()) return {};
  const LayerConfig* from = nullptr;
  for (const LayerConfig& layer : c.layers) {
    if (!layer.use_rope) continue;
    if (from == nullptr || (from->window > 0 && layer.window == 0)) from = &layer;
  }
  if (from == nullptr) {
    return Err(
        ErrorCode::kInvalidArgument,
        "a model of architecture {} does not rotate positions: no rope or yarn option applies",
        c.arch);
  }
  const RopeSpec old = from->rope;
  LUCID_ASSIGN_OR_RETURN(const RopeSpec rope, Override(old, overrides, c.context_length));
  for (LayerConfig& layer : c.layers) {
    if (layer.use_rope && layer.rope == old) layer.rope = rope;
  }
  return {};
}

std::vector<std::string> DescribePositions(const ModelConfig& c) {
  std::vector<std::string> lines;
  if (c.position_rows > 0) {
    lines.push_back(fmt::format("learned, {} positions", c.position_rows - c.position_offset));
  }
  if (c.alibi_max_bias > 0)
    lines.push_back(fmt::format("ALiBi, largest bias {}", c.alibi_max_bias));
  std::vector<std::pair<std::string, int64_t>> ropes;  // and how many layers have it
  int64_t none = 0;
  for (const LayerConfig& layer : c.layers) {
    if (!layer.use_rope) {
      ++none;
      continue;
    }
    std::string text = "rope, " + Describe(layer.rope, c.head_dim);
    const auto known = std::find_if(ropes.begin(), ropes.end(),
                                    [&](const auto& rope) { return rope.first == text; });
    if (known != ropes.end()) {
      ++known->second;
    } else {
      ropes.emplace_back(std::move(text), 1);
    }
  }
  const auto of_layers = [&](int64_t n) {
    return n == c.n_layers ? std::string() : fmt::format(" ({} of {} layers)", n, c.n_layers);
  };
  for (const auto& [text, n] : ropes) lines.push_back(text + of_layers(n));
  if (!ropes.empty() && none > 0) lines.push_back("none" + of_layers(none));
  return lines;
}

}  // namespace lucid
