#include "exec/step_record.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/check.h"
#include "kernels/kv_place.h"
#include "kernels/reference/reference.h"
#include "kernels/table.h"
#include "plan/op_table.h"

namespace lucid {
namespace {

bool IsNorm(OpKind kind) {
  return kind == OpKind::kRmsNorm || kind == OpKind::kLayerNorm;
}

// The values of the residual stream: the embedding, and every sum of the stream, or of its norm,
// with what a half of a block gives. What mixes experts is a sum of other things.
std::set<int32_t> ResidualValues(const Plan& plan) {
  std::set<int32_t> stream;
  std::set<int32_t> normed;
  const auto follows = [&](Value v) { return stream.contains(v.id) || normed.contains(v.id); };
  for (const Op& op : plan.ops) {
    const int32_t out = op.outputs[0].id;
    if (plan.Info(op.outputs[0]).name == "embed") stream.insert(out);
    if (IsNorm(op.kind) && stream.contains(op.inputs[0].id)) normed.insert(out);
    if (op.kind != OpKind::kAdd && op.kind != OpKind::kAddRmsNorm) continue;
    if (!follows(op.inputs[0]) && !follows(op.inputs[1])) continue;
    stream.insert(out);
    if (op.kind == OpKind::kAddRmsNorm) normed.insert(op.outputs[1].id);
  }
  return stream;
}

// Goes back from queries, keys and values to the products that made them, and notes the rotations
// on the way.
class RotationFinder {
 public:
  RotationFinder(const Plan& plan, std::map<int32_t, RotatedPart>& found)
      : plan_(plan), found_(found) {}

  void Find() {
    for (const Op& op : plan_.ops) {
      if (op.kind == OpKind::kRope || op.kind == OpKind::kNormRope) {
        found_.try_emplace(op.outputs[0].id, RotatedPart::kNothing);
      }
      if (op.kind == OpKind::kAttention || op.kind == OpKind::kMlaAttention) {
        Walk(op.inputs[0], RotatedPart::kQuery);
      }
      if (op.kind != OpKind::kKvStore) continue;
      if (op.inputs[2].present()) {
        Walk(op.inputs[1], RotatedPart::kKey);
        Walk(op.inputs[2], RotatedPart::kValue);
        continue;
      }
      // Latent: values are made of the first part alone, positions are in the second.
      const int32_t producer = plan_.Info(op.inputs[1]).producer;
      const Op& joined = plan_.ops[static_cast<size_t>(producer)];
      LUCID_CHECK(joined.kind == OpKind::kConcat, "{} stores no latent and rotated part", op.name);
      Walk(joined.inputs[0], RotatedPart::kValue);
      Walk(joined.inputs[1], RotatedPart::kKey);
    }
  }

 private:
  void Walk(Value v, RotatedPart part) {
    const int32_t producer = plan_.Info(v).producer;
    if (producer < 0) return;
    const Op& op = plan_.ops[static_cast<size_t>(producer)];
    switch (op.kind) {
      case OpKind::kRope:
      case OpKind::kNormRope:
        found_[v.id] = part;
        Walk(op.inputs[0], part);
        break;
      case OpKind::kRmsNorm:
      case OpKind::kLayerNorm:
      case OpKind::kClamp:
      case OpKind::kScale:
      case OpKind::kHeadLinear:
        Walk(op.inputs[0], part);
        break;
      case OpKind::kConcat:
        Walk(op.inputs[0], part);
        Walk(op.inputs[1], part);
        break;
      default:  // a product of the layer's input
        break;
    }
  }

  const Plan& plan_;
  std::map<int32_t, RotatedPart>& found_;
};

int32_t KvLayerOf(const ObservedOp& observed, size_t input) {
  return observed.plan.Info(observed.op.inputs[input]).kv_layer;
}

// Differences as a part of the greatest number that was expected.
class Deviation {
 public:
  void Add(double got, double want) {
    difference_ = std::max(difference_, std::abs(got - want));
    if (!std::isfinite(got)) difference_ = INFINITY;
    greatest_ = std::max(greatest_, std::abs(want));
  }
  double relative() const { return greatest_ > 0 ? difference_ / greatest_ : difference_; }

