// Where keys and values lie (tensor/paged_view.h) and how a step's own are written there. See
// reference.h.
#include "kernels/reference/reference.h"
#include "kernels/split.h"

namespace lucid::reference {

std::byte* KvPlace(std::byte* base, const KvView& kv, const int32_t* block_table, int64_t position,
                   int64_t head, int64_t bytes) {
  const int64_t block = block_table[position / kv.block_size];
  return base + ((block * kv.n_heads + head) * kv.block_size + position % kv.block_size) * bytes;
}

void KvStore(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const KvStoreArgs*>(args);
  const KvView& kv = a.kv;
  const int64_t k_bytes = RowBytes(kv.k_dtype, kv.k_dim);
  const int64_t v_bytes = RowBytes(kv.v_dtype, kv.v_dim);
  const Share share = ShareOf(int64_t{step.n_tokens} * kv.n_heads, 1, thread);
  for (int64_t i = share.begin; i < share.end; ++i) {
    const int64_t token = i / kv.n_heads;
    const int64_t head = i % kv.n_heads;
    const int32_t* table =
        step.block_tables + int64_t{step.sequence[token]} * step.block_table_stride;
    const int32_t position = step.positions[token];
    std::byte* k = KvPlace(kv.k, kv, table, position, head, k_bytes);
    std::byte* v = KvPlace(kv.v, kv, table, position, head, v_bytes);
    Info(kv.k_dtype).encode(a.k + i * kv.k_dim, k, kv.k_dim);
    Info(kv.v_dtype).encode(a.v + i * kv.v_dim, v, kv.v_dim);
  }
}

}  // namespace lucid::reference
