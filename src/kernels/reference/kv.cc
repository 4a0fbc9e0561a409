// How a step's keys and values are written to the cache (tensor/paged_view.h). See reference.h.
#include "kernels/kivi.h"
#include "kernels/kv_place.h"
#include "kernels/reference/reference.h"
#include "kernels/split.h"

namespace lucid::reference {

void KvStore(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const KvStoreArgs*>(args);
  const KvView& kv = a.kv;
  const KvPages& pages = HasRecent(kv) ? kv.recent : kv.pages;  // where new rows go
  const KvArray keys = KeysOf(kv, pages);
  const KvArray values = ValuesOf(kv, pages);
  // A thread takes whole heads of whole sequences: what packs a block must have seen its rows.
  int64_t item = 0;
  for (int64_t begin = 0; begin < step.n_tokens;) {
    const int64_t end = SequenceEnd(step, begin);
    const int32_t* table = step.Table(pages, step.sequence[begin]);
    for (int64_t head = 0; head < kv.n_heads; ++head, ++item) {
      if (item % thread.count != thread.index) continue;
      for (int64_t token = begin; token < end; ++token) {
        const int64_t place = PlaceOf(kv, step, token);
        const int64_t row = token * kv.n_heads + head;
        EncodeKvRow(keys.type, a.k + row * kv.k_dim, RowOf(keys, table, place, head), kv.k_dim);
        if (kv.v_dim == 0) continue;
        EncodeKvRow(values.type, a.v + row * kv.v_dim, RowOf(values, table, place, head), kv.v_dim);
      }
      if (HasRecent(kv)) PackKiviBlocks(kv, step, begin, end, head, thread.scratch);
    }
    begin = end;
  }
}

size_t KvStoreScratch(const void* args, int64_t /*max_rows*/) {
  const KvView& kv = static_cast<const KvStoreArgs*>(args)->kv;
  return HasRecent(kv) ? KiviScratch(kv) : 0;
}

}  // namespace lucid::reference
