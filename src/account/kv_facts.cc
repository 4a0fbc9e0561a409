#include "account/kv_facts.h"

#include <algorithm>

namespace lucid {
namespace {

// The heads and numbers a query meets in one layer.
struct LayerHeads {
  int64_t heads = 0;
  int64_t key = 0,
          value = 0;  // numbers of a head's key and value, as multi-head attention has them
  bool latent = false;
};

// By cache layer. Latent attention has an op for each of its forms; the expanded one shows the
// heads as they are without the latent vector.
std::vector<LayerHeads> HeadsOf(const Plan& plan) {
  std::vector<LayerHeads> layers(plan.kv_layers.size());
  for (const Op& op : plan.ops) {
    if (op.kind != OpKind::kAttention && op.kind != OpKind::kMlaAttention) continue;
    const auto i = static_cast<size_t>(plan.Info(op.inputs[1]).kv_layer);
    if (op.kind == OpKind::kMlaAttention) {
      const auto& attrs = std::get<MlaAttrs>(op.attrs);
      layers[i] = {.heads = attrs.n_heads,
                   .key = plan.Info(op.inputs[2]).shape[2].size + attrs.rope_dim,
                   .value = plan.Info(op.inputs[3]).shape[1].size,
                   .latent = true};
    } else if (!layers[i].latent) {
      const KvSpec& spec = plan.kv_layers[i];
      layers[i] = {.heads = std::get<AttentionAttrs>(op.attrs).n_heads,
                   .key = spec.k_dim,
                   .value = spec.v_dim};
    }
  }
  return layers;
}

std::string KindOf(const LayerHeads& layer, const KvSpec& spec) {
  if (layer.latent) return "MLA";
  return spec.heads == layer.heads ? "MHA" : spec.heads == 1 ? "MQA" : "GQA";
}

}  // namespace

Result<KvFacts> KvFactsOf(const Plan& plan, const KvOptions& options, int64_t context) {
  LUCID_ASSIGN_OR_RETURN(const KvLayout layout, KvLayout::Make(plan.kv_layers, options));
  KvFacts facts;
  facts.layers = std::ssize(plan.kv_layers);
  facts.bytes_per_token = layout.BytesPerToken();
  facts.sequence_bytes = layout.BytesFor(context);
  const std::vector<LayerHeads> heads = HeadsOf(plan);
  std::vector<KvSpec> whole = plan.kv_layers;
  for (size_t i = 0; i < whole.size(); ++i) {
    KvSpec& spec = whole[i];
    if (spec.window > 0) ++facts.windowed_layers;
    spec.window = 0;
    facts.numbers_per_token += spec.heads * (spec.k_dim + spec.v_dim);
    facts.mha_numbers_per_token += heads[i].heads * (heads[i].key + heads[i].value);
    const std::string kind = KindOf(heads[i], spec);
    if (facts.kind.find(kind) == std::string::npos) {
      facts.kind += (facts.kind.empty() ? "" : ", ") + kind;
    }
  }
  LUCID_ASSIGN_OR_RETURN(const KvLayout all, KvLayout::Make(whole, options));
  facts.unwindowed_bytes = all.BytesFor(context);
  return facts;
}

}  // namespace lucid
