#include "account/kernel_speed.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "base/timer.h"
#include "models/load.h"
#include "plan/builder.h"
#include "plan/op_table.h"

namespace lucid {
namespace {

// Layers as models of a few billion parameters have them, and as many as no cache holds.
constexpr int64_t kDim = 2048, kHeads = 16, kKvHeads = 4, kHeadDim = 128, kFfn = 5632, kVocab = 256;
constexpr int64_t kLayerWeights = kDim * kHeadDim * 2 * (kHeads + kKvHeads) + 3 * kDim * kFfn;
constexpr int64_t kPrompt = 256;
constexpr int kPrompts = 3, kTokens = 15;
constexpr int64_t kDistinctRows = 8;  // making more up would take seconds

Plan ProbePlan(int64_t layers) {
  Builder b("probe");
  RopeSpec rope;
  rope.rotary_dim = kHeadDim;
  Value x = b.Embed(b.Mat("token_embd", kVocab, kDim));
  for (int layer = 0; layer < layers; ++layer) {
    const LayerScope w = b.Layer(layer);
    Value h = b.RmsNorm(x, w.Vec("attn_norm", kDim), 1e-5);
    const Value q = b.Rope(b.Linear(h, w.Mat("attn_q", kHeads * kHeadDim, kDim)), kHeadDim, rope);
    const Value k = b.Rope(b.Linear(h, w.Mat("attn_k", kKvHeads * kHeadDim, kDim)), kHeadDim, rope);
    const Value v = b.Linear(h, w.Mat("attn_v", kKvHeads * kHeadDim, kDim));
    Value kv = b.Kv({.heads = kKvHeads, .k_dim = kHeadDim, .v_dim = kHeadDim}, "kv");
    kv = b.KvStore(kv, k, v);
    const Value a = b.Attention(q, kv, {.scale = 1 / std::sqrt(static_cast<double>(kHeadDim))});
    x = b.Add(x, b.Linear(a, w.Mat("attn_output", kDim, kHeads * kHeadDim)));
    h = b.RmsNorm(x, w.Vec("ffn_norm", kDim), 1e-5);
    const Value gate = b.Linear(h, w.Mat("ffn_gate", kFfn, kDim));
    const Value up = b.Linear(h, w.Mat("ffn_up", kFfn, kDim));
    x = b.Add(x, b.Linear(b.Glu(gate, up, Activation::kSilu), w.Mat("ffn_down", kDim, kFfn)));
  }
  x = b.RmsNorm(b.GatherRows(x), b.Vec("output_norm", kDim), 1e-5);
  return b.Finish(b.Linear(x, b.Mat("output", kVocab, kDim)));
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

  double seconds() const { return products + attention + others; }
};

class PartTimer final : public Observer {
 public:
  PartTimer(const Workload& work, Parts& parts) : work_(work), parts_(parts) {}

  void AfterOp(const ObservedOp& observed) override {
    const double seconds = static_cast<double>(observed.nanoseconds) / 1e9;
    const Cost cost = Info(observed.op.kind).cost(observed.plan, observed.op, work_);
    const bool attention = observed.op.kind == OpKind::kAttention;
    const bool product = !attention && cost.macs > 0;
    (product ? parts_.products : attention ? parts_.attention : parts_.others) += seconds;
    ++(product ? parts_.n_products : attention ? parts_.n_attention : parts_.n_others);
    (product ? parts_.of_products : attention ? parts_.of_attention : parts_.of_others) += cost;
  }

 private:
  const Workload& work_;
  Parts& parts_;
};

class Probe {
 public:
  static Result<Probe> Make(DType weights, Numerics numerics, int threads, int64_t bytes) {
    Probe probe;
    const int64_t layer_bytes = RowBytes(weights, kLayerWeights);
    probe.model_ = std::make_unique<Model>();
    Model& model = *probe.model_;
    model.plan = ProbePlan(CeilDiv(bytes, layer_bytes));
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
    options.n_threads = threads;
    options.max_tokens = kPrompt;
    LUCID_ASSIGN_OR_RETURN(const KvLayout layout, KvLayout::Make(model.plan.kv_layers, options.kv));
    options.kv_blocks = layout.BlocksForAll(1, kPrompt + 1, kPrompt);
    probe.table_.resize(static_cast<size_t>(CeilDiv(kPrompt + 1, options.kv.block_size)));
    std::iota(probe.table_.begin(), probe.table_.end(), 0);
    LUCID_ASSIGN_OR_RETURN(probe.runner_, Runner::Create(model, options));
    return probe;
  }

  // The median of several such steps, its parts scaled to what a step takes that nobody observes.
  Parts Measure(int64_t start, int64_t count, int times) {
    Workload work;
    work.sequences = {{.start = start, .count = count}};
    work.outputs = 1;
    work.weight_dtypes = types_;
    std::vector<double> plain;
    std::vector<Parts> observed;
    for (int i = 0; i <= times; ++i) {
      const Clock::time_point begin = Clock::now();
      Step(start, count, nullptr);
      plain.push_back(SecondsSince(begin));
      PartTimer timer(work, observed.emplace_back());
      Step(start, count, &timer);
    }
    plain.erase(plain.begin());  // pages are touched first
    observed.erase(observed.begin());
    const auto middle = static_cast<std::ptrdiff_t>(plain.size() / 2);
    std::nth_element(plain.begin(), plain.begin() + middle, plain.end());
    std::nth_element(observed.begin(), observed.begin() + middle, observed.end(),
                     [](const Parts& a, const Parts& b) { return a.seconds() < b.seconds(); });
    Parts parts = observed[static_cast<size_t>(middle)];
    const double scale = std::min(1.0, plain[static_cast<size_t>(middle)] / parts.seconds());
    parts.products *= scale;
    parts.attention *= scale;
    parts.others *= scale;
    return parts;
  }

 private:
  void Step(int64_t start, int64_t count, Observer* observer) {
    batch_.Clear();
    batch_.AddSequence(table_);
    for (int64_t i = 0; i < count; ++i) {
      batch_.AddToken(static_cast<int32_t>(i % kVocab), start + i,
                      count == 1 ? Phase::kGenerated : Phase::kPrompt, i + 1 == count);
    }
    runner_->Run(batch_, observer);
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

Result<KernelSpeed> MeasureKernels(DType weights, Numerics numerics, int threads, int64_t bytes) {
  LUCID_ASSIGN_OR_RETURN(Probe probe, Probe::Make(weights, numerics, threads, bytes));
  const Parts prompt = probe.Measure(0, kPrompt, kPrompts);
  const Parts token = probe.Measure(kPrompt, 1, kTokens);
  KernelSpeed speed{.weights = std::string(Name(weights)),
                    .numerics = std::string(Name(numerics)),
                    .threads = threads};
  speed.op_seconds = token.others / token.n_others;
  speed.stream_bytes_per_second =
      Rate(token.of_products.weight_bytes, token.products, token.n_products, speed.op_seconds);
  speed.macs_per_second =
      Rate(prompt.of_products.macs, prompt.products, prompt.n_products, speed.op_seconds);
  speed.attention_macs_per_second =
      Rate(prompt.of_attention.macs, prompt.attention, prompt.n_attention, speed.op_seconds);
  speed.activation_bytes_per_second =
      Rate(prompt.of_others.activation_bytes, prompt.others, prompt.n_others, speed.op_seconds);
  return speed;
}

}  // namespace lucid
