// Rows picked by index: the embedding table and the rows whose logits are wanted. See reference.h.
#include <algorithm>
#include <cstring>

#include "kernels/packed.h"
#include "kernels/reference/reference.h"
#include "kernels/split.h"

namespace lucid::reference {

void Embed(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const EmbedArgs*>(args);
  const DTypeInfo& info = Info(a.table.dtype);
  const int64_t dim = a.table.cols();
  const Share share = ShareOf(step.n_tokens, 1, thread);
  const int32_t* indices = a.index == EmbedIndex::kTokens ? step.tokens : step.positions;
  for (int64_t t = share.begin; t < share.end; ++t) {
    float* y = a.y + t * dim;
    const int64_t row = std::min(indices[t] + a.offset, a.table.rows() - 1);
    if (a.packed != nullptr) {
      DecodePackedRow(a.table.dtype, a.packed, dim, row, y);
    } else {
      info.decode(a.table.row(row), y, dim);
    }
    for (int64_t i = 0; i < dim; ++i) y[i] *= a.scale;
  }
}

void GatherRows(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const GatherRowsArgs*>(args);
  const Share share = ShareOf(step.n_outputs, 1, thread);
  for (int64_t r = share.begin; r < share.end; ++r) {
    std::memcpy(a.y + r * a.dim, a.x + step.output_rows[r] * a.dim,
                static_cast<size_t>(a.dim) * sizeof(float));
  }
}

}  // namespace lucid::reference
