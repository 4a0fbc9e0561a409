// Rotary position embedding (Su et al. 2021, arXiv 2104.09864, section 3.4.2). See reference.h.
//
// The angle is rounded to float32 before its cosine is taken, as the Hugging Face models do it: at
// position p the two ways differ by about 1e-7 * p, and what models were trained and tested with is
// the float32 one.
#include <cmath>

#include "kernels/reference/reference.h"
#include "kernels/rope_length.h"
#include "kernels/split.h"

namespace lucid::reference {

void RotateHead(const RopeArgs& a, const StepView& step, int64_t token, const float* x, float* y) {
  const auto position = static_cast<float>(step.positions[token]);
  const int32_t length = RopeLength(step, token);
  const int64_t half = a.rotary_dim / 2;
  const bool interleaved = a.style == RopeStyle::kInterleaved;
  for (int64_t i = 0; i < half; ++i) {
    const float angle = position * RopeFrequency(a, length, i);
    const auto c = static_cast<float>(std::cos(static_cast<double>(angle)) * a.attn_factor);
    const auto s = static_cast<float>(std::sin(static_cast<double>(angle)) * a.attn_factor);
    const int64_t first = a.first + (interleaved ? 2 * i : i);
    const int64_t second = a.first + (interleaved ? 2 * i + 1 : i + half);
    const float x0 = x[first];
    const float x1 = x[second];
    y[first] = x0 * c - x1 * s;
    y[second] = x1 * c + x0 * s;
  }
  for (int64_t i = 0; i < a.first; ++i) y[i] = x[i];
  for (int64_t i = a.first + a.rotary_dim; i < a.head_dim; ++i) y[i] = x[i];
}

void Rope(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const RopeArgs*>(args);
  const Share share = ShareOf(step.n_tokens * a.n_heads, 1, thread);
  for (int64_t i = share.begin; i < share.end; ++i) {
    RotateHead(a, step, i / a.n_heads, a.x + i * a.head_dim, a.y + i * a.head_dim);
  }
}

void NormRope(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const NormRopeArgs*>(args);
  const RopeArgs& rope = a.rope;
  const Share share = ShareOf(step.n_tokens * rope.n_heads, 1, thread);
  for (int64_t i = share.begin; i < share.end; ++i) {
    float* y = rope.y + i * rope.head_dim;
    NormalizeGroup(a.norm.x + i * rope.head_dim, a.norm.weight, y, rope.head_dim, a.norm.eps);
    RotateHead(rope, step, i / rope.n_heads, y, y);
  }
}

}  // namespace lucid::reference
