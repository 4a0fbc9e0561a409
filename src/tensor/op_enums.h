// The variants of ops that both the plan (what a model says) and the kernels (what runs) must name.
#pragma once

#include <cstdint>
#include <string_view>

namespace lucid {

enum class Activation : int8_t { kSilu, kGeluTanh, kGeluErf, kRelu, kSigmoid };

enum class RopeStyle : int8_t {
  kHalfSplit,    // pairs (i, i + rot/2), as Hugging Face checkpoints store q and k
  kInterleaved,  // pairs (2i, 2i + 1), as GGUF `llama` files store them
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
    case Activation::kRelu:
      return "relu";
    case Activation::kSigmoid:
      return "sigmoid";
  }
  return "?";
}

constexpr std::string_view Name(RopeStyle style) {
  return style == RopeStyle::kHalfSplit ? "half_split" : "interleaved";
}

}  // namespace lucid
