// The variants of ops that both the plan (what a model says) and the kernels (what runs) must name.
#pragma once

#include <cstdint>
#include <string_view>

namespace lucid {

enum class Activation : int8_t {
  kSilu,
  kGeluTanh,
  kGeluErf,
  kGeluQuick,  // x sigmoid(1.702 x)
  kRelu,
  kReluSquared,
  kSigmoid,
};

// A gated unit: act(gate) * up.
struct GluRule {
  Activation act = Activation::kSilu;
  // Above 0: gate is at most this, up lies between it and its negative, and 1 is added to up
  // (GPT-OSS).
  float limit = 0;
};

enum class RopeStyle : int8_t {
  kHalfSplit,    // pairs (i, i + rot/2), as Hugging Face checkpoints store q and k
  kInterleaved,  // pairs (2i, 2i + 1), as GGUF `llama` files store them
};

// How a router's logits become the weights of a token's experts.
enum class RouteScore : int8_t {
  kSoftmax,        // over all experts, then the best are chosen
  kSigmoid,        // of each logit alone
  kChosenSoftmax,  // the best are chosen by logit, softmax over them only
};

// Which experts a token goes to, and how much each counts. Choice and weights: Fedus et al. 2022
// (arXiv 2101.03961); groups: DeepSeek-V2 (arXiv 2405.04434); bias for the choice only: DeepSeek-V3
// (arXiv 2412.19437).
struct RoutingRule {
  int32_t n_used = 1;  // experts of a token
  RouteScore score = RouteScore::kSoftmax;
  // Experts lie in n_groups groups of equal size; only those of the best groups_used are
  // candidates. A group counts as its best score, or with `group_pairs` as the sum of its two best.
  int32_t n_groups = 1;
  int32_t groups_used = 1;
  bool group_pairs = false;
  bool normalise = false;  // weights are divided by their sum
  float scale = 1.0f;      // and multiplied by this
};

// How a token came to be: it was given, or the model made it. The numerics of a token may depend on
// its phase, never on what else is computed beside it; a recomputed token keeps its phase.
enum class Phase : int8_t { kPrompt, kGenerated };

constexpr std::string_view Name(Activation act) {
  switch (act) {
    case Activation::kSilu:
      return "silu";
    case Activation::kGeluTanh:
      return "gelu_tanh";
    case Activation::kGeluErf:
      return "gelu";
    case Activation::kGeluQuick:
      return "gelu_quick";
    case Activation::kRelu:
      return "relu";
    case Activation::kReluSquared:
      return "relu_squared";
    case Activation::kSigmoid:
      return "sigmoid";
  }
  return "?";
}

constexpr std::string_view Name(RouteScore score) {
  switch (score) {
    case RouteScore::kSoftmax:
      return "softmax";
    case RouteScore::kSigmoid:
      return "sigmoid";
    case RouteScore::kChosenSoftmax:
      return "chosen_softmax";
  }
  return "?";
}

constexpr std::string_view Name(RopeStyle style) {
  return style == RopeStyle::kHalfSplit ? "half_split" : "interleaved";
}

}  // namespace lucid
