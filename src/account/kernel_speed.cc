#include "account/kernel_speed.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "account/kernel_build.h"
#include "base/rng.h"
#include "models/load.h"
#include "plan/builder.h"
#include "plan/op_table.h"

namespace lucid {
namespace {

constexpr int64_t kHeadDim = 128, kQueriesOfKey = 4, kVocab = 256;
constexpr int kPrompts = 3, kTokens = 15;
constexpr int64_t kDistinctRows = 8;  // making more up would take seconds
// What a thread reads again and again stays in a cache of its own.
constexpr int64_t kCachedBytes = 384 * 1024;
constexpr int kCachedProducts = 32;

int64_t KvHeads(const KernelProbe& probe) {
  return std::max<int64_t>(1, probe.dim / kHeadDim / kQueriesOfKey);
}

int64_t LayerWeights(const KernelProbe& probe) {
  return probe.dim * (2 * probe.dim + 2 * KvHeads(probe) * kHeadDim) + 3 * probe.dim * probe.ffn;
}

Plan ProbePlan(const KernelProbe& probe, int64_t layers) {
  const int64_t dim = probe.dim, kv_dim = KvHeads(probe) * kHeadDim;
  Builder b("probe");
  RopeSpec rope;
  rope.rotary_dim = kHeadDim;
  Value x = b.Embed(b.Mat("token_embd", kVocab, dim));
  for (int layer = 0; layer < layers; ++layer) {
    const LayerScope w = b.Layer(layer);
    Value h = b.RmsNorm(x, w.Vec("attn_norm", dim), 1e-5);
    const Value q = b.Rope(b.Linear(h, w.Mat("attn_q", dim, dim)), kHeadDim, rope);
    const Value k = b.Rope(b.Linear(h, w.Mat("attn_k", kv_dim, dim)), kHeadDim, rope);
    const Value v = b.Linear(h, w.Mat("attn_v", kv_dim, dim));
    Value kv = b.Kv({.heads = KvHeads(probe), .k_dim = kHeadDim, .v_dim = kHeadDim}, "kv");
    kv = b.KvStore(kv, k, v);
    const Value a = b.Attention(q, kv, {.scale = 1 / std::sqrt(static_cast<double>(kHeadDim))});
    x = b.Add(x, b.Linear(a, w.Mat("attn_output", dim, dim)));
    h = b.RmsNorm(x, w.Vec("ffn_norm", dim), 1e-5);
    const Value gate = b.Linear(h, w.Mat("ffn_gate", probe.ffn, dim));
    const Value up = b.Linear(h, w.Mat("ffn_up", probe.ffn, dim));
    x = b.Add(x, b.Linear(b.Glu(gate, up, Activation::kSilu), w.Mat("ffn_down", dim, probe.ffn)));
  }
  x = b.RmsNorm(b.GatherRows(x), b.Vec("output_norm", dim), 1e-5);
  return b.Finish(b.Linear(x, b.Mat("output", kVocab, dim)));
}

// The same small matrix again and again, between norms that keep the products apart. The cache is
// there because every model has one.
Plan CachedPlan(const KernelProbe& probe, DType weights, int threads) {
  const int64_t fit = threads * kCachedBytes / RowBytes(weights, probe.dim);
  const int64_t rows = std::max<int64_t>(64, fit / 64 * 64);
  Builder b("probe");
  const Value x = b.Embed(b.Mat("token_embd", kVocab, probe.dim));
  const Value norm = b.Vec("norm", probe.dim), matrix = b.Mat("matrix", rows, probe.dim);
  for (int i = 0; i < kCachedProducts; ++i) b.Linear(b.RmsNorm(x, norm, 1e-5), matrix);
  const KvSpec spec{.heads = probe.dim / kHeadDim, .k_dim = kHeadDim, .v_dim = kHeadDim};
  const Value a = b.Attention(x, b.KvStore(b.Kv(spec, "kv"), x, x), {.scale = 1});
  return b.Finish(b.Linear(b.GatherRows(a), b.Mat("output", kVocab, probe.dim)));
}

// A block whose numbers are finite and of a usual size, from random bytes: types that can only be
// read have no other way.
void DrawBlock(const DTypeInfo& type, uint64_t run, std::byte* block) {
  constexpr float kLeast = 0.005f, kMost = 0.2f;
  std::vector<float> values(static_cast<size_t>(type.block_elems));
  for (uint64_t attempt = 0;; ++attempt) {
    for (int64_t i = 0; i < type.block_bytes; ++i) {
      block[i] =
          static_cast<std::byte>(UniformDraw(1, run, attempt, static_cast<uint32_t>(i)) * 256);
    }
    type.decode(block, values.data(), type.block_elems);
    float largest = 0;
    bool finite = true;
    for (const float value : values) {
      finite = finite && std::isfinite(value);
      largest = std::max(largest, std::abs(value));
    }
    if (finite && largest <= kMost && (largest >= kLeast || type.block_elems == 1)) return;
  }
}

// Makes weights up: vectors are ones, matrices repeat a few random rows.
class Filler {
 public:
  void Fill(const ValueInfo& slot, const Tensor& weight, std::byte* data) {
    if (slot.shape.rank == 1) {
      std::fill_n(reinterpret_cast<float*>(data), weight.elements(), 1.0f);
      return;
    }
    const std::vector<std::byte>& rows = Rows(weight);
    const auto size = static_cast<size_t>(weight.row_bytes());
    for (int64_t r = 0; r < weight.rows(); ++r) {
      const size_t from = static_cast<size_t>(r % kDistinctRows) * size;
      std::memcpy(data + static_cast<size_t>(r) * size, rows.data() + from, size);
    }
  }

