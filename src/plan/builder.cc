#include "plan/builder.h"

#include <utility>

#include "base/check.h"
#include "plan/op_table.h"

namespace lucid {
Value LayerScope::Vec(std::string_view name, Extent n) const {
  return builder_.Vec(fmt::format("blk.{}.{}", layer_, name), n);
}

Value LayerScope::Mat(std::string_view name, Extent n_out, Extent n_in) const {
  return builder_.Mat(fmt::format("blk.{}.{}", layer_, name), n_out, n_in);
}

Value LayerScope::Stack(std::string_view name, Extent n, Extent n_out, Extent n_in) const {
  return builder_.Stack(fmt::format("blk.{}.{}", layer_, name), n, n_out, n_in);
}

Builder::Builder(std::string arch) {
  plan_.arch = std::move(arch);
  const auto add = [this](BatchInput input, const char* name, Shape shape) {
    ValueInfo info;
    info.kind = ValueKind::kBatch;
    info.name = name;
    info.shape = shape;
    const Value v = NewValue(std::move(info));
    LUCID_CHECK(v == Plan::Batch(input));
  };
  add(BatchInput::kTokens, "tokens", {Symbol::kTokens});
  add(BatchInput::kPositions, "positions", {Symbol::kTokens});
  add(BatchInput::kSequence, "sequence", {Symbol::kTokens});
  add(BatchInput::kBlockTables, "block_tables", {Symbol::kSequences, Symbol::kContext});
  add(BatchInput::kOutputRows, "output_rows", {Symbol::kOutputs});
}

Value Builder::NewValue(ValueInfo info) {
  plan_.values.push_back(std::move(info));
  return Value{static_cast<int32_t>(plan_.values.size() - 1)};
}

Value Builder::Vec(std::string_view name, Extent n) {
  return Weight(name, {n.size}, {n});
}

Value Builder::Mat(std::string_view name, Extent n_out, Extent n_in) {
  return Weight(name, {n_out.size, n_in.size}, {n_out, n_in});
}

Value Builder::Stack(std::string_view name, Extent n, Extent n_out, Extent n_in) {
  return Weight(name, {n.size, n_out.size, n_in.size}, {n, n_out, n_in});
}

Value Builder::Weight(std::string_view name, const Shape& shape, std::vector<Extent> extents) {
  const auto [known, is_new] = weights_.try_emplace(std::string(name));
  if (!is_new) {
    LUCID_CHECK(plan_.Info(known->second).shape == shape, "weight {} is used with two shapes",
                name);
    return known->second;
  }
  ValueInfo info;
  info.kind = ValueKind::kWeight;
  info.name = std::string(name);
  info.shape = shape;
  info.extents = std::move(extents);
  return known->second = NewValue(std::move(info));
}

std::vector<Value> Builder::EmitAll(OpKind kind, std::string name, std::vector<Value> inputs,
                                    OpAttrs attrs, Where where) {
  Op op{.kind = kind,
        .name = name,
        .inputs = std::move(inputs),
        .outputs = {},
        .attrs = std::move(attrs),
        .where = where};
  Result<std::vector<Shape>> shapes = Info(kind).infer(plan_, op);
  LUCID_CHECK(shapes.has_value(), "{} (emitted at {}:{})", shapes.error().message,
              where.file_name(), where.line());
  for (const Shape& shape : *shapes) {
    ValueInfo result;
    result.name = name;
    result.shape = shape;
    result.producer = static_cast<int32_t>(plan_.ops.size());
    if (kind == OpKind::kKvStore) {  // a new version of the cache it writes to
      const ValueInfo& kv = plan_.Info(op.inputs[0]);
      result.kind = ValueKind::kKv;
      result.kv_layer = kv.kv_layer;
    }
    op.outputs.push_back(NewValue(std::move(result)));
  }
  std::vector<Value> outputs = op.outputs;
  plan_.ops.push_back(std::move(op));
  return outputs;
}

Value Builder::Emit(OpKind kind, std::string name, std::vector<Value> inputs, OpAttrs attrs,
                    Where where) {
  const std::vector<Value> outputs =
      EmitAll(kind, std::move(name), std::move(inputs), std::move(attrs), where);
  LUCID_CHECK(outputs.size() == 1, "an op of one result");
  return outputs.front();
}

Value Builder::Embed(Value table, double scale, Where where) {
  return Emit(OpKind::kEmbed, plan_.Info(table).name, {table, Plan::Batch(BatchInput::kTokens)},
              EmbedAttrs{.scale = static_cast<float>(scale)}, where);
}

Value Builder::EmbedPositions(Value table, int64_t offset, Where where) {
  return Emit(OpKind::kEmbed, plan_.Info(table).name, {table, Plan::Batch(BatchInput::kPositions)},
              EmbedAttrs{.offset = offset}, where);
}

Value Builder::RmsNorm(Value x, Value weight, double eps, Where where) {
  const ValueInfo& w = plan_.Info(weight);
  return Emit(OpKind::kRmsNorm, w.name, {x, weight},
              NormAttrs{static_cast<float>(eps), w.shape[0].size}, where);
}

Value Builder::LayerNorm(Value x, Value weight, Value bias, int64_t dim, double eps,
                         std::string_view name, Where where) {
  return Emit(OpKind::kLayerNorm, std::string(name), {x, weight, bias},
              NormAttrs{static_cast<float>(eps), dim}, where);
}

Value Builder::Linear(Value x, Value w, Value bias, Where where) {
  return Emit(OpKind::kLinear, plan_.Info(w).name, {x, w, bias}, LinearAttrs{}, where);
}

Value Builder::ExactLinear(Value x, Value w, Value bias, Where where) {
  return Emit(OpKind::kLinear, plan_.Info(w).name, {x, w, bias}, LinearAttrs{.exact = true}, where);
}

Value Builder::Rope(Value x, int64_t head_dim, const RopeSpec& spec, Where where) {
  return Emit(OpKind::kRope, plan_.Info(x).name + ".rope", {x, Plan::Batch(BatchInput::kPositions)},
              RopeAttrs{spec, head_dim}, where);
}

Value Builder::RopePart(Value x, int64_t head_dim, int64_t first, const RopeSpec& spec,
                        Where where) {
  return Emit(OpKind::kRope, plan_.Info(x).name + ".rope", {x, Plan::Batch(BatchInput::kPositions)},
              RopeAttrs{spec, head_dim, first}, where);
}

Value Builder::Kv(const KvSpec& spec, std::string_view name) {
  ValueInfo info;
  info.kind = ValueKind::kKv;
  info.name = std::string(name);
  info.shape = {Symbol::kSequences, Symbol::kContext, spec.heads, spec.k_dim + spec.v_dim};
  info.kv_layer = static_cast<int32_t>(plan_.kv_layers.size());
  plan_.kv_layers.push_back(spec);
  return NewValue(std::move(info));
}

Value Builder::KvStore(Value kv, Value k, Value v, Where where) {
  return Emit(OpKind::kKvStore, plan_.Info(kv).name + ".store",
              {kv, k, v, Plan::Batch(BatchInput::kPositions), Plan::Batch(BatchInput::kSequence),
               Plan::Batch(BatchInput::kBlockTables)},
              KvStoreAttrs{}, where);
}

Value Builder::Attention(Value q, Value kv, const AttentionOptions& options, Where where) {
  const ValueInfo& cache = plan_.Info(kv);
  const KvSpec& spec = plan_.kv_layers[static_cast<size_t>(cache.kv_layer)];
  AttentionAttrs attrs;
  attrs.scale = static_cast<float>(options.scale);
  attrs.window = static_cast<int32_t>(options.window);
  attrs.softcap = static_cast<float>(options.softcap);
  attrs.alibi_max_bias = static_cast<float>(options.alibi_max_bias);
  attrs.alibi_factor = static_cast<float>(options.alibi_factor);
  attrs.n_heads = plan_.Info(q).shape.Width() / spec.k_dim;
  attrs.v_in_k = options.v_in_k;
  attrs.generated_only = options.generated_only;
  std::string name = cache.name;
  if (const size_t dot = name.rfind('.'); dot != std::string::npos)
    name.resize(dot);  // "blk.0.kv.store" -> "blk.0.kv"
  if (const size_t dot = name.rfind('.'); dot != std::string::npos) name.resize(dot);
  std::vector<Value> inputs = {q, kv, Plan::Batch(BatchInput::kPositions),
                               Plan::Batch(BatchInput::kSequence),
                               Plan::Batch(BatchInput::kBlockTables)};
  if (options.sinks.present()) inputs.push_back(options.sinks);
  return Emit(OpKind::kAttention, name + ".attn", std::move(inputs), attrs, where);
}

Value Builder::Add(Value a, Value b, Where where) {
  return Emit(OpKind::kAdd, plan_.Info(b).name + ".add", {a, b}, AddAttrs{}, where);
}

Value Builder::Glu(Value gate, Value up, Activation act, Where where) {
  return Emit(OpKind::kGlu, plan_.Info(gate).name + ".glu", {gate, up}, GluAttrs{act}, where);
}

Value Builder::Activate(Value x, Activation act, Where where) {
  return Emit(OpKind::kActivate, plan_.Info(x).name + ".act", {x}, ActivateAttrs{act}, where);
}

Value Builder::Clamp(Value x, double limit, Where where) {
  return Emit(OpKind::kClamp, plan_.Info(x).name + ".clamp", {x},
              ClampAttrs{static_cast<float>(limit)}, where);
}

Value Builder::Scale(Value x, double factor, Where where) {
  return Emit(OpKind::kScale, plan_.Info(x).name + ".scale", {x},
              ScaleAttrs{static_cast<float>(factor)}, where);
}

Value Builder::Softcap(Value x, double cap, Where where) {
  return Emit(OpKind::kSoftcap, plan_.Info(x).name + ".softcap", {x},
              SoftcapAttrs{static_cast<float>(cap)}, where);
}

Value Builder::GatherRows(Value x, Where where) {
  return Emit(OpKind::kGatherRows, plan_.Info(x).name + ".rows",
              {x, Plan::Batch(BatchInput::kOutputRows)}, GatherRowsAttrs{}, where);
}

Routes Builder::Route(Value logits, Value bias, const RoutingRule& rule, Where where) {
  const std::string name = plan_.Info(logits).name + ".route";
  const std::vector<Value> outputs =
      EmitAll(OpKind::kRoute, name, {logits, bias}, RouteAttrs{rule}, where);
  plan_.values[static_cast<size_t>(outputs[0].id)].name = name + ".experts";
  plan_.values[static_cast<size_t>(outputs[1].id)].name = name + ".weights";
  return {outputs[0], outputs[1]};
}

Value Builder::ExpertGlu(Value x, Value experts, const ExpertWeights& gate, const ExpertWeights& up,
                         const GluRule& glu, Where where) {
  return Emit(OpKind::kExpertGlu, plan_.Info(gate.w).name + ".glu",
              {x, experts, gate.w, gate.bias, up.w, up.bias}, ExpertGluAttrs{glu}, where);
}

Value Builder::ExpertLinear(Value x, Value experts, const ExpertWeights& w, Where where) {
  return Emit(OpKind::kExpertLinear, plan_.Info(w.w).name, {x, experts, w.w, w.bias},
              ExpertLinearAttrs{}, where);
}

Value Builder::MixExperts(Value x, Value weights, Where where) {
  return Emit(OpKind::kMixExperts, plan_.Info(x).name + ".mix", {x, weights}, MixExpertsAttrs{},
              where);
}

Value Builder::HeadLinear(Value x, Value w, bool generated_only, Where where) {
  return Emit(OpKind::kHeadLinear, plan_.Info(w).name, {x, w}, HeadLinearAttrs{generated_only},
              where);
}

Value Builder::Concat(Value a, Value b, const ConcatAttrs& attrs, Where where) {
  return Emit(OpKind::kConcat, plan_.Info(a).name + ".concat", {a, b}, attrs, where);
}

Value Builder::MlaAttention(Value q, Value kv, Value w_k, Value w_v, const MlaAttrs& attrs,
                            Where where) {
  return Emit(OpKind::kMlaAttention, plan_.Info(q).name + ".mla",
              {q, kv, w_k, w_v, Plan::Batch(BatchInput::kPositions),
               Plan::Batch(BatchInput::kSequence), Plan::Batch(BatchInput::kBlockTables)},
              attrs, where);
}

Value Builder::ByPhase(Value prompt, Value generated, Where where) {
  return Emit(OpKind::kByPhase, plan_.Info(prompt).name + ".by_phase", {prompt, generated},
              ByPhaseAttrs{}, where);
}

Value Builder::Named(Value v, std::string name) {
  ValueInfo& info = plan_.values[static_cast<size_t>(v.id)];
  LUCID_CHECK(info.producer >= 0, "only results of ops can be named");
  plan_.ops[static_cast<size_t>(info.producer)].name = name;
  info.name = std::move(name);
  return v;
}

Plan Builder::Finish(Value logits) {
  plan_.logits = Named(logits, "logits");
  return std::move(plan_);
}

}  // namespace lucid
