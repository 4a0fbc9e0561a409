// Which tables this CPU can run, and which kernel of them runs an op. Entry points: SelectTables,
// ChooseKernel.
#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/cpu_features.h"
#include "kernels/cpu/tables.h"
#include "kernels/table.h"

namespace lucid {
namespace {

struct TableRow {
  const KernelTable& (*get)();
  std::string_view needs;  // capabilities of the CPU, for WhyUnavailable
};

// Best first. Adding an instruction set: a row here, one in cmake/isa.cmake, and cpu/isa_<name>.cc.
constexpr TableRow kTables[] = {
#if defined(__x86_64__)
    {AmxKernels, kNeedsAmx},
    {Avx512Bf16Kernels, kNeedsAvx512Bf16},
    {Avx512VnniKernels, kNeedsAvx512Vnni},
    {Avx512Kernels, kNeedsAvx512},
    {Avx2Kernels, kNeedsAvx2},
#elif defined(__aarch64__)
    {NeonDotKernels, kNeedsNeonDot},
    {NeonKernels, kNeedsNeon},
#endif
    {GenericKernels, ""},
    {ReferenceKernels, ""},
};

std::string Choices() {
  std::string names = "auto";
  for (const TableRow& row : kTables) {
    if (WhyUnavailable(row.needs).empty()) names += fmt::format(", {}", row.get().isa);
  }
  return names;
}

}  // namespace

std::string_view Name(KernelOp op) {
  switch (op) {
    case KernelOp::kEmbed:
      return "embed";
    case KernelOp::kRmsNorm:
      return "rms_norm";
    case KernelOp::kLayerNorm:
      return "layer_norm";
    case KernelOp::kAddRmsNorm:
      return "add_rms_norm";
    case KernelOp::kLinear:
      return "linear";
    case KernelOp::kLinearGroup:
      return "linear_group";
    case KernelOp::kGlu:
      return "glu";
    case KernelOp::kActivate:
      return "activate";
    case KernelOp::kClamp:
      return "clamp";
    case KernelOp::kGluLinear:
      return "glu_linear";
    case KernelOp::kRope:
      return "rope";
    case KernelOp::kNormRope:
      return "norm_rope";
    case KernelOp::kKvStore:
      return "kv_store";
    case KernelOp::kAttention:
      return "attention";
    case KernelOp::kAdd:
      return "add";
    case KernelOp::kScale:
      return "scale";
    case KernelOp::kSoftcap:
      return "softcap";
    case KernelOp::kGatherRows:
      return "gather_rows";
    case KernelOp::kRoute:
      return "route";
    case KernelOp::kExpertGlu:
      return "expert_glu";
    case KernelOp::kExpertLinear:
      return "expert_linear";
    case KernelOp::kMixExperts:
      return "mix_experts";
    case KernelOp::kConcat:
      return "concat";
    case KernelOp::kMlaAttention:
      return "mla_attention";
    case KernelOp::kByPhase:
      return "by_phase";
  }
  return "unknown";
}

Result<std::vector<const KernelTable*>> SelectTables(std::string_view isa) {
  bool below_ceiling = isa.empty() || isa == "auto";
  std::vector<const KernelTable*> tables;
  for (const TableRow& row : kTables) {
    const bool named = row.get().isa == isa;
    const std::string unavailable = WhyUnavailable(row.needs);
    if (named && !unavailable.empty()) {
      return Err(ErrorCode::kInvalidArgument,
                 "the instruction set \"{}\" cannot run here: {}; this CPU can run {}", isa,
                 unavailable, Choices());
    }
    below_ceiling = below_ceiling || named;
    if (below_ceiling && unavailable.empty()) tables.push_back(&row.get());
  }
  if (tables.empty()) {
    return Err(ErrorCode::kInvalidArgument, "unknown instruction set \"{}\"; this CPU can run {}",
               isa, Choices());
  }
  return tables;
}

Result<std::vector<TableStatus>> TableStatuses(std::string_view isa) {
  LUCID_ASSIGN_OR_RETURN(const auto tables, SelectTables(isa));
  std::vector<TableStatus> statuses;
  for (const TableRow& row : kTables) {
    TableStatus status{.isa = row.get().isa, .needs = row.needs, .refused = {}};
    status.refused = WhyUnavailable(row.needs);
    if (status.refused.empty() &&
        std::find(tables.begin(), tables.end(), &row.get()) == tables.end()) {
      status.refused = fmt::format("above the ceiling \"{}\"", isa);
    }
    statuses.push_back(std::move(status));
  }
  return statuses;
}

KernelChoice ChooseKernel(std::span<const KernelTable* const> tables, KernelOp op,
                          const void* args) {
  KernelChoice choice;
  for (const KernelTable* table : tables) {
    for (const Kernel& kernel : table->kernels) {
      if (kernel.op != op) continue;
      const char* reason = kernel.refuse != nullptr ? kernel.refuse(args) : nullptr;
      if (reason == nullptr) {
        choice.kernel = &kernel;
        choice.isa = table->isa;
        return choice;
      }
      if (!choice.refused.empty()) choice.refused += "; ";
      choice.refused += fmt::format("{}: {} {}", table->isa, kernel.name, reason);
    }
  }
  LUCID_CHECK(false, "no kernel table has an entry for {}", Name(op));
  return choice;
}

}  // namespace lucid
