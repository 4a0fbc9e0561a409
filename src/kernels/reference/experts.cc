// Mixtures of experts: the choice of each token's experts, products with their matrices, the
// weighted sum. See reference.h and RoutingRule (tensor/op_enums.h).
#include <cmath>

#include "kernels/reference/reference.h"
#include "kernels/split.h"

namespace lucid::reference {
namespace {

// Scratch of one thread, all of n_experts or n_groups.
struct RouteRows {
  double* score;   // what weights are made of
  double* choice;  // what is compared: -inf once taken or excluded
  double* group;   // of each group
  bool* taken;     // by expert
};

constexpr double kLowest = -INFINITY;

// The largest of n values, the first of equals; those that are no number are never larger.
int64_t Best(const double* values, int64_t n) {
  int64_t best = 0;
  for (int64_t i = 1; i < n; ++i) {
    if (values[i] > values[best] || (std::isnan(values[best]) && !std::isnan(values[i]))) best = i;
  }
  return best;
}

// exp(x - max) / sum over the values that `of` says.
template <typename Of>
void Softmax(const float* x, double* y, int64_t n, const Of& of) {
  double max = kLowest;
  for (int64_t i = 0; i < n; ++i) {
    if (of(i) && x[i] > max) max = x[i];  // GCC 12 for Arm cannot compile fmax here
  }
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (of(i)) sum += y[i] = std::exp(static_cast<double>(x[i]) - max);
  }
  for (int64_t i = 0; i < n; ++i) {
    if (of(i)) y[i] /= sum;
  }
}

// Excludes the experts of all but the best groups.
void LimitGroups(const RouteArgs& a, const RouteRows& rows) {
  const int64_t size = a.n_experts / a.rule.n_groups;
  for (int64_t g = 0; g < a.rule.n_groups; ++g) {
    double* choice = rows.choice + g * size;
    const int64_t best = Best(choice, size);
    rows.group[g] = choice[best];
    if (a.rule.group_pairs && size > 1) {
      double second = kLowest;
      for (int64_t i = 0; i < size; ++i) {
        if (i != best) second = std::fmax(second, choice[i]);
      }
      rows.group[g] += second;
    }
  }
  // Taken groups are marked by +inf, so that those left over can be told.
  for (int32_t i = 0; i < a.rule.groups_used; ++i) {
    int64_t best = -1;
    for (int64_t g = 0; g < a.rule.n_groups; ++g) {
      if (rows.group[g] == INFINITY) continue;
      if (best < 0 || rows.group[g] > rows.group[best]) best = g;
    }
    rows.group[best] = INFINITY;
  }
  for (int64_t e = 0; e < a.n_experts; ++e) {
    if (rows.group[e / size] != INFINITY) rows.choice[e] = kLowest;
  }
}

void RouteOne(const RouteArgs& a, const float* logits, float* experts, float* weights,
              const RouteRows& rows) {
  const int64_t n = a.n_experts;
  const auto all = [](int64_t) { return true; };
  switch (a.rule.score) {
    case RouteScore::kSoftmax:
      Softmax(logits, rows.score, n, all);
      break;
    case RouteScore::kSigmoid:
      for (int64_t e = 0; e < n; ++e) rows.score[e] = 1.0 / (1.0 + std::exp(-double{logits[e]}));
      break;
    case RouteScore::kChosenSoftmax:
      for (int64_t e = 0; e < n; ++e) rows.score[e] = logits[e];
      break;
  }
  for (int64_t e = 0; e < n; ++e) {
    rows.choice[e] = rows.score[e] + (a.bias != nullptr ? a.bias[e] : 0.0);
    if (!(rows.choice[e] > kLowest)) rows.choice[e] = -1e300;  // no number: after all others
    rows.taken[e] = false;
  }
  if (a.rule.groups_used < a.rule.n_groups) LimitGroups(a, rows);
  for (int32_t i = 0; i < a.rule.n_used; ++i) {
    const int64_t best = Best(rows.choice, n);
    rows.choice[best] = kLowest;
    rows.taken[best] = true;
  }
  if (a.rule.score == RouteScore::kChosenSoftmax) {
    Softmax(logits, rows.score, n, [&](int64_t e) { return rows.taken[e]; });
  }
  double sum = 0;
  for (int64_t e = 0; e < n; ++e) sum += rows.taken[e] ? rows.score[e] : 0.0;
  const double factor = a.rule.normalise ? a.rule.scale / sum : a.rule.scale;
  for (int64_t e = 0; e < n; ++e) {
    if (!rows.taken[e]) continue;
    *experts++ = static_cast<float>(e);
    *weights++ = static_cast<float>(rows.score[e] * factor);
  }
}

// Row `n` of an expert's matrix as float32, in `scratch`.
const float* DecodeExpertRow(const ExpertMatrix& m, int64_t expert, int64_t n, float* scratch) {
  const std::byte* row = m.data[expert] + n * m.w.row_bytes();
  Info(m.w.dtype).decode(row, scratch, m.w.cols());
  return scratch;
}

float ExpertOutput(const ExpertMatrix& m, int64_t expert, const float* row, int64_t n,
                   const float* x) {
  const double bias = m.bias != nullptr ? m.bias[expert * m.w.rows() + n] : 0.0;
  return static_cast<float>(Dot(row, x, m.w.cols()) + bias);
}

// The expert of row r.
int64_t ExpertOf(const float* experts, int64_t n_used, int64_t r) {
  return experts == nullptr ? r % n_used : static_cast<int64_t>(experts[r]);
}

// Calls body(expert, n) for this thread's outputs n of every expert that a row goes to.
template <typename Body>
void ForTouched(const float* experts, int64_t n_used, int64_t rows, const ExpertMatrix& m,
                const ThreadSlot& thread, const Body& body) {
  const Share share = ShareOf(m.w.rows(), 1, thread);
  for (int64_t e = 0; e < m.n_experts; ++e) {
    bool touched = false;
    for (int64_t r = 0; r < rows; ++r) touched = touched || ExpertOf(experts, n_used, r) == e;
    for (int64_t n = share.begin; touched && n < share.end; ++n) body(e, n);
  }
}

float* Floats(const ThreadSlot& thread) {
  return reinterpret_cast<float*>(thread.scratch);
}

}  // namespace

