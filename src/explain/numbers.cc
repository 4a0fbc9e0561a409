#include "explain/numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lucid {

std::vector<double> Probabilities(std::span<const float> logits, double temperature) {
  std::vector<double> p(logits.size(), 0);
  if (logits.empty()) return p;
  const auto largest = std::max_element(logits.begin(), logits.end());
  if (temperature <= 0) {
    p[static_cast<size_t>(largest - logits.begin())] = 1;
    return p;
  }
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    p[i] = std::exp((static_cast<double>(logits[i]) - static_cast<double>(*largest)) / temperature);
    sum += p[i];
  }
  for (double& value : p) value /= sum;
  return p;
}

double Entropy(std::span<const double> p) {
  double sum = 0;
  for (const double value : p) sum -= value > 0 ? value * std::log(value) : 0;
  return sum;
}

double Divergence(std::span<const double> p, std::span<const double> q) {
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    if (p[i] > 0) sum += p[i] * std::log(p[i] / q[i]);
  }
  return sum;
}

std::vector<int32_t> Largest(std::span<const double> values, size_t n) {
  std::vector<int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  n = std::min(n, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(n), order.end(),
                    [&](int32_t a, int32_t b) {
                      const double x = values[static_cast<size_t>(a)];
                      const double y = values[static_cast<size_t>(b)];
                      return x != y ? x > y : a < b;
                    });
  order.resize(n);
  return order;
}

std::string Fixed(double value, int digits) {
  return fmt::format("{:.{}f}", value, digits);
}

std::string Percent(double part, int digits) {
  return fmt::format("{:.{}f} %", 100 * part, digits);
}

const Op* FindOp(const Plan& plan, std::string_view name) {
  const auto found = std::find_if(plan.ops.begin(), plan.ops.end(),
                                  [name](const Op& op) { return op.name == name; });
  return found == plan.ops.end() ? nullptr : &*found;
}

const Op* FirstOp(const Plan& plan, OpKind kind) {
  const auto found = std::find_if(plan.ops.begin(), plan.ops.end(),
                                  [kind](const Op& op) { return op.kind == kind; });
  return found == plan.ops.end() ? nullptr : &*found;
}

const ValueInfo* FindWeight(const Plan& plan, std::string_view name) {
  for (const ValueInfo& info : plan.values) {
    if (info.kind == ValueKind::kWeight && info.name == name) return &info;
  }
  return nullptr;
}

std::string OutputShape(const Plan& plan, const Op& op, int64_t tokens) {
  const Sizes sizes{.tokens = tokens, .outputs = 1, .sequences = 1, .context = tokens};
  return plan.Info(op.outputs.front()).shape.ToString(sizes);
}

HeadShape HeadsOf(const Plan& plan, size_t layer) {
  HeadShape heads;
  if (layer >= plan.kv_layers.size()) return heads;
  const KvSpec& kv = plan.kv_layers[layer];
  heads.keys = kv.heads;
  heads.k_dim = kv.k_dim;
  heads.v_dim = kv.v_dim;
  heads.window = kv.window;
  heads.latent = kv.v_dim == 0;
  for (const Op& op : plan.ops) {
    if (op.inputs.size() < 2 || !op.inputs[1].present()) continue;
    const ValueInfo& cache = plan.Info(op.inputs[1]);
    if (cache.kv_layer != static_cast<int32_t>(layer)) continue;
    if (const auto* mla = std::get_if<MlaAttrs>(&op.attrs)) {
      heads.queries = mla->n_heads;
      heads.scale = mla->scale;
      return heads;
    }
    if (const auto* attention = std::get_if<AttentionAttrs>(&op.attrs)) {
      heads.queries = attention->n_heads;
      heads.scale = attention->scale;
      heads.alibi = attention->alibi_max_bias;
      return heads;
    }
  }
  return heads;
}

std::string NoWeights(const Subject& subject) {
  return fmt::format(
      "{} is a config.json without weights, so nothing can be run here. `lucid pull smollm2` gets "
      "a small model (94 MB), and `-m smollm2` shows this page with its numbers.",
      subject.name());
}

}  // namespace lucid
