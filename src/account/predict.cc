#include "account/predict.h"

#include <algorithm>
#include <vector>

#include "account/ledger.h"

namespace lucid {
namespace {

// The matrices that an op multiplies with, and their parts of its cost.
struct MatrixShare {
  DType type = DType::kF32;
  double bytes = 0;   // of all matrices' bytes, the part
  double params = 0;  // and of their numbers
};

std::vector<MatrixShare> MatricesOf(const Plan& plan, const Op& op, const Workload& work) {
  std::vector<MatrixShare> shares;
  if (op.kind == OpKind::kEmbed) return shares;
  double bytes = 0, params = 0;
  for (const Value v : op.inputs) {
    if (!v.present() || plan.Info(v).kind != ValueKind::kWeight) continue;
    const ValueInfo& info = plan.Info(v);
    if (info.shape.rank < 2 || info.name.ends_with(".bias")) continue;
    const DType type =
        work.weight_dtypes.empty() ? DType::kF32 : work.weight_dtypes[static_cast<size_t>(v.id)];
    const auto n = static_cast<double>(info.shape.Elements({}));
    const double size = n * static_cast<double>(Info(type).block_bytes) /
                        static_cast<double>(Info(type).block_elems);
    shares.push_back({type, size, n});
    bytes += size;
    params += n;
  }
  for (MatrixShare& share : shares) {
    share.bytes /= bytes;
    share.params /= params;
  }
  return shares;
}

// The kernels of that type, else those of the type nearest in size.
const KernelSpeed& KernelFor(const Hardware& hardware, DType type) {
  const auto bits = [](DType t) {
    return static_cast<double>(Info(t).block_bytes) / static_cast<double>(Info(t).block_elems);
  };
  const KernelSpeed* best = nullptr;
  double least = 0;
  for (const KernelSpeed& kernel : hardware.kernels) {
    const std::optional<DType> of = DTypeFromName(kernel.weights);
    const double distance =
        of ? std::max(bits(type), bits(*of)) / std::min(bits(type), bits(*of)) : 1e9;
    if (kernel.weights == Name(type)) return kernel;
    if (best == nullptr || distance < least) {
      best = &kernel;
      least = distance;
    }
  }
  return *best;
}

bool IsAttention(OpKind kind) {
  return kind == OpKind::kAttention || kind == OpKind::kMlaAttention;
}

// Multiply-adds of attention a second in that step.
double AttentionRate(const Hardware& hardware, const Workload& work) {
  const bool tokens = std::ranges::all_of(work.sequences, Workload::IsGenerated);
  const KernelSpeed& kernel = hardware.kernels.front();
  return tokens ? kernel.token_attention_macs_per_second : kernel.attention_macs_per_second;
}

OpTime MeasuredTime(const Hardware& hardware, const std::vector<MatrixShare>& matrices,
                    const Op& op, const Workload& work, const Cost& cost) {
  const KernelSpeed& any = hardware.kernels.front();
  OpTime time;
  time.other = any.op_seconds;
  time.memory = static_cast<double>(cost.kv_read_bytes) / hardware.bytes_per_second;
  if (IsAttention(op.kind)) {
    time.arithmetic = static_cast<double>(cost.macs) / AttentionRate(hardware, work);
  }
  for (const MatrixShare& share : matrices) {
    const KernelSpeed& kernel = KernelFor(hardware, share.type);
    time.memory +=
        static_cast<double>(cost.weight_bytes) * share.bytes / kernel.stream_bytes_per_second;
    if (!IsAttention(op.kind)) {
      time.arithmetic += static_cast<double>(cost.macs) * share.params / kernel.macs_per_second;
    }
  }
  if (cost.macs == 0) {
    time.other += static_cast<double>(cost.activation_bytes) / any.activation_bytes_per_second;
  }
  return time;
}

}  // namespace

OpTime TimeOf(const Hardware& hardware, const Plan& plan, const Op& op, const Workload& work,
              const Cost& cost) {
  const std::vector<MatrixShare> matrices = MatricesOf(plan, op, work);
  if (!hardware.kernels.empty()) return MeasuredTime(hardware, matrices, op, work, cost);
  OpTime time;
  time.memory = static_cast<double>(cost.weight_bytes + cost.kv_read_bytes + cost.kv_write_bytes) /
                hardware.bytes_per_second;
  const auto flops = static_cast<double>(cost.flops);
  if (matrices.empty()) time.arithmetic = flops / hardware.FlopsFor(DType::kF16);
  for (const MatrixShare& share : matrices) {
    time.arithmetic += flops * share.params / hardware.FlopsFor(share.type);
  }
  return time;
}

LeastTimes LeastTimesOf(const Hardware& hardware, const Plan& plan, const Op& op,
                        const Workload& work, const Cost& cost) {
  LeastTimes least;
  least.reading =
      static_cast<double>(cost.weight_bytes + cost.kv_read_bytes) / hardware.bytes_per_second;
  if (IsAttention(op.kind)) {
    least.computing = static_cast<double>(cost.macs) / AttentionRate(hardware, work);
    return least;
  }
  for (const MatrixShare& share : MatricesOf(plan, op, work)) {
    const KernelSpeed& kernel = KernelFor(hardware, share.type);
    const double decoding =
        static_cast<double>(cost.weight_bytes) * share.bytes / kernel.cached_bytes_per_second;
    const double products = static_cast<double>(cost.macs) * share.params / kernel.macs_per_second;
    least.computing += std::max(decoding, products);
    least.quantised = least.quantised || Info(share.type).block_elems > 1;
  }
  return least;
}

StepTime PredictStep(const Hardware& hardware, const Plan& plan, const Workload& work) {
  StepTime step;
  for (const Op& op : plan.ops) {
    const Cost cost = Info(op.kind).cost(plan, op, work);
    const OpTime time = TimeOf(hardware, plan, op, work, cost);
    step.seconds += time.seconds();
    step.memory += time.memory;
    step.arithmetic += time.arithmetic;
  }
  step.roof = std::max(step.memory, step.arithmetic);
  return step;
}

StepTime PredictPrompts(const Hardware& hardware, const Plan& plan, int64_t batch, int64_t tokens,
                        int64_t step_tokens, const Workload& types) {
  StepTime sum;
  const auto add = [&](const Workload& work) {
    const StepTime step = PredictStep(hardware, plan, work);
    sum.seconds += step.seconds;
    sum.memory += step.memory;
    sum.arithmetic += step.arithmetic;
    sum.roof += step.roof;
  };
  Workload work = types;
  int64_t left = step_tokens;  // of the step that is being filled
  for (int64_t s = 0; s < batch; ++s) {
    for (int64_t at = 0; at < tokens;) {
      const int64_t count = std::min(left, tokens - at);
      work.sequences.push_back({.start = at, .count = count});
      at += count;
      left -= count;
      if (at == tokens) ++work.outputs;
      if (left > 0) continue;
      add(work);
      work = types;
      left = step_tokens;
    }
  }
  if (!work.sequences.empty()) add(work);
  return sum;
}

int64_t ComputeBoundBatch(const Hardware& hardware, const Plan& plan, int64_t context,
                          const Workload& types) {
  const auto computes = [&](int64_t batch) {
    return !PredictStep(hardware, plan, DecodeWork(batch, context, types)).by_memory();
  };
  constexpr int64_t kMost = 16384;
  int64_t above = 1;
  while (above <= kMost && !computes(above)) above *= 2;
  if (above > kMost) return 0;
  int64_t below = above / 2;
  while (above - below > 1) {
    const int64_t middle = (above + below) / 2;
    (computes(middle) ? above : below) = middle;
  }
  return above;
}

}  // namespace lucid
