#include "exec/bind.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "kernels/packed.h"

namespace lucid {

namespace {

// Turns one op into its kernel's operation and arguments.
class ArgsMaker {
 public:
  ArgsMaker(const BindContext& context, BoundPlan& bound) : c_(context), bound_(bound) {}

  std::pair<KernelOp, KernelArgs> Make(const Op& op) {
    switch (op.kind) {
      case OpKind::kEmbed:
        return {KernelOp::kEmbed, Embed(op)};
      case OpKind::kRmsNorm:
        return {KernelOp::kRmsNorm, RmsNorm(op)};
      case OpKind::kLayerNorm:
        return {KernelOp::kLayerNorm, LayerNorm(op)};
      case OpKind::kLinear:
        return {KernelOp::kLinear, PlainLinear(op)};
      case OpKind::kRope:
        return {KernelOp::kRope, Rope(op)};
      case OpKind::kKvStore:
        return {KernelOp::kKvStore, KvStore(op)};
      case OpKind::kAttention:
        return {KernelOp::kAttention, Attention(op)};
      case OpKind::kAdd:
        return {KernelOp::kAdd, Add(op)};
      case OpKind::kGlu:
        return {KernelOp::kGlu, Glu(op)};
      case OpKind::kActivate:
        return {KernelOp::kActivate, Activate(op)};
      case OpKind::kScale:
        return {KernelOp::kScale, Scale(op)};
      case OpKind::kClamp:
        return {KernelOp::kClamp, Clamp(op)};
      case OpKind::kSoftcap:
        return {KernelOp::kSoftcap, Softcap(op)};
      case OpKind::kGatherRows:
        return {KernelOp::kGatherRows, GatherRows(op)};
      case OpKind::kRoute:
        return {KernelOp::kRoute, Route(op)};
      case OpKind::kExpertGlu:
        return {KernelOp::kExpertGlu, ExpertGlu(op)};
      case OpKind::kExpertLinear:
        return {KernelOp::kExpertLinear, ExpertLinear(op)};
      case OpKind::kMixExperts:
        return {KernelOp::kMixExperts, MixExperts(op)};
      case OpKind::kHeadLinear:
        return {KernelOp::kExpertLinear, HeadLinear(op)};
      case OpKind::kConcat:
        return {KernelOp::kConcat, Concat(op)};
      case OpKind::kMlaAttention:
        return {KernelOp::kMlaAttention, Mla(op)};
      case OpKind::kByPhase:
        return {KernelOp::kByPhase, ByPhase(op)};
      case OpKind::kLinearGroup:
        return {KernelOp::kLinearGroup, LinearGroup(op)};
      case OpKind::kGluLinear:
        return {KernelOp::kGluLinear, GluLinear(op)};
      case OpKind::kAddRmsNorm:
        return {KernelOp::kAddRmsNorm, AddRmsNorm(op)};
      case OpKind::kNormRope:
        return {KernelOp::kNormRope, NormRope(op)};
    }
    LUCID_CHECK(false, "op kind without a kernel");
  }

 private:
  const ValueInfo& Info(Value v) const { return c_.plan.Info(v); }
  int64_t Width(Value v) const { return Info(v).shape.Width(); }
  RowAxis Rows(Value v) const {
    return Info(v).shape[0].symbol == Symbol::kOutputs ? RowAxis::kOutputs : RowAxis::kTokens;
  }
  float* Ptr(Value v) const {
    const int64_t offset = c_.memory.offsets[static_cast<size_t>(v.id)];
    LUCID_CHECK(offset >= 0, "{} has no place in the arena", Info(v).name);
    return reinterpret_cast<float*>(c_.arena + offset);
  }
  const float* Vector(Value v) const { return v.present() ? c_.weights[v].f32() : nullptr; }
  KvView Kv(Value v) const { return c_.kv.Layer(static_cast<size_t>(Info(v).kv_layer)); }

  AddArgs Add(const Op& op) const {
    return {.a = Ptr(op.inputs[0]),
            .b = Ptr(op.inputs[1]),
            .y = Ptr(op.outputs[0]),
            .dim = Width(op.outputs[0]),
            .rows = Rows(op.outputs[0])};
  }

  GluArgs Glu(const Op& op) const {
    return {.gate = Ptr(op.inputs[0]),
            .up = Ptr(op.inputs[1]),
            .y = Ptr(op.outputs[0]),
            .dim = Width(op.outputs[0]),
            .act = std::get<GluAttrs>(op.attrs).act,
            .one_gate = Width(op.inputs[0]) < Width(op.inputs[1]),
            .rows = Rows(op.outputs[0])};
  }

