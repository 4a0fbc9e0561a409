#include "models/same_plan.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <string>

#include "plan/op_table.h"
#include "plan/print.h"

namespace lucid {
namespace {

bool Near(double a, double b) {
  return std::abs(a - b) <= 1e-5 * std::max(std::abs(a), std::abs(b));
}

// Whether the texts are equal but for the last digits of float32 numbers. Whole numbers (sizes,
// windows) are equal or not.
bool SameText(const std::string& a, const std::string& b) {
  const char* p = a.c_str();
  const char* q = b.c_str();
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  const auto whole = [&](const char* from, const char* to) { return std::all_of(from, to, digit); };
  while (*p != '\0' && *q != '\0') {
    if (digit(*p) && digit(*q)) {
      char* p_end = nullptr;
      char* q_end = nullptr;
      const double x = std::strtod(p, &p_end);
      const double y = std::strtod(q, &q_end);
      if (whole(p, p_end) && whole(q, q_end) ? x != y : !Near(x, y)) return false;
      p = p_end;
      q = q_end;
    } else if (*p++ != *q++) {
      return false;
    }
  }
  return *p == *q;
}

bool SameOperands(const Plan& a, std::span<const Value> of_a, const Plan& b,
                  std::span<const Value> of_b) {
  return std::ranges::equal(of_a, of_b, [&](Value x, Value y) {
    if (!x.present() || !y.present()) return x.present() == y.present();
    const ValueInfo& u = a.Info(x);
    const ValueInfo& v = b.Info(y);
    return u.name == v.name && u.shape.ToString() == v.shape.ToString();
  });
}

bool SameRotation(const RopeAttrs& a, const RopeAttrs& b) {
  if (a.head_dim != b.head_dim || a.first != b.first) return false;
  if (a.spec.rotary_dim != b.spec.rotary_dim || a.spec.by_length() != b.spec.by_length()) {
    return false;
  }
  if (!Near(a.spec.attn_factor, b.spec.attn_factor)) return false;
  // A short sequence, and one for which frequencies that depend on the length are the other ones.
  const auto beyond = static_cast<int64_t>(a.spec.original_context) + 1;
  for (const int64_t length : {int64_t{1}, beyond}) {
    const std::vector<float> of_a = InverseFrequencies(a.spec, length);
    const std::vector<float> of_b = InverseFrequencies(b.spec, length);
    if (!std::ranges::equal(of_a, of_b, Near)) return false;
  }
  return true;
}

bool SameOp(const Plan& a, const Op& x, const Plan& b, const Op& y) {
  if (x.kind != y.kind || x.name != y.name || !SameOperands(a, x.outputs, b, y.outputs)) {
    return false;
  }
  if (!SameOperands(a, x.inputs, b, y.inputs)) return false;
  if (x.kind != OpKind::kRope) return SameText(PrintAttrs(x), PrintAttrs(y));
  return SameRotation(std::get<RopeAttrs>(x.attrs), std::get<RopeAttrs>(y.attrs));
}

}  // namespace

Status CheckSamePlan(const Plan& folder, const Plan& file) {
  const size_t n = std::min(folder.ops.size(), file.ops.size());
  for (size_t i = 0; i < n; ++i) {
    const Op& x = folder.ops[i];
    const Op& y = file.ops[i];
    if (SameOp(folder, x, file, y)) continue;
    return Err(ErrorCode::kUnsupported,
               "a GGUF file of architecture {} cannot say all of this model's settings: it would "
               "compute \"{}\" where the model computes \"{}\"",
               file.arch, PrintOp(file, y), PrintOp(folder, x));
  }
  if (folder.ops.size() != file.ops.size()) {
    return Err(ErrorCode::kUnsupported,
               "a GGUF file of architecture {} cannot say all of this model's settings: it would "
               "have {} operations, not {}",
               file.arch, file.ops.size(), folder.ops.size());
  }
  return {};
}

}  // namespace lucid
