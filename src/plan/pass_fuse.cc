// The fuse pass: one walk over the ops with a fixed table of rules. A rule looks at the op at hand
// and the ops around it, and either replaces them by one op or leaves them.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "plan/pass.h"

namespace lucid {
namespace {

// Who reads a value: nobody, one op, or several (the logits are read from outside as well).
constexpr int32_t kNoReader = -1, kManyReaders = -2;

std::vector<int32_t> FindReaders(const Plan& plan) {
  std::vector<int32_t> readers(plan.values.size(), kNoReader);
  const auto add = [&](Value v, int32_t op) {
    int32_t& reader = readers[static_cast<size_t>(v.id)];
    reader = reader == kNoReader ? op : kManyReaders;
  };
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    for (const Value v : plan.ops[i].inputs) {
      if (v.present()) add(v, static_cast<int32_t>(i));
    }
  }
  readers[static_cast<size_t>(plan.logits.id)] = kManyReaders;
  return readers;
}

struct Match {
  Op fused;
  std::vector<size_t> replaced;  // indices of ops, the first being the op at hand
};

struct Context {
  const Plan& plan;
  const std::vector<int32_t>& readers;
  const AlikeFn& alike;

  // Whether two linears may become one op.
  bool Alike(const Op& a, const Op& b) const {
    if (std::get<LinearAttrs>(a.attrs).exact || std::get<LinearAttrs>(b.attrs).exact) return false;
    return !alike || alike(a.inputs[1], b.inputs[1]);
  }
};

// The index of the op of this kind that is the only reader of `v`, if it is one.
std::optional<size_t> OnlyReader(const Context& c, Value v, OpKind kind) {
  const int32_t reader = c.readers[static_cast<size_t>(v.id)];
  if (reader < 0 || c.plan.ops[static_cast<size_t>(reader)].kind != kind) return std::nullopt;
  return static_cast<size_t>(reader);
}

// "blk.0.attn_q" and "attn_k" -> "blk.0.attn_q+attn_k".
std::string JoinedName(const std::string& first, const std::string& second) {
  return first + "+" + second.substr(second.rfind('.') + 1);
}

// linear(x, gate), linear(x, up), glu(gate, up) -> glu_linear.
std::optional<Match> FuseGluLinear(const Context& c, size_t i) {
  const Op& gate = c.plan.ops[i];
  if (gate.kind != OpKind::kLinear) return std::nullopt;
  const std::optional<size_t> glu = OnlyReader(c, gate.outputs[0], OpKind::kGlu);
  if (!glu || c.plan.ops[*glu].inputs[0] != gate.outputs[0]) return std::nullopt;
  const Value up_value = c.plan.ops[*glu].inputs[1];
  const int32_t up = c.plan.Info(up_value).producer;
  if (up < 0 || c.plan.ops[static_cast<size_t>(up)].kind != OpKind::kLinear ||
      !OnlyReader(c, up_value, OpKind::kGlu)) {
    return std::nullopt;
  }
  const Op& up_op = c.plan.ops[static_cast<size_t>(up)];
  if (up_op.inputs[0] != gate.inputs[0] || !c.Alike(gate, up_op)) return std::nullopt;
  Op fused = c.plan.ops[*glu];
  fused.kind = OpKind::kGluLinear;
  fused.name = JoinedName(gate.name, up_op.name);
  fused.inputs = {gate.inputs[0], gate.inputs[1], gate.inputs[2], up_op.inputs[1], up_op.inputs[2]};
  fused.attrs = GluLinearAttrs{std::get<GluAttrs>(c.plan.ops[*glu].attrs).act};
  return Match{std::move(fused), {i, static_cast<size_t>(up), *glu}};
}

// Linears that follow each other and read one input -> linear_group.
std::optional<Match> FuseLinearGroup(const Context& c, size_t i) {
  constexpr size_t kMaxGroup = 4;
  const Op& first = c.plan.ops[i];
  if (first.kind != OpKind::kLinear) return std::nullopt;
  Match match{first, {i}};
  for (size_t j = i + 1; j < c.plan.ops.size() && match.replaced.size() < kMaxGroup; ++j) {
    const Op& op = c.plan.ops[j];
    if (op.kind != OpKind::kLinear || op.inputs[0] != first.inputs[0] || !c.Alike(first, op)) break;
    match.replaced.push_back(j);
    match.fused.name = JoinedName(match.fused.name, op.name);
    match.fused.inputs.insert(match.fused.inputs.end(), {op.inputs[1], op.inputs[2]});
    match.fused.outputs.push_back(op.outputs[0]);
  }
  if (match.replaced.size() < 2) return std::nullopt;
  match.fused.kind = OpKind::kLinearGroup;
  match.fused.attrs = LinearGroupAttrs{static_cast<int32_t>(match.replaced.size())};
  return match;
}

// add(a, b), rms_norm(sum) right after it -> add_rms_norm, which still writes the sum.
std::optional<Match> FuseAddRmsNorm(const Context& c, size_t i) {
  const Op& add = c.plan.ops[i];
  if (add.kind != OpKind::kAdd || i + 1 >= c.plan.ops.size()) return std::nullopt;
  const Op& norm = c.plan.ops[i + 1];
  if (norm.kind != OpKind::kRmsNorm || norm.inputs[0] != add.outputs[0]) return std::nullopt;
  const auto& attrs = std::get<NormAttrs>(norm.attrs);
  if (c.plan.Info(add.outputs[0]).shape.Width() != attrs.dim)
    return std::nullopt;  // a norm per head
  Op fused = norm;
  fused.kind = OpKind::kAddRmsNorm;
  fused.name = add.name + "+" + norm.name.substr(norm.name.rfind('.') + 1);
  fused.inputs = {add.inputs[0], add.inputs[1], norm.inputs[1]};
  fused.outputs = {add.outputs[0], norm.outputs[0]};
  return Match{std::move(fused), {i, i + 1}};
}

// rms_norm over heads, rope of its result -> norm_rope.
std::optional<Match> FuseNormRope(const Context& c, size_t i) {
  const Op& norm = c.plan.ops[i];
  if (norm.kind != OpKind::kRmsNorm) return std::nullopt;
  const std::optional<size_t> rope = OnlyReader(c, norm.outputs[0], OpKind::kRope);
  if (!rope) return std::nullopt;
  const Op& rope_op = c.plan.ops[*rope];
  const auto& norm_attrs = std::get<NormAttrs>(norm.attrs);
  const auto& rope_attrs = std::get<RopeAttrs>(rope_op.attrs);
  if (norm_attrs.dim != rope_attrs.head_dim) return std::nullopt;
  Op fused = rope_op;
  fused.kind = OpKind::kNormRope;
  fused.name = JoinedName(norm.name, rope_op.name);
  fused.inputs = {norm.inputs[0], norm.inputs[1], rope_op.inputs[1]};
  fused.attrs = NormRopeAttrs{norm_attrs, rope_attrs};
  return Match{std::move(fused), {i, *rope}};
}

// Tried in this order at every op.
constexpr std::array kRules = {FuseGluLinear, FuseLinearGroup, FuseAddRmsNorm, FuseNormRope};

}  // namespace

Plan FusePlan(const Plan& plan, const AlikeFn& alike) {
  const std::vector<int32_t> readers = FindReaders(plan);
  const Context context{plan, readers, alike};
  std::vector<bool> gone(plan.ops.size(), false);  // ops already replaced
  // A fused op stands where the last op it replaces stood: by then every operand has been written.
  std::vector<std::optional<Op>> fused_at(plan.ops.size());
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    if (gone[i]) continue;
    for (const auto rule : kRules) {
      std::optional<Match> match = rule(context, i);
      if (!match) continue;
      for (const size_t j : match->replaced) gone[j] = true;
      const size_t last = *std::max_element(match->replaced.begin(), match->replaced.end());
      fused_at[last] = std::move(match->fused);
      break;
    }
  }
  Plan result = plan;
  result.ops.clear();
  for (ValueInfo& v : result.values) v.producer = -1;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    if (gone[i] && !fused_at[i]) continue;
    result.ops.push_back(fused_at[i] ? std::move(*fused_at[i]) : plan.ops[i]);
    for (const Value out : result.ops.back().outputs) {
      result.values[static_cast<size_t>(out.id)].producer =
          static_cast<int32_t>(result.ops.size() - 1);
    }
  }
  return result;
}

}  // namespace lucid