  ActivateArgs Activate(const Op& op) const {
    return {.x = Ptr(op.inputs[0]),
            .y = Ptr(op.outputs[0]),
            .dim = Width(op.outputs[0]),
            .act = std::get<ActivateAttrs>(op.attrs).act,
            .rows = Rows(op.outputs[0])};
  }

  ScaleArgs Scale(const Op& op) const {
    return {.x = Ptr(op.inputs[0]),
            .y = Ptr(op.outputs[0]),
            .dim = Width(op.outputs[0]),
            .factor = std::get<ScaleAttrs>(op.attrs).factor,
            .rows = Rows(op.outputs[0])};
  }

  ClampArgs Clamp(const Op& op) const {
    return {.x = Ptr(op.inputs[0]),
            .y = Ptr(op.outputs[0]),
            .dim = Width(op.outputs[0]),
            .limit = std::get<ClampAttrs>(op.attrs).limit,
            .rows = Rows(op.outputs[0])};
  }

  SoftcapArgs Softcap(const Op& op) const {
    return {.x = Ptr(op.inputs[0]),
            .y = Ptr(op.outputs[0]),
            .dim = Width(op.outputs[0]),
            .cap = std::get<SoftcapAttrs>(op.attrs).cap,
            .rows = Rows(op.outputs[0])};
  }

  GatherRowsArgs GatherRows(const Op& op) const {
    return {.x = Ptr(op.inputs[0]), .y = Ptr(op.outputs[0]), .dim = Width(op.outputs[0])};
  }

  RouteArgs Route(const Op& op) const {
    return {.logits = Ptr(op.inputs[0]),
            .bias = Vector(op.inputs[1]),
            .experts = Ptr(op.outputs[0]),
            .weights = Ptr(op.outputs[1]),
            .n_experts = Width(op.inputs[0]),
            .rule = std::get<RouteAttrs>(op.attrs).rule};
  }

  MixExpertsArgs MixExperts(const Op& op) const {
    return {.x = Ptr(op.inputs[0]),
            .weights = Ptr(op.inputs[1]),
            .y = Ptr(op.outputs[0]),
            .n_used = Used(op.inputs[1]),
            .dim = Width(op.outputs[0])};
  }

  ByPhaseArgs ByPhase(const Op& op) const {
    return {.prompt = Ptr(op.inputs[0]),
            .generated = Ptr(op.inputs[1]),
            .y = Ptr(op.outputs[0]),
            .dim = Width(op.outputs[0])};
  }

  EmbedArgs Embed(const Op& op) const {
    const auto& attrs = std::get<EmbedAttrs>(op.attrs);
    const bool by_position = op.inputs[1] == Plan::Batch(BatchInput::kPositions);
    return {.table = c_.weights[op.inputs[0]],
            .y = Ptr(op.outputs[0]),
            .scale = attrs.scale,
            .index = by_position ? EmbedIndex::kPositions : EmbedIndex::kTokens,
            .offset = attrs.offset,
            .packed = c_.packed[op.inputs[0]]};
  }

  RmsNormArgs RmsNorm(const Op& op) const {
    const auto& attrs = std::get<NormAttrs>(op.attrs);
    return {.x = Ptr(op.inputs[0]),
            .weight = Vector(op.inputs[1]),
            .y = Ptr(op.outputs[0]),
            .width = Width(op.inputs[0]),
            .dim = attrs.dim,
            .eps = attrs.eps,
            .rows = Rows(op.inputs[0])};
  }

  LayerNormArgs LayerNorm(const Op& op) const {
    const auto& attrs = std::get<NormAttrs>(op.attrs);
    const int64_t width = Width(op.inputs[0]);
    const Value weight = op.inputs[1];
    return {.x = Ptr(op.inputs[0]),
            .weight = Vector(weight),
            .bias = Vector(op.inputs[2]),
            .y = Ptr(op.outputs[0]),
            .width = width,
            .dim = attrs.dim,
            .own_weights = weight.present() && Info(weight).shape[0].size != attrs.dim,
            .eps = attrs.eps,
            .rows = Rows(op.inputs[0])};
  }

  AddRmsNormArgs AddRmsNorm(const Op& op) const {
    const auto& attrs = std::get<NormAttrs>(op.attrs);
    return {.x = Ptr(op.inputs[0]),
            .residual = Ptr(op.inputs[1]),
            .sum = Ptr(op.outputs[0]),
            .weight = Vector(op.inputs[2]),
            .y = Ptr(op.outputs[1]),
            .dim = attrs.dim,
            .eps = attrs.eps,
            .rows = Rows(op.inputs[0])};
  }