 private:
  double difference_ = 0, greatest_ = 0;
};

using Memory = std::vector<std::max_align_t>;
Memory Scratch(size_t bytes) {
  return Memory(bytes / sizeof(std::max_align_t) + 1);
}
std::byte* Bytes(Memory& memory) {
  return reinterpret_cast<std::byte*>(memory.data());
}

// What attention gave beside what the reference kernel gives on the same operands.
template <typename Args>
double OutputError(const Args& args, KernelFn reference, size_t scratch_bytes,
                   const ObservedOp& observed) {
  const std::span<const float> got = observed.Read(observed.op.outputs[0]);
  std::vector<float> want(got.size());
  Args own = args;
  own.y = want.data();
  StepView step = observed.step;
  step.scores = nullptr;  // sums of evicted caches are added up once
  Memory scratch = Scratch(scratch_bytes);
  reference(&own, step, {.index = 0, .count = 1, .scratch = Bytes(scratch), .shared = nullptr});
  const size_t width = got.size() / static_cast<size_t>(step.n_tokens);
  double difference = 0, size = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const bool generated = IsGenerated(step, static_cast<int64_t>(i / width));
    if (!Computes(observed.op, generated ? Phase::kGenerated : Phase::kPrompt)) continue;
    difference += std::pow(static_cast<double>(got[i]) - want[i], 2);
    size += std::pow(static_cast<double>(want[i]), 2);
  }
  return size > 0 ? std::sqrt(difference / size) : std::sqrt(difference);
}

uint64_t HashRow(const KvArray& array, const int32_t* table, int64_t place, int64_t n_heads,
                 uint64_t hash) {
  for (int64_t head = 0; head < n_heads; ++head) {
    hash = XXH3_64bits_withSeed(RowOf(array, table, place, head),
                                static_cast<size_t>(array.row_bytes), hash);
  }
  return hash;
}

// Of kivi2 the newest positions, which are rows.
const KvPages& RowPages(const KvView& kv) {
  return HasRecent(kv) ? kv.recent : kv.pages;
}

}  // namespace

void StepRecorder::Prepare(const Plan& plan) {
  plan_ = &plan;
  residual_ = ResidualValues(plan);
  RotationFinder(plan, rotated_).Find();
}

void StepRecorder::Begin(const StepView& step) {
  StepRecord& record = steps_.emplace_back();
  record.sequences.resize(static_cast<size_t>(step.n_sequences));
  for (int32_t t = 0; t < step.n_tokens; ++t) {
    RecordedSequence& sequence = record.sequences[static_cast<size_t>(step.sequence[t])];
    if (sequence.count++ == 0) sequence.start = step.positions[t];
    sequence.generated = IsGenerated(step, t);
  }
  stores_.clear();
}

void StepRecorder::AfterOp(const ObservedOp& observed) {
  if (plan_ == nullptr) Prepare(observed.plan);
  if (&observed.op == &observed.plan.ops.front()) Begin(observed.step);
  if (residual_.contains(observed.op.outputs[0].id)) RecordResidual(observed);
  switch (observed.op.kind) {
    case OpKind::kKvStore:
      RecordStore(observed);
      break;
    case OpKind::kAttention:
    case OpKind::kMlaAttention:
      RecordAttention(observed);
      break;
    case OpKind::kRope:
    case OpKind::kNormRope:
      RecordRotation(observed);
      break;
    default:
      break;
  }
  if (&observed.op == &observed.plan.ops.back()) RecordCaches(observed.step);
}

void StepRecorder::RecordResidual(const ObservedOp& observed) {
  const int64_t rows = observed.step.n_tokens;
  const auto numbers = std::ssize(observed.Read(observed.op.outputs[0]));
  steps_.back().residual.push_back({.op = observed.op.name,
                                    .layer = LayerOfName(observed.op.name),
                                    .rows = rows,
                                    .width = numbers / rows});
}

void StepRecorder::RecordStore(const ObservedOp& observed) {
  const auto& args = *static_cast<const KvStoreArgs*>(observed.args);
  const KvView& kv = args.kv;
  const StepView& step = observed.step;
  stores_[kv.layer] = &args;
  const bool latent = kv.v_dim == 0;
  const KvArray array = latent ? KeysOf(kv, RowPages(kv)) : ValuesOf(kv, RowPages(kv));
  const std::span<const float> given = observed.Read(observed.op.inputs[latent ? 1 : 2]);
  std::vector<std::byte> encoded(static_cast<size_t>(array.row_bytes));
  std::vector<float> want(static_cast<size_t>(array.dim));
  std::vector<float> got(want.size());
  Deviation deviation;
  for (int64_t t = 0; t < step.n_tokens; ++t) {
    const int32_t* table = step.Table(RowPages(kv), step.sequence[t]);
    for (int64_t head = 0; head < kv.n_heads; ++head) {
      EncodeKvRow(array.type, given.data() + (t * kv.n_heads + head) * array.dim, encoded.data(),
                  array.dim);
      DecodeKvRow(array.type, encoded.data(), want.data(), array.dim);
      DecodeKvRow(array.type, RowOf(array, table, PlaceOf(kv, step, t), head), got.data(),
                  array.dim);
      for (size_t i = 0; i < got.size(); ++i) deviation.Add(got[i], want[i]);
    }
  }
  steps_.back().values.push_back(
      {.op = observed.op.name, .layer = kv.layer, .error = deviation.relative()});
}