 private:
  // By type and length: made once.
  const std::vector<std::byte>& Rows(const Tensor& weight) {
    std::vector<std::byte>& rows = rows_[{weight.dtype, weight.cols()}];
    if (!rows.empty()) return rows;
    const DTypeInfo& type = Info(weight.dtype);
    rows.resize(static_cast<size_t>(kDistinctRows * weight.row_bytes()));
    const int64_t blocks = std::ssize(rows) / type.block_bytes;
    for (int64_t b = 0; b < blocks; ++b) {
      DrawBlock(type, static_cast<uint64_t>(b), rows.data() + b * type.block_bytes);
    }
    return rows;
  }

  std::map<std::pair<DType, int64_t>, std::vector<std::byte>> rows_;
};

// What a step took, by kind of op.
struct Parts {
  double products = 0, attention = 0, others = 0;  // seconds
  int n_products = 0, n_attention = 0, n_others = 0;
  Cost of_products, of_attention, of_others;

  void Add(OpKind kind, const Cost& cost, double seconds) {
    const bool is_attention = kind == OpKind::kAttention;
    const bool product = !is_attention && cost.macs > 0;
    (product ? products : is_attention ? attention : others) += seconds;
    ++(product ? n_products : is_attention ? n_attention : n_others);
    (product ? of_products : is_attention ? of_attention : of_others) += cost;
  }
};

class Probe {
 public:
  static Result<Probe> Make(Plan plan, DType weights, Numerics numerics, const std::string& isa,
                            int threads, int64_t prompt) {
    Probe probe;
    probe.model_ = std::make_unique<Model>();
    Model& model = *probe.model_;
    model.plan = std::move(plan);
    probe.types_.assign(model.plan.values.size(), DType::kF32);
    for (const Value v : model.plan.Weights()) {
      const bool matrix = model.plan.Info(v).shape.rank == 2;
      probe.types_[static_cast<size_t>(v.id)] = matrix ? weights : DType::kF32;
    }
    Filler filler;
    LUCID_ASSIGN_OR_RETURN(
        model.weights,
        Weights::Outline(model.plan, probe.types_,
                         [&filler](const ValueInfo& slot, const Tensor& weight, std::byte* data) {
                           filler.Fill(slot, weight, data);
                         }));
    RunnerOptions options;
    options.numerics = numerics;
    options.isa = isa;
    options.n_threads = threads;
    options.max_tokens = prompt;
    LUCID_ASSIGN_OR_RETURN(const KvLayout layout, KvLayout::Make(model.plan.kv_layers, options.kv));
    options.kv_blocks = layout.BlocksForAll(1, prompt + 1, prompt);
    probe.table_.resize(static_cast<size_t>(CeilDiv(prompt + 1, options.kv.block_size)));
    std::iota(probe.table_.begin(), probe.table_.end(), 0);
    LUCID_ASSIGN_OR_RETURN(probe.runner_, Runner::Create(model, options));
    return probe;
  }

