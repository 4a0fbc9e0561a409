// The kernels of one instruction set. Included last by isa_<name>.cc, which has defined LUCID_ISA
// and included its vec_<name>.h; ops without a row here (embed, gather_rows) only move memory and
// run on the reference kernels.
#pragma once

#include "kernels/cpu/attention-inl.h"
#include "kernels/cpu/elementwise-inl.h"
#include "kernels/cpu/experts_plain-inl.h"
#include "kernels/cpu/kv-inl.h"
#include "kernels/cpu/linear-inl.h"
#include "kernels/cpu/mla-inl.h"
#include "kernels/cpu/norm-inl.h"
#include "kernels/cpu/rope-inl.h"
#include "kernels/table.h"

namespace lucid::LUCID_ISA {
namespace {

const char* RefuseWeights(const LinearArgs& a) {
  if (a.packed != nullptr) return "wants weights as they lie in the file";
  return a.w.rank == 2 ? nullptr : "wants a weight of two dimensions";
}
const char* RefuseLinear(const void* args) {
  return RefuseWeights(*static_cast<const LinearArgs*>(args));
}
const char* RefuseLinearGroup(const void* args) {
  const auto& a = *static_cast<const LinearGroupArgs*>(args);
  for (int32_t i = 0; i < a.count; ++i) {
    if (const char* reason = RefuseWeights(a.linear[i])) return reason;
  }
  return nullptr;
}
const char* RefuseGluLinear(const void* args) {
  const auto& a = *static_cast<const GluLinearArgs*>(args);
  const char* reason = RefuseWeights(a.gate);
  return reason != nullptr ? reason : RefuseWeights(a.up);
}

}  // namespace
}  // namespace lucid::LUCID_ISA

// Rows of a Kernel array; `isa` is a string literal, since names are constants.
#define LUCID_CPU_KERNELS(isa)                                                                    \
  {KernelOp::kRmsNorm, "rms_norm." isa, RmsNorm},                                                 \
      {KernelOp::kLayerNorm, "layer_norm." isa, LayerNorm},                                       \
      {KernelOp::kAddRmsNorm, "add_rms_norm." isa, AddRmsNorm},                                   \
      {KernelOp::kLinear, "linear." isa, Linear, LinearScratch, RefuseLinear},                    \
      {KernelOp::kLinearGroup, "linear_group." isa, LinearGroup, LinearGroupScratch,              \
       RefuseLinearGroup},                                                                        \
      {KernelOp::kGlu, "glu." isa, Glu, nullptr, RefuseGlu},                                      \
      {KernelOp::kActivate, "activate." isa, Activate}, {KernelOp::kClamp, "clamp." isa, Clamp},  \
      {KernelOp::kGluLinear, "glu_linear." isa, GluLinear, GluLinearScratch, RefuseGluLinear},    \
      {KernelOp::kRope, "rope." isa, Rope, RopeScratch},                                          \
      {KernelOp::kNormRope, "norm_rope." isa, NormRope, NormRopeScratch},                         \
      {KernelOp::kKvStore, "kv_store." isa, KvStore, KvStoreScratch},                             \
      {KernelOp::kAttention, "attention." isa, Attention,                                         \
       AttentionScratch,     nullptr,          AttentionShared},                                  \
      {KernelOp::kAdd, "add." isa, Add}, {KernelOp::kScale, "scale." isa, Scale},                 \
      {KernelOp::kSoftcap, "softcap." isa, Softcap}, LUCID_EXPERT_KERNELS(PlainExperts, "", isa), \
      {KernelOp::kMixExperts, "mix_experts." isa, MixExperts}, {                                  \
    KernelOp::kMlaAttention, "mla_attention." isa, MlaAttention, MlaAttentionScratch              \
  }
