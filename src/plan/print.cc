#include "plan/print.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "plan/op_table.h"

namespace lucid {
namespace {

std::string PrintRope(const RopeAttrs& rope) {
  std::string text = fmt::format("theta={} dim={} style={}", rope.spec.theta, rope.spec.rotary_dim,
                                 Name(rope.spec.style));
  if (rope.spec.scaling != RopeSpec::Scaling::kNone) {
    text += fmt::format(" {}={}", Name(rope.spec.scaling), rope.spec.factor);
  }
  const RopeSpec& spec = rope.spec;
  if (spec.scaling != RopeSpec::Scaling::kNone && spec.scaling != RopeSpec::Scaling::kLinear) {
    text += fmt::format(" original={}", spec.original_context);
  }
  if (spec.scaling == RopeSpec::Scaling::kLlama3) {
    text += fmt::format(" bands={},{}", spec.low_freq_factor, spec.high_freq_factor);
  }
  if (spec.scaling == RopeSpec::Scaling::kYarn) {
    text += fmt::format(" beta={},{} ext_factor={} truncate={}", spec.beta_slow, spec.beta_fast,
                        spec.ext_factor, spec.truncate);
  }
  if (spec.scaling == RopeSpec::Scaling::kLongRope) {
    text += fmt::format(" short=[{}] long=[{}]", fmt::join(spec.short_factors, ","),
                        fmt::join(spec.long_factors, ","));
  }
  if (!spec.divisors.empty()) {
    text += fmt::format(" divisors=[{}]", fmt::join(spec.divisors, ","));
  }
  if (rope.spec.attn_factor != 1.0) {
    text += fmt::format(" attn_factor={:.6g}", rope.spec.attn_factor);
  }
  return text;
}

constexpr const char* kGeneratedOnly = ", absorbed form: generated tokens only";

struct AttrPrinter {
  std::string operator()(const EmbedAttrs& a) const {
    std::string text = a.scale == 1.0f ? "" : fmt::format("scale={}", a.scale);
    if (a.offset != 0) text += fmt::format("offset={}", a.offset);
    return text;
  }
  std::string operator()(const NormAttrs& a) const { return fmt::format("eps={}", a.eps); }
  std::string operator()(const LinearAttrs& a) const { return a.exact ? "exact" : ""; }
  std::string operator()(const RopeAttrs& a) const {
    return PrintRope(a) + (a.first > 0 ? fmt::format(" first={}", a.first) : "");
  }
  std::string operator()(const KvStoreAttrs&) const { return ""; }
  std::string operator()(const AttentionAttrs& a) const {
    std::string text = fmt::format("heads={} scale={}", a.n_heads, a.scale);
    if (a.window > 0) text += fmt::format(" window={}", a.window);
    if (a.softcap > 0) text += fmt::format(" softcap={}", a.softcap);
    if (a.alibi_max_bias > 0) text += fmt::format(" alibi={}", a.alibi_max_bias);
    if (a.alibi_max_bias > 0 && a.alibi_factor != 1.0f) {
      text += fmt::format(" alibi_factor={}", a.alibi_factor);
    }
    if (a.v_in_k > 0) text += fmt::format(" values=first {} of keys", a.v_in_k);
    if (a.generated_only) text += kGeneratedOnly;
    return text;
  }
  std::string operator()(const AddAttrs&) const { return ""; }
  std::string operator()(const GluAttrs& a) const { return fmt::format("act={}", Name(a.act)); }
  std::string operator()(const ActivateAttrs& a) const {
    return fmt::format("act={}", Name(a.act));
  }
  std::string operator()(const ClampAttrs& a) const { return fmt::format("limit={}", a.limit); }
  std::string operator()(const ScaleAttrs& a) const { return fmt::format("factor={}", a.factor); }
  std::string operator()(const SoftcapAttrs& a) const { return fmt::format("cap={}", a.cap); }
  std::string operator()(const GatherRowsAttrs&) const { return ""; }
  std::string operator()(const RouteAttrs& a) const {
    std::string text = fmt::format("used={} score={}", a.rule.n_used, Name(a.rule.score));
    if (a.rule.n_groups > 1) {
      text += fmt::format(" groups={}/{} by={}", a.rule.groups_used, a.rule.n_groups,
                          a.rule.group_pairs ? "pair" : "best");
    }
    if (a.rule.normalise) text += " normalised";
    if (a.rule.scale != 1.0f) text += fmt::format(" scale={}", a.rule.scale);
    return text;
  }
  std::string operator()(const ExpertGluAttrs& a) const {
    std::string text = fmt::format("act={}", Name(a.glu.act));
    if (a.glu.limit > 0) text += fmt::format(" limit={}", a.glu.limit);
    return text;
  }
  std::string operator()(const ExpertLinearAttrs&) const { return ""; }
  std::string operator()(const MixExpertsAttrs&) const { return ""; }
  std::string operator()(const HeadLinearAttrs& a) const {
    return a.generated_only ? kGeneratedOnly + 2 : "";
  }
  std::string operator()(const ConcatAttrs& a) const {
    return fmt::format("rows={} last={}{}", a.parts, a.b_dim,
                       a.generated_only ? kGeneratedOnly : "");
  }
  std::string operator()(const MlaAttrs& a) const {
    return fmt::format("heads={} scale={} rotated={}, expanded form: given tokens only", a.n_heads,
                       a.scale, a.rope_dim);
  }
  std::string operator()(const ByPhaseAttrs&) const { return ""; }
  std::string operator()(const LinearGroupAttrs& a) const {
    return fmt::format("count={}", a.count);
  }
  std::string operator()(const GluLinearAttrs& a) const {
    return fmt::format("act={}", Name(a.act));
  }
  std::string operator()(const NormRopeAttrs& a) const {
    return fmt::format("eps={} {}", a.norm.eps, PrintRope(a.rope));
  }
};

std::string Operand(const Plan& plan, Value v) {
  if (!v.present()) return "-";
  return plan.Info(v).name + plan.Info(v).shape.ToString();
}

}  // namespace

std::string PrintAttrs(const Op& op) {
  return std::visit(AttrPrinter{}, op.attrs);
}

std::vector<std::string> InputRoles(const Op& op) {
  std::istringstream words{std::string(Info(op.kind).operands)};
  std::vector<std::string> roles;
  for (std::string word; words >> word;) {
    std::erase_if(word, [](char c) { return c == '?' || c == '(' || c == ')' || c == '*'; });
    roles.push_back(word);
  }
  // The last two, a weight and its bias, repeat in groups.
  while (roles.size() < op.inputs.size()) roles.push_back(roles[roles.size() - 2]);
  roles.resize(op.inputs.size());
  return roles;
}

std::string PrintOp(const Plan& plan, const Op& op) {
  std::string text = fmt::format("{}: {}(", op.name, Info(op.kind).name);
  for (size_t i = 0; i < op.inputs.size(); ++i)
    text += (i ? ", " : "") + Operand(plan, op.inputs[i]);
  text += ")";
  if (const std::string attrs = PrintAttrs(op); !attrs.empty()) text += " {" + attrs + "}";
  text += " ->";
  for (const Value v : op.outputs) text += " " + Operand(plan, v);
  return text;
}

std::string PrintPlan(const Plan& plan) {
  std::string text = fmt::format("plan {}\n", plan.arch);
  for (size_t i = 0; i < plan.kv_layers.size(); ++i) {
    const KvSpec& kv = plan.kv_layers[i];
    text += fmt::format("kv {} heads={} k_dim={} v_dim={} window={}\n", i, kv.heads, kv.k_dim,
                        kv.v_dim, kv.window);
  }
  for (const Op& op : plan.ops) text += PrintOp(plan, op) + "\n";
  return text;
}

}  // namespace lucid
