#include "kernels/rows.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/cpu/rows.h"

namespace lucid {
namespace {

// Best first.
constexpr const RowKernels& (*kRows[])() = {
#if defined(__x86_64__)
    Avx512RowKernels,
    Avx2RowKernels,
#endif
    GenericRowKernels,
};

}  // namespace

const RowKernels& RowKernelsOf(std::span<const KernelTable* const> tables) {
  for (const auto& get : kRows) {
    const bool selected = std::any_of(tables.begin(), tables.end(), [&](const KernelTable* table) {
      return table->isa == get().isa;
    });
    if (selected) return get();
  }
  return GenericRowKernels();  // below it is only the reference table, which has none
}

const RowKernels& BestRowKernels() {
  static const RowKernels& best = []() -> const RowKernels& {
    const auto tables = SelectTables("auto");
    LUCID_CHECK(tables.has_value(), "\"auto\" is always there");
    return RowKernelsOf(*tables);
  }();
  return best;
}

}  // namespace lucid
