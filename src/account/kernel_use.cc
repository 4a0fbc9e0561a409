#include "account/kernel_use.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "kernels/packed.h"
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

// What the kernel of an op multiplies with this matrix of it.
Factors FactorsOfMatrix(const Runner& runner, std::string_view kernel, Value matrix, DType type,
                        bool of_prompt) {
  const PackedForm* form = FindPackedForm(type);
  if (form == nullptr || runner.packed()[matrix] == nullptr) return Factors::kFloat32;
  if (form->plain()) {
    return kernel.ends_with(".avx512bf16") ? Factors::kBfloat16 : Factors::kFloat32;
  }
  return of_prompt && kernel.starts_with("tile_") ? Factors::kBfloat16 : Factors::kInt8;
}

// Why better kernels did not take a matrix: one reason where it is the same for all of them.
std::string RefusedText(const Runner& runner, Value matrix, DType type,
                        const std::string& refused) {
  if (refused.empty() || runner.packed()[matrix] != nullptr) return refused;
  return fmt::format("all kernels of packed weights: {}", FindPackedForm(type) == nullptr
                                                              ? "the type has no packed form"
                                                              : "the matrix is not packed");
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
      const DType type = weights.dtypes()[static_cast<size_t>(v.id)];
      MatrixKernel row{.name = WithoutLayer(info.name),
                       .dtype = std::string(Name(type)),
                       .n_out = info.shape[rank - 2].size,
                       .n_in = info.shape[rank - 1].size,
                       .count = matrices,
                       .kernel = bound.kernel->name,
                       .refused = RefusedText(runner, v, type, bound.refused)};
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

Factors FactorsOf(const Runner& runner, const Weights& weights, const Workload& work,
                  bool of_prompt) {
  std::array<int64_t, 4> macs{};  // by Factors
  const Plan& plan = runner.plan();
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    if (!MultipliesWeights(op.kind)) continue;
    // The matrices of one op go one way (PackedWeights::Pack).
    const auto matrix = std::find_if(op.inputs.begin(), op.inputs.end(), [&plan](Value v) {
      return v.present() && plan.Info(v).kind == ValueKind::kWeight && plan.Info(v).shape.rank >= 2;
    });
    if (matrix == op.inputs.end()) continue;
    const Factors factors =
        FactorsOfMatrix(runner, runner.bound().ops[i].kernel->name, *matrix,
                        weights.dtypes()[static_cast<size_t>(matrix->id)], of_prompt);
    macs[static_cast<size_t>(factors)] += Info(op.kind).cost(plan, op, work).macs;
  }
  return static_cast<Factors>(std::max_element(macs.begin(), macs.end()) - macs.begin());
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