void Route(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const RouteArgs*>(args);
  RouteRows rows;
  rows.score = reinterpret_cast<double*>(thread.scratch);
  rows.choice = rows.score + a.n_experts;
  rows.group = rows.choice + a.n_experts;
  rows.taken = reinterpret_cast<bool*>(rows.group + a.rule.n_groups);
  const Share share = ShareOf(step.n_tokens, 1, thread);
  for (int64_t t = share.begin; t < share.end; ++t) {
    RouteOne(a, a.logits + t * a.n_experts, a.experts + t * a.rule.n_used,
             a.weights + t * a.rule.n_used, rows);
  }
}

size_t RouteScratch(const void* args, int64_t /*max_rows*/) {
  const auto& a = *static_cast<const RouteArgs*>(args);
  return static_cast<size_t>(2 * a.n_experts + a.rule.n_groups) * sizeof(double) +
         static_cast<size_t>(a.n_experts) * sizeof(bool);
}

void ExpertGlu(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const ExpertGluArgs*>(args);
  const int64_t n_in = a.gate.w.cols();
  const int64_t n_out = a.gate.w.rows();
  const int64_t rows = step.n_tokens * a.n_used;
  ForTouched(a.experts, a.n_used, rows, a.gate, thread, [&](int64_t e, int64_t n) {
    const float* gate = DecodeExpertRow(a.gate, e, n, Floats(thread));
    const float* up = DecodeExpertRow(a.up, e, n, Floats(thread) + n_in);
    for (int64_t r = 0; r < rows; ++r) {
      if (a.experts[r] != static_cast<float>(e)) continue;
      const float* x = a.x + r / a.n_used * n_in;
      a.y[r * n_out + n] =
          GluOne(a.glu, ExpertOutput(a.gate, e, gate, n, x), ExpertOutput(a.up, e, up, n, x));
    }
  });
}

size_t ExpertGluScratch(const void* args, int64_t /*max_rows*/) {
  return 2 * static_cast<size_t>(static_cast<const ExpertGluArgs*>(args)->gate.w.cols()) *
         sizeof(float);
}

void ExpertLinear(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const ExpertLinearArgs*>(args);
  const int64_t n_out = a.w.w.rows();
  const int64_t rows = step.n_tokens * a.n_used;
  ForTouched(a.experts, a.n_used, rows, a.w, thread, [&](int64_t e, int64_t n) {
    const float* w = DecodeExpertRow(a.w, e, n, Floats(thread));
    for (int64_t r = 0; r < rows; ++r) {
      if (a.generated_only && !IsGenerated(step, r / a.n_used)) continue;
      if (ExpertOf(a.experts, a.n_used, r) == e) {
        a.y[r * n_out + n] = ExpertOutput(a.w, e, w, n, a.x + r * a.x_stride);
      }
    }
  });
}

size_t ExpertLinearScratch(const void* args, int64_t /*max_rows*/) {
  return static_cast<size_t>(static_cast<const ExpertLinearArgs*>(args)->w.w.cols()) *
         sizeof(float);
}

void MixExperts(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const MixExpertsArgs*>(args);
  const Share share = ShareOf(step.n_tokens, 1, thread);
  for (int64_t t = share.begin; t < share.end; ++t) {
    for (int64_t n = 0; n < a.dim; ++n) {
      double sum = 0;
      for (int64_t i = t * a.n_used; i < (t + 1) * a.n_used; ++i) {
        sum += static_cast<double>(a.weights[i]) * a.x[i * a.dim + n];
      }
      a.y[t * a.dim + n] = static_cast<float>(sum);
    }
  }
}

}  // namespace lucid::reference
