#include "account/ledger.h"

#include <algorithm>
#include <charconv>
#include <set>

namespace lucid {
namespace {

// The layer of "blk.12.attn_q" and the rest; -1 and the whole name outside of layers.
std::pair<int, std::string_view> SplitName(std::string_view name) {
  if (!name.starts_with("blk.")) return {-1, name};
  const size_t end = name.find('.', 4);
  int layer = -1;
  std::from_chars(name.data() + 4, name.data() + std::min(end, name.size()), layer);
  return {layer, end == std::string_view::npos ? "" : name.substr(end + 1)};
}

bool IsNorm(OpKind kind) {
  return kind == OpKind::kRmsNorm || kind == OpKind::kLayerNorm || kind == OpKind::kAddRmsNorm;
}

bool IsExperts(OpKind kind) {
  return kind == OpKind::kRoute || kind == OpKind::kExpertGlu || kind == OpKind::kExpertLinear ||
         kind == OpKind::kMixExperts;
}

// The plan's own names say what belongs together: blk.<i>.attn... and blk.<i>.ffn... (names.h).
Part PartOf(const Op& op) {
  const auto [layer, name] = SplitName(op.name);
  if (op.kind == OpKind::kEmbed) return Part::kEmbedding;
  if (IsNorm(op.kind)) return Part::kNorm;
  if (IsExperts(op.kind)) return Part::kExperts;
  if (layer < 0) return Part::kHead;
  if (name.starts_with("attn") || name.starts_with("kv")) return Part::kAttention;
  const bool experts = name.starts_with("ffn_gate_inp") || name.find("shexp") != name.npos;
  return experts ? Part::kExperts : Part::kFfn;
}

bool IsWeight(const Plan& plan, Value v) {
  return v.present() && plan.Info(v).kind == ValueKind::kWeight;
}

int64_t ParamsOf(const ValueInfo& info) {
  return info.shape.Elements({});
}

DType TypeOf(std::span<const DType> dtypes, Value v) {
  return dtypes.empty() ? DType::kF32 : dtypes[static_cast<size_t>(v.id)];
}

int64_t BytesOf(const ValueInfo& info, DType type) {
  const int64_t cols = info.shape[info.shape.rank - 1].size;
  return ParamsOf(info) / cols * RowBytes(type, cols);
}

// "Q4_K+Q6_K": the types of an op's matrices, each once.
std::string TypesOf(const Plan& plan, const Op& op, std::span<const DType> dtypes) {
  std::string text;
  std::set<DType> seen;
  for (const Value v : op.inputs) {
    if (!IsWeight(plan, v) || plan.Info(v).shape.rank < 2 || plan.Info(v).name.ends_with(".bias")) {
      continue;
    }
    const DType type = TypeOf(dtypes, v);
    if (seen.insert(type).second) text += (text.empty() ? "" : "+") + std::string(Name(type));
  }
  return text;
}

// Of an op with experts, which part of them a token uses.
double UsedPart(const Plan& plan, const Op& op, Value weight) {
  if (op.kind != OpKind::kExpertGlu && op.kind != OpKind::kExpertLinear) return 1;
  const auto used = static_cast<double>(plan.Info(op.inputs[1]).shape[1].size);
  return used / static_cast<double>(plan.Info(weight).shape[0].size);
}

struct WeightsAndKeys {
  int64_t weights = 0, keys = 0;
};

WeightsAndKeys DecodeBytes(const Plan& plan, int64_t context, const Workload& types) {
  const Workload work = DecodeWork(1, context, types);
  WeightsAndKeys bytes;
  for (const Op& op : plan.ops) {
    const Cost cost = Info(op.kind).cost(plan, op, work);
    bytes.weights += cost.weight_bytes;
    bytes.keys += cost.kv_read_bytes;
  }
  return bytes;
}

}  // namespace

std::string_view Name(Part part) {
  constexpr std::array<std::string_view, kParts> kNames = {"embedding", "attention", "feed-forward",
                                                           "experts",   "norms",     "output"};
  return kNames[static_cast<size_t>(part)];
}

std::vector<LedgerWeight> ListWeights(const Plan& plan, std::span<const DType> dtypes) {
  std::vector<LedgerWeight> weights;
  std::set<int32_t> seen;
  for (const Op& op : plan.ops) {
    for (const Value v : op.inputs) {
      if (!IsWeight(plan, v) || !seen.insert(v.id).second) continue;
      const ValueInfo& info = plan.Info(v);
      const DType type = TypeOf(dtypes, v);
      weights.push_back({.name = info.name,
                         .part = PartOf(op),
                         .dtype = type,
                         .params = ParamsOf(info),
                         .bytes = BytesOf(info, type),
                         .used = UsedPart(plan, op, v)});
    }
  }
  return weights;
}

double Ledger::intensity() const {
  const int64_t bytes = memory_bytes();
  return bytes > 0 ? static_cast<double>(total.flops) / static_cast<double>(bytes) : 0;
}

Ledger MakeLedger(const Plan& plan, const Workload& work) {
  Workload square = work;
  square.causal = false;
  Ledger ledger;
  for (const Op& op : plan.ops) {
    LedgerRow row;
    row.name = op.name;
    row.kind = op.kind;
    row.layer = SplitName(op.name).first;
    row.part = PartOf(op);
    row.shape = plan.Info(op.outputs.front()).shape;
    row.weights = TypesOf(plan, op, work.weight_dtypes);
    row.cost = Info(op.kind).cost(plan, op, work);
    row.square_flops = Info(op.kind).cost(plan, op, square).flops;
    ledger.total += row.cost;
    ledger.square_flops += row.square_flops;
    ledger.parts[static_cast<size_t>(row.part)] += row.cost;
    ledger.rows.push_back(std::move(row));
  }
  return ledger;
}

Workload PromptWork(int64_t batch, int64_t tokens, const Workload& types) {
  Workload work = types;
  work.sequences.assign(static_cast<size_t>(batch), {.start = 0, .count = tokens});
  work.outputs = batch;
  return work;
}

Workload DecodeWork(int64_t batch, int64_t context, const Workload& types) {
  Workload work = types;
  work.sequences.assign(static_cast<size_t>(batch), {.start = context - 1, .count = 1});
  work.outputs = batch;
  return work;
}

int64_t StreamedBytes(const Plan& plan, std::span<const DType> dtypes) {
  Workload types;
  types.weight_dtypes = dtypes;
  int64_t bytes = 0;
  for (const Op& op : plan.ops) {
    if (op.kind == OpKind::kEmbed) continue;
    bytes += Info(op.kind).cost(plan, op, DecodeWork(1, 2, types)).weight_bytes;
  }
  return bytes;
}

int64_t KvPassesWeights(const Plan& plan, const Workload& types) {
  const auto passes = [&](int64_t context) {
    const WeightsAndKeys bytes = DecodeBytes(plan, context, types);
    return bytes.keys >= bytes.weights;
  };
  constexpr int64_t kMost = int64_t{1} << 31;
  if (!passes(kMost)) return 0;
  int64_t below = 1, at = kMost;  // passes(at), and hardly ever passes(below)
  while (at - below > 1) {
    const int64_t middle = below + (at - below) / 2;
    (passes(middle) ? at : below) = middle;
  }
  return at;
}

}  // namespace lucid