void StepRecorder::RecordAttention(const ObservedOp& observed) {
  StepRecord& record = steps_.back();
  const StepView& step = observed.step;
  const int32_t layer = KvLayerOf(observed, 1);
  const KvSpec& spec = observed.plan.kv_layers[static_cast<size_t>(layer)];
  std::optional<AttentionMap> map = AttentionWeightsOf(observed);
  if (!map || map->queries.empty()) return;  // the form of the other phase
  const int64_t n_heads = map->n_heads;
  const auto q_numbers = std::ssize(observed.Read(observed.op.inputs[0]));
  double error = 0;
  int64_t q_dim = spec.k_dim;
  if (observed.op.kind == OpKind::kAttention) {
    error = OutputError(*static_cast<const AttentionArgs*>(observed.args), reference::Attention,
                        reference::AttentionScratch(observed.args, 0), observed);
  } else {
    const auto& args = *static_cast<const MlaArgs*>(observed.args);
    q_dim = args.nope + args.rope;
    error = OutputError(args, reference::MlaAttention,
                        reference::MlaAttentionScratch(observed.args, 0), observed);
  }
  record.outputs.push_back({.op = observed.op.name, .layer = layer, .error = error});
  const KvStoreArgs& stored = *stores_.at(layer);
  const Op& store =
      observed.plan.ops[static_cast<size_t>(observed.plan.Info(observed.op.inputs[1]).producer)];
  const auto numbers = [&](Value v) {
    return v.present() ? observed.plan.Info(v).shape.Width() * step.n_tokens : 0;
  };
  record.heads.push_back({.op = observed.op.name,
                          .layer = layer,
                          .n_q = n_heads,
                          .n_kv = stored.kv.n_heads,
                          .q_dim = q_dim,
                          .k_dim = stored.kv.k_dim,
                          .v_dim = stored.kv.v_dim,
                          .rows = step.n_tokens,
                          .q_numbers = q_numbers,
                          .k_numbers = numbers(store.inputs[1]),
                          .v_numbers = numbers(store.inputs[2])});
  record.attention.push_back(*std::move(map));
}

void StepRecorder::RecordRotation(const ObservedOp& observed) {
  const bool with_norm = observed.op.kind == OpKind::kNormRope;
  const RmsNormArgs* const norm =
      with_norm ? &static_cast<const NormRopeArgs*>(observed.args)->norm : nullptr;
  const RopeArgs& rope = with_norm ? static_cast<const NormRopeArgs*>(observed.args)->rope
                                   : *static_cast<const RopeArgs*>(observed.args);
  const StepView& step = observed.step;
  const std::span<const float> x = observed.Read(observed.op.inputs[0]);
  const std::span<const float> y = observed.Read(observed.op.outputs[0]);
  std::vector<float> in(static_cast<size_t>(rope.head_dim));
  std::vector<float> want(in.size());
  Deviation deviation;
  bool moved = false;
  for (int64_t row = 0; row < step.n_tokens * rope.n_heads; ++row) {
    const int64_t token = row / rope.n_heads;
    const int64_t at = row * rope.head_dim;
    std::copy_n(x.data() + at, rope.head_dim, in.data());
    if (norm != nullptr) {
      reference::NormalizeGroup(in.data(), norm->weight, in.data(), rope.head_dim, norm->eps);
    }
    reference::RotateHead(rope, step, token, in.data(), want.data());
    for (size_t i = 0; i < want.size(); ++i) {
      deviation.Add(y[static_cast<size_t>(at) + i], want[i]);
      // A rounding more or less is no rotation.
      const double turn = std::abs(static_cast<double>(want[i]) - in[i]);
      moved = moved || (step.positions[token] > 0 && turn > 1e-4 * std::abs(in[i]));
    }
  }
  steps_.back().rotations.push_back({.op = observed.op.name,
                                     .layer = LayerOfName(observed.op.name),
                                     .part = rotated_.at(observed.op.outputs[0].id),
                                     .error = deviation.relative(),
                                     .moved = moved});
}

void StepRecorder::RecordCaches(const StepView& step) {
  for (const auto& [layer, args] : stores_) {
    const KvView& kv = args->kv;
    const KvPages& pages = RowPages(kv);
    const KvArray keys = KeysOf(kv, pages);
    const KvArray values = ValuesOf(kv, pages);
    for (int64_t begin = 0; begin < step.n_tokens;) {
      const int64_t end = SequenceEnd(step, begin);
      const int32_t sequence = step.sequence[begin];
      const int32_t* table = step.Table(pages, sequence);
      RecordedCache cache{.layer = layer, .sequence = sequence, .places = {}};
      for (int64_t place = 0; place <= PlaceOf(kv, step, end - 1); ++place) {
        uint64_t hash = 0;
        if (table[place / kv.block_size] >= 0) {
          hash = HashRow(keys, table, place, kv.n_heads, /*hash=*/1);
          if (kv.v_dim > 0) hash = HashRow(values, table, place, kv.n_heads, hash);
        }
        cache.places.push_back(hash);
      }
      steps_.back().cache.push_back(std::move(cache));
      begin = end;
    }
  }
}

}  // namespace lucid
