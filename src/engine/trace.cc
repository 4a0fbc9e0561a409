#include "engine/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "exec/batch.h"
#include "plan/print.h"

namespace lucid {
namespace {

// What costs depend on beside the step.
Workload TypesOf(const Weights& weights, const KvOptions& kv) {
  Workload types;
  types.k_type = kv.k_type;
  types.v_type = kv.v_type;
  types.kv_block_size = kv.block_size;
  types.weight_dtypes = weights.dtypes();
  return types;
}

// Whether a token of the step is of a phase that the op computes.
bool HasWork(const Op& op, const Workload& work) {
  return std::ranges::any_of(std::array{Phase::kPrompt, Phase::kGenerated}, [&](Phase phase) {
    return Computes(op, phase) && !work.OfPhase(phase).sequences.empty();
  });
}

}  // namespace

void TraceRecorder::AfterOp(const ObservedOp& observed) {
  const Workload work = WorkloadOf(observed.step, TypesOf(weights_, kv_));
  const Sizes sizes = work.sizes();
  const auto operand = [&](const std::string& role, Value v) {
    const ValueInfo& info = observed.plan.Info(v);
    TracedOperand traced{role, info.name, "F32", info.shape.ToString(), info.shape.ToString(sizes)};
    switch (info.kind) {
      case ValueKind::kActivation:
        break;
      case ValueKind::kWeight:
        traced.dtype = Name(weights_.dtypes()[static_cast<size_t>(v.id)]);
        break;
      case ValueKind::kKv:
        traced.dtype = fmt::format("{}/{}", Name(kv_.k_type), Name(kv_.v_type));
        break;
      case ValueKind::kBatch:
        traced.dtype = "I32";
        break;
    }
    return traced;
  };
  TracedOp traced;
  traced.name = observed.op.name;
  traced.kind = Info(observed.op.kind).name;
  traced.kernel = observed.kernel;
  traced.attributes = PrintAttrs(observed.op);
  const std::vector<std::string> roles = InputRoles(observed.op);
  for (size_t i = 0; i < observed.op.inputs.size(); ++i) {
    if (observed.op.inputs[i].present())
      traced.inputs.push_back(operand(roles[i], observed.op.inputs[i]));
  }
  for (const Value v : observed.op.outputs) traced.outputs.push_back(operand("out", v));
  traced.idle = !HasWork(observed.op, work);
  traced.cost = ExecutedCost(observed, work);
  traced.nanoseconds = observed.nanoseconds;
  ops_.push_back(std::move(traced));
}

std::string PrintTrace(const std::vector<TracedOp>& ops) {
  std::string text;
  Cost total;
  int64_t nanoseconds = 0;
  for (const TracedOp& op : ops) {
    if (op.idle) {
      text += fmt::format("{}  {}  idle in this step ({})\n", op.name, op.kind, op.attributes);
      continue;
    }
    text += fmt::format("{}  {}  [{}]  {:.1f} us  {} FLOP  {} B\n", op.name, op.kind, op.kernel,
                        static_cast<double>(op.nanoseconds) / 1e3, op.cost.flops,
                        op.cost.weight_bytes + op.cost.kv_read_bytes + op.cost.kv_write_bytes);
    if (!op.attributes.empty()) text += fmt::format("    {}\n", op.attributes);
    const auto print = [&](const TracedOperand& o) {
      text += fmt::format("    {:<12} {:<32} {:<8} {} = {}\n", o.role, o.name, o.dtype, o.symbolic,
                          o.concrete);
    };
    std::for_each(op.inputs.begin(), op.inputs.end(), print);
    std::for_each(op.outputs.begin(), op.outputs.end(), print);
    total += op.cost;
    nanoseconds += op.nanoseconds;
  }
  return text +
         fmt::format("{} ops, {:.3f} ms, {} FLOP, weights {} B, KV read {} B, KV written {} B\n",
                     ops.size(), static_cast<double>(nanoseconds) / 1e6, total.flops,
                     total.weight_bytes, total.kv_read_bytes, total.kv_write_bytes);
}

nlohmann::ordered_json TraceJson(const std::vector<TracedOp>& ops) {
  using Json = nlohmann::ordered_json;
  const auto operands = [](const std::vector<TracedOperand>& list) {
    Json array = Json::array();
    for (const TracedOperand& o : list) {
      array.push_back({{"role", o.role},
                       {"name", o.name},
                       {"dtype", o.dtype},
                       {"shape_symbolic", o.symbolic},
                       {"shape", ParseJson(o.concrete, "a shape").value_or(Json(o.concrete))}});
    }
    return array;
  };
  Json array = Json::array();
  for (const TracedOp& op : ops) {
    array.push_back({{"name", op.name},
                     {"op", op.kind},
                     {"kernel", op.kernel},
                     {"attributes", op.attributes},
                     {"inputs", operands(op.inputs)},
                     {"outputs", operands(op.outputs)},
                     {"idle", op.idle},
                     {"flops", op.cost.flops},
                     {"weight_bytes", op.cost.weight_bytes},
                     {"kv_read_bytes", op.cost.kv_read_bytes},
                     {"kv_write_bytes", op.cost.kv_write_bytes},
                     {"activation_bytes", op.cost.activation_bytes},
                     {"nanoseconds", op.nanoseconds}});
  }
  return array;
}

}  // namespace lucid