  // `y` may be absent: a fused op keeps the product in registers.
  LinearArgs Linear(Value x, Value w, Value bias, Value y) const {
    return {.w = c_.weights[w],
            .bias = Vector(bias),
            .x = Ptr(x),
            .y = y.present() ? Ptr(y) : nullptr,
            .rows = Rows(x),
            .packed = c_.packed[w],
            .error_budget = c_.error_budget,
            .exact = c_.exact};
  }

  LinearArgs PlainLinear(const Op& op) const {
    LinearArgs args = Linear(op.inputs[0], op.inputs[1], op.inputs[2], op.outputs[0]);
    args.exact = args.exact || std::get<LinearAttrs>(op.attrs).exact;
    return args;
  }

  LinearGroupArgs LinearGroup(const Op& op) const {
    LinearGroupArgs group;
    group.count = std::get<LinearGroupAttrs>(op.attrs).count;
    for (int32_t i = 0; i < group.count; ++i) {
      const auto at = static_cast<size_t>(1 + 2 * i);
      group.linear[i] = Linear(op.inputs[0], op.inputs[at], op.inputs[at + 1],
                               op.outputs[static_cast<size_t>(i)]);
    }
    return group;
  }

  GluLinearArgs GluLinear(const Op& op) const {
    return {.gate = Linear(op.inputs[0], op.inputs[1], op.inputs[2], {}),
            .up = Linear(op.inputs[0], op.inputs[3], op.inputs[4], {}),
            .y = Ptr(op.outputs[0]),
            .act = std::get<GluLinearAttrs>(op.attrs).act};
  }

  int64_t Used(Value experts) const { return Info(experts).shape[1].size; }

  ExpertMatrix Experts(Value w, Value bias) const {
    const Tensor& stack = c_.weights[w];
    Tensor one = stack;
    one.rank = 2;
    one.shape = {stack.shape[1], stack.shape[2]};
    return {.w = one,
            .n_experts = stack.shape[0],
            .data = c_.weights.parts(w).data(),
            .bias = Vector(bias),
            .packed = c_.packed[w],
            .packed_bytes = PackedBytes(one),
            .error_budget = c_.error_budget,
            .exact = c_.exact};
  }

  ExpertGluArgs ExpertGlu(const Op& op) const {
    return {.gate = Experts(op.inputs[2], op.inputs[3]),
            .up = Experts(op.inputs[4], op.inputs[5]),
            .x = Ptr(op.inputs[0]),
            .experts = Ptr(op.inputs[1]),
            .y = Ptr(op.outputs[0]),
            .n_used = Used(op.inputs[1]),
            .glu = std::get<ExpertGluAttrs>(op.attrs).glu};
  }

  // Equal tables are kept once.
  const float* Table(std::vector<float> table) {
    for (const std::vector<float>& known : bound_.tables) {
      if (known == table) return known.data();
    }
    return bound_.tables.emplace_back(std::move(table)).data();
  }

  ExpertLinearArgs ExpertLinear(const Op& op) const {
    return {.w = Experts(op.inputs[2], op.inputs[3]),
            .x = Ptr(op.inputs[0]),
            .x_stride = Info(op.inputs[0]).shape[2].size,
            .experts = Ptr(op.inputs[1]),
            .y = Ptr(op.outputs[0]),
            .n_used = Used(op.inputs[1])};
  }

  ExpertLinearArgs HeadLinear(const Op& op) const {
    const int64_t heads = Info(op.inputs[1]).shape[0].size;
    return {.w = Experts(op.inputs[1], {}),
            .x = Ptr(op.inputs[0]),
            .x_stride = Width(op.inputs[0]) / heads,
            .y = Ptr(op.outputs[0]),
            .n_used = heads,
            .generated_only = std::get<HeadLinearAttrs>(op.attrs).generated_only};
  }

  ConcatArgs Concat(const Op& op) const {
    const auto& attrs = std::get<ConcatAttrs>(op.attrs);
    return {.a = Ptr(op.inputs[0]),
            .b = Ptr(op.inputs[1]),
            .y = Ptr(op.outputs[0]),
            .parts = attrs.parts,
            .a_dim = Width(op.inputs[0]) / attrs.parts,
            .b_stride = Width(op.inputs[1]) / attrs.parts,
            .b_dim = attrs.b_dim,
            .generated_only = attrs.generated_only};
  }

  MlaArgs Mla(const Op& op) const {
    const auto& attrs = std::get<MlaAttrs>(op.attrs);
    return {.kv = Kv(op.inputs[1]),
            .q = Ptr(op.inputs[0]),
            .w_k = Experts(op.inputs[2], {}),
            .w_v = Experts(op.inputs[3], {}),
            .y = Ptr(op.outputs[0]),
            .n_heads = attrs.n_heads,
            .nope = Info(op.inputs[2]).shape[2].size,
            .rope = attrs.rope_dim,
            .scale = attrs.scale};
  }

