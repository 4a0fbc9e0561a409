#include "account/kernel_use.h"

#include <algorithm>
#include <cctype>

#include "kernels/table.h"
#include "plan/op_table.h"
#include "tensor/dtype.h"

namespace lucid {
namespace {

// "blk.17.attn_q" -> "blk.*.attn_q".
std::string WithoutLayer(const std::string& name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return name;
  size_t end = kPrefix.size();
  while (end < name.size() && std::isdigit(static_cast<unsigned char>(name[end])) != 0) ++end;
  return std::string(kPrefix) + "*" + name.substr(end);
}

bool MultipliesWeights(OpKind kind) {
  return kind == OpKind::kLinear || kind == OpKind::kLinearGroup || kind == OpKind::kGluLinear ||
         kind == OpKind::kExpertGlu || kind == OpKind::kExpertLinear || kind == OpKind::kHeadLinear;
}

// "rms_norm, linear": each op once, in the table's order.
std::string OpsOf(const KernelTable& table) {
  std::vector<std::string_view> names;
  std::string text;
  for (const Kernel& kernel : table.kernels) {
    const std::string_view name = Name(kernel.op);
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    names.push_back(name);
    text += (text.empty() ? "" : ", ") + std::string(name);
  }
  return text;
}

}  // namespace

std::vector<MatrixKernel> MatrixKernels(const Runner& runner, const Weights& weights) {
  std::vector<MatrixKernel> rows;
  const Plan& plan = runner.plan();
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    if (!MultipliesWeights(op.kind)) continue;
    const BoundOp& bound = runner.bound().ops[i];
    for (const Value v : op.inputs) {
      if (!v.present() || plan.Info(v).kind != ValueKind::kWeight) continue;
      const ValueInfo& info = plan.Info(v);
      const int rank = info.shape.rank;
      if (rank < 2 || info.name.ends_with(".bias")) continue;
      const int64_t matrices = rank == 3 ? info.shape[0].size : 1;
      MatrixKernel row{.name = WithoutLayer(info.name),
                       .dtype = std::string(Name(weights.dtypes()[static_cast<size_t>(v.id)])),
                       .n_out = info.shape[rank - 2].size,
                       .n_in = info.shape[rank - 1].size,
                       .count = matrices,
                       .kernel = bound.kernel->name,
                       .refused = bound.refused};
      const auto same = std::find_if(rows.begin(), rows.end(), [&row](const MatrixKernel& r) {
        return r.name == row.name && r.dtype == row.dtype && r.n_out == row.n_out &&
               r.n_in == row.n_in && r.kernel == row.kernel && r.refused == row.refused;
      });
      if (same != rows.end()) {
        same->count += matrices;
      } else {
        rows.push_back(std::move(row));
      }
    }
  }
  return rows;
}

std::vector<OpKernel> OpKernels(const Runner& runner) {
  std::vector<OpKernel> rows;
  const Plan& plan = runner.plan();
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    if (MultipliesWeights(plan.ops[i].kind)) continue;
    const BoundOp& bound = runner.bound().ops[i];
    OpKernel row{.op = std::string(Info(plan.ops[i].kind).name),
                 .count = 1,
                 .kernel = bound.kernel->name,
                 .refused = bound.refused};
    const auto same = std::find_if(rows.begin(), rows.end(), [&row](const OpKernel& r) {
      return r.op == row.op && r.kernel == row.kernel && r.refused == row.refused;
    });
    if (same != rows.end()) {
      ++same->count;
    } else {
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

Result<std::vector<IsaStatus>> Dispatch(std::string_view isa) {
  LUCID_ASSIGN_OR_RETURN(const std::vector<TableStatus> tables, TableStatuses(isa));
  LUCID_ASSIGN_OR_RETURN(const std::vector<const KernelTable*> used, SelectTables(isa));
  std::vector<IsaStatus> rows;
  for (const TableStatus& table : tables) {
    IsaStatus row{.isa = std::string(table.isa),
                  .ops = {},
                  .needs = std::string(table.needs),
                  .refused = table.refused};
    for (const KernelTable* t : used) {
      if (t->isa == table.isa) row.ops = OpsOf(*t);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace lucid
