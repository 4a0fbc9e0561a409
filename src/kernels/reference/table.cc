// The table of the reference kernels: an entry for every op, none of which refuses anything.
#include "kernels/table.h"
#include "kernels/reference/reference.h"

namespace lucid {
namespace {

constexpr Kernel kKernels[] = {
    {KernelOp::kEmbed, "embed.reference", reference::Embed},
    {KernelOp::kRmsNorm, "rms_norm.reference", reference::RmsNorm},
    {KernelOp::kLayerNorm, "layer_norm.reference", reference::LayerNorm},
    {KernelOp::kAddRmsNorm, "add_rms_norm.reference", reference::AddRmsNorm},
    {KernelOp::kLinear, "linear.reference", reference::Linear, reference::LinearScratch},
    {KernelOp::kLinearGroup, "linear_group.reference", reference::LinearGroup,
     reference::LinearGroupScratch},
    {KernelOp::kGlu, "glu.reference", reference::Glu},
    {KernelOp::kActivate, "activate.reference", reference::Activate},
    {KernelOp::kClamp, "clamp.reference", reference::Clamp},
    {KernelOp::kGluLinear, "glu_linear.reference", reference::GluLinear,
     reference::GluLinearScratch},
    {KernelOp::kRope, "rope.reference", reference::Rope},
    {KernelOp::kNormRope, "norm_rope.reference", reference::NormRope},
    {KernelOp::kKvStore, "kv_store.reference", reference::KvStore, reference::KvStoreScratch},
    {KernelOp::kAttention, "attention.reference", reference::Attention,
     reference::AttentionScratch},
    {KernelOp::kAdd, "add.reference", reference::Add},
    {KernelOp::kScale, "scale.reference", reference::Scale},
    {KernelOp::kSoftcap, "softcap.reference", reference::Softcap},
    {KernelOp::kGatherRows, "gather_rows.reference", reference::GatherRows},
    {KernelOp::kRoute, "route.reference", reference::Route, reference::RouteScratch},
    {KernelOp::kExpertGlu, "expert_glu.reference", reference::ExpertGlu,
     reference::ExpertGluScratch},
    {KernelOp::kExpertLinear, "expert_linear.reference", reference::ExpertLinear,
     reference::ExpertLinearScratch},
    {KernelOp::kMixExperts, "mix_experts.reference", reference::MixExperts},
    {KernelOp::kConcat, "concat.reference", reference::Concat},
    {KernelOp::kMlaAttention, "mla_attention.reference", reference::MlaAttention,
     reference::MlaAttentionScratch},
    {KernelOp::kByPhase, "by_phase.reference", reference::ByPhase},
};
constexpr KernelTable kTable = {"reference", kKernels};

}  // namespace

const KernelTable& ReferenceKernels() {
  return kTable;
}

}  // namespace lucid
