#include "account/kernel_use.h"

#include <algorithm>
#include <cctype>

#include "kernels/table.h"
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

}  // namespace

std::vector<MatrixKernel> MatrixKernels(const Runner& runner, const Weights& weights) {
  std::vector<MatrixKernel> rows;
  const Plan& plan = runner.plan();
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    const bool multiplies = op.kind == OpKind::kLinear || op.kind == OpKind::kLinearGroup ||
                            op.kind == OpKind::kGluLinear || op.kind == OpKind::kExpertGlu ||
                            op.kind == OpKind::kExpertLinear;
    if (!multiplies) continue;
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

Result<std::vector<IsaStatus>> Dispatch(std::string_view isa) {
  LUCID_ASSIGN_OR_RETURN(const std::vector<TableStatus> tables, TableStatuses(isa));
  std::vector<IsaStatus> rows;
  for (const TableStatus& table : tables) {
    rows.push_back({std::string(table.isa), std::string(table.needs), table.refused});
  }
  return rows;
}

}  // namespace lucid
