// The reference kernels: the plainest float32 definition of every op, the yardstick of all other
// kernels and the executor behind `--isa reference`.
//
// Sums are kept in double, so a result is right to the last float32 digit or so whatever the order.
// Work is split over threads by rows or heads only, hence threads never change a result. One file
// per family; the table is in table.cc.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/args.h"

namespace lucid::reference {

void Embed(const void* args, const StepView& step, const ThreadSlot& thread);        // embed.cc
void GatherRows(const void* args, const StepView& step, const ThreadSlot& thread);   // embed.cc
void RmsNorm(const void* args, const StepView& step, const ThreadSlot& thread);      // norm.cc
void LayerNorm(const void* args, const StepView& step, const ThreadSlot& thread);    // norm.cc
void AddRmsNorm(const void* args, const StepView& step, const ThreadSlot& thread);   // norm.cc
void Linear(const void* args, const StepView& step, const ThreadSlot& thread);       // linear.cc
void LinearGroup(const void* args, const StepView& step, const ThreadSlot& thread);  // linear.cc
void GluLinear(const void* args, const StepView& step, const ThreadSlot& thread);    // linear.cc
void Rope(const void* args, const StepView& step, const ThreadSlot& thread);         // rope.cc
void NormRope(const void* args, const StepView& step, const ThreadSlot& thread);     // rope.cc
void KvStore(const void* args, const StepView& step, const ThreadSlot& thread);      // kv.cc
void Attention(const void* args, const StepView& step, const ThreadSlot& thread);    // attention.cc
void Glu(const void* args, const StepView& step, const ThreadSlot& thread);  // elementwise.cc
void Activate(const void* args, const StepView& step, const ThreadSlot& thread);
void Clamp(const void* args, const StepView& step, const ThreadSlot& thread);
void Add(const void* args, const StepView& step, const ThreadSlot& thread);        // elementwise.cc
void Scale(const void* args, const StepView& step, const ThreadSlot& thread);      // elementwise.cc
void Softcap(const void* args, const StepView& step, const ThreadSlot& thread);    // elementwise.cc
void Route(const void* args, const StepView& step, const ThreadSlot& thread);      // experts.cc
void ExpertGlu(const void* args, const StepView& step, const ThreadSlot& thread);  // experts.cc
void ExpertLinear(const void* args, const StepView& step, const ThreadSlot& thread);  // experts.cc
void MixExperts(const void* args, const StepView& step, const ThreadSlot& thread);    // experts.cc
void Concat(const void* args, const StepView& step, const ThreadSlot& thread);        // mla.cc
void MlaAttention(const void* args, const StepView& step, const ThreadSlot& thread);  // mla.cc
void ByPhase(const void* args, const StepView& step, const ThreadSlot& thread);       // mla.cc

// The softmax weights of one query head of a token: of the keys at places first, first + 1, ... up
// to the token's own, and what the head's sink takes of the sum (0 without one). `weights` has a
// number for each of these keys, `scratch` the bytes that the kernel itself wants
// (AttentionScratch, MlaAttentionScratch).
struct HeadWeights {
  int64_t first = 0;
  int64_t count = 0;
  float sink = 0;
};
// Which keys that are.
HeadWeights SeenKeys(const AttentionArgs& args, const StepView& step, int64_t token);
HeadWeights SeenKeys(const MlaArgs& args, const StepView& step, int64_t token);
HeadWeights AttentionWeights(const AttentionArgs& args, const StepView& step, int64_t token,
                             int64_t head, std::byte* scratch, float* weights);
HeadWeights AttentionWeights(const MlaArgs& args, const StepView& step, int64_t token, int64_t head,
                             std::byte* scratch, float* weights);

size_t LinearScratch(const void* args, int64_t max_rows);
size_t LinearGroupScratch(const void* args, int64_t max_rows);
size_t GluLinearScratch(const void* args, int64_t max_rows);
size_t RouteScratch(const void* args, int64_t max_rows);
size_t ExpertGluScratch(const void* args, int64_t max_rows);
size_t ExpertLinearScratch(const void* args, int64_t max_rows);
size_t MlaAttentionScratch(const void* args, int64_t max_rows);
size_t KvStoreScratch(const void* args, int64_t max_rows);
size_t AttentionScratch(const void* args, int64_t max_rows);

// One group of `dim` values: y = x * rsqrt(mean(x^2) + eps) * weight. In place allowed.
void NormalizeGroup(const float* x, const float* weight, float* y, int64_t dim, float eps);
// One head of a token, see RopeArgs. In place allowed.
void RotateHead(const RopeArgs& args, const StepView& step, int64_t token, const float* x,
                float* y);
float Activate(Activation act, float x);
// The gated unit of one pair.
float GluOne(const GluRule& glu, float gate, float up);
// a . b in double.
double Dot(const float* a, const float* b, int64_t n);
// cap * tanh(x / cap).
float SoftcapOne(float x, float cap);

}  // namespace lucid::reference