  // The median of several such steps.
  Parts Measure(int64_t start, int64_t count, int times) {
    std::vector<StepTimes> steps(static_cast<size_t>(times));
    Step(start, count, nullptr);  // pages are touched first
    for (StepTimes& step : steps) Step(start, count, &step);
    const auto middle = steps.begin() + times / 2;
    std::nth_element(steps.begin(), middle, steps.end(),
                     [](const StepTimes& a, const StepTimes& b) {
                       return a.end() - a.begin() < b.end() - b.begin();
                     });
    Workload work;
    work.sequences = {{.start = start, .count = count}};
    work.outputs = 1;
    work.weight_dtypes = types_;
    Parts parts;
    const Plan& plan = runner_->plan();
    for (size_t i = 0; i < plan.ops.size(); ++i) {
      parts.Add(plan.ops[i].kind, Info(plan.ops[i].kind).cost(plan, plan.ops[i], work),
                middle->Op(i).total());
    }
    return parts;
  }

  std::string_view isa() const { return runner_->isa(); }

 private:
  void Step(int64_t start, int64_t count, StepTimes* times) {
    batch_.Clear();
    batch_.AddSequence(table_);
    for (int64_t i = 0; i < count; ++i) {
      batch_.AddToken(static_cast<int32_t>(i % kVocab), start + i,
                      count == 1 ? Phase::kGenerated : Phase::kPrompt, i + 1 == count);
    }
    runner_->Run(batch_, nullptr, times);
  }

  std::unique_ptr<Model> model_;
  std::vector<DType> types_;
  std::unique_ptr<Runner> runner_;
  std::vector<int32_t> table_;
  Batch batch_;
};

// `amount` over the seconds beyond what ops take anyway.
double Rate(int64_t amount, double seconds, int ops, double op_seconds) {
  return static_cast<double>(amount) / std::max(seconds - ops * op_seconds, seconds / 2);
}

}  // namespace

Result<KernelSpeed> MeasureKernels(DType weights, Numerics numerics, const std::string& isa,
                                   int threads, const KernelProbe& size) {
  const int64_t layers = CeilDiv(size.bytes, RowBytes(weights, LayerWeights(size)));
  LUCID_ASSIGN_OR_RETURN(Probe probe, Probe::Make(ProbePlan(size, layers), weights, numerics, isa,
                                                  threads, size.prompt));
  const Parts prompt = probe.Measure(0, size.prompt, kPrompts);
  const Parts token = probe.Measure(size.prompt, 1, kTokens);
  LUCID_ASSIGN_OR_RETURN(Probe in_cache, Probe::Make(CachedPlan(size, weights, threads), weights,
                                                     numerics, isa, threads, /*prompt=*/1));
  const Parts cached = in_cache.Measure(0, 1, kTokens);
  KernelSpeed speed{.weights = std::string(Name(weights)),
                    .numerics = std::string(Name(numerics)),
                    .threads = threads,
                    .isa = std::string(probe.isa()),
                    .build = std::string(KernelBuild())};
  speed.op_seconds = token.others / token.n_others;
  speed.stream_bytes_per_second =
      Rate(token.of_products.weight_bytes, token.products, token.n_products, speed.op_seconds);
  speed.cached_bytes_per_second = Rate(cached.of_products.weight_bytes, cached.products,
                                       cached.n_products, cached.others / cached.n_others);
  speed.macs_per_second =
      Rate(prompt.of_products.macs, prompt.products, prompt.n_products, speed.op_seconds);
  speed.attention_macs_per_second =
      Rate(prompt.of_attention.macs, prompt.attention, prompt.n_attention, speed.op_seconds);
  speed.token_attention_macs_per_second =
      Rate(token.of_attention.macs, token.attention, token.n_attention, speed.op_seconds);
  speed.activation_bytes_per_second =
      Rate(prompt.of_others.activation_bytes, prompt.others, prompt.n_others, speed.op_seconds);
  return speed;
}

std::string_view KernelBuild() {
  return LUCID_KERNEL_BUILD;
}

}  // namespace lucid