  const float* RopeTable(const RopeSpec& spec, int64_t length = 0) {
    return Table(InverseFrequencies(spec, length));
  }

  // Frequencies that depend on the sequence's length are those of `original_context` up to there.
  RopeStretch Stretch(const RopeSpec& spec) {
    if (!spec.by_length()) return {};
    const auto limit = static_cast<int32_t>(spec.original_context);
    if (spec.scaling == RopeSpec::Scaling::kDynamic) return {limit, nullptr, spec.factor};
    return {limit, RopeTable(spec, int64_t{limit} + 1), 1.0};
  }

  RopeArgs RopeOf(const RopeAttrs& attrs, Value x, Value y) {
    return {.x = Ptr(x),
            .y = Ptr(y),
            .inv_freq = RopeTable(attrs.spec),
            .n_heads = Width(x) / attrs.head_dim,
            .head_dim = attrs.head_dim,
            .first = attrs.first,
            .rotary_dim = attrs.spec.rotary_dim,
            .attn_factor = static_cast<float>(attrs.spec.attn_factor),
            .style = attrs.spec.style,
            .stretch = Stretch(attrs.spec)};
  }

  RopeArgs Rope(const Op& op) {
    return RopeOf(std::get<RopeAttrs>(op.attrs), op.inputs[0], op.outputs[0]);
  }

  NormRopeArgs NormRope(const Op& op) {
    const auto& attrs = std::get<NormRopeAttrs>(op.attrs);
    NormRopeArgs args;
    args.norm = {.x = Ptr(op.inputs[0]),
                 .weight = Vector(op.inputs[1]),
                 .y = nullptr,
                 .width = Width(op.inputs[0]),
                 .dim = attrs.norm.dim,
                 .eps = attrs.norm.eps,
                 .rows = RowAxis::kTokens};
    args.rope = RopeOf(attrs.rope, op.inputs[0], op.outputs[0]);
    return args;
  }

  KvStoreArgs KvStore(const Op& op) const {
    return {.kv = Kv(op.inputs[0]),
            .k = Ptr(op.inputs[1]),
            .v = op.inputs[2].present() ? Ptr(op.inputs[2]) : nullptr};
  }

  AttentionArgs Attention(const Op& op) {
    const auto& attrs = std::get<AttentionAttrs>(op.attrs);
    const float* slopes = nullptr;
    if (attrs.alibi_max_bias > 0) {
      slopes = Table(AlibiSlopes(attrs.n_heads, attrs.alibi_max_bias, attrs.alibi_factor));
    }
    KvView kv = Kv(op.inputs[1]);
    if (attrs.v_in_k > 0) {
      kv.v_in_k = true;
      kv.v_dim = static_cast<int32_t>(attrs.v_in_k);
    }
    return {.kv = kv,
            .q = Ptr(op.inputs[0]),
            .y = Ptr(op.outputs[0]),
            .n_heads = static_cast<int32_t>(attrs.n_heads),
            .window = attrs.window,
            .scale = attrs.scale,
            .softcap = attrs.softcap,
            .slopes = slopes,
            .sinks = op.inputs.size() > 5 ? Vector(op.inputs[5]) : nullptr,
            .generated_only = attrs.generated_only,
            .exact = c_.exact};
  }

  const BindContext& c_;
  BoundPlan& bound_;
};

}  // namespace

BoundPlan Bind(const BindContext& context) {
  BoundPlan bound;
  ArgsMaker maker(context, bound);
  for (const Op& op : context.plan.ops) {
    auto [kernel_op, args] = maker.Make(op);
    bound.args.push_back(std::move(args));
    const void* address =
        std::visit([](const auto& a) { return static_cast<const void*>(&a); }, bound.args.back());
    KernelChoice choice = ChooseKernel(context.tables, kernel_op, address);
    LUCID_CHECK(choice.kernel != nullptr, "no kernel runs {}", op.name);
    if (choice.kernel->scratch != nullptr) {
      bound.scratch_bytes =
          std::max(bound.scratch_bytes, choice.kernel->scratch(address, context.max_rows));
    }
    if (choice.kernel->shared != nullptr) {
      bound.shared_bytes =
          std::max(bound.shared_bytes, choice.kernel->shared(address, context.max_rows));
    }
    LogDebug("{} runs on {}{}{}", op.name, choice.kernel->name,
             choice.refused.empty() ? "" : "; refused by ", choice.refused);
    bound.ops.push_back({choice.kernel->fn, choice.kernel->prepare, choice.kernel->warm, address,
                         choice.kernel, std::move(choice.refused)});
  }
  return bound;
}

}  // namespace lucid
