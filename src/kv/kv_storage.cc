#include "kv/kv_storage.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace lucid {

Result<KvStorage> KvStorage::Create(const KvLayout& layout, const PoolCounts& n_blocks) {
  KvStorage storage;
  storage.layout_ = layout;
  storage.n_blocks_ = n_blocks;
  for (size_t p = 0; p < layout.pools().size(); ++p) {
    LUCID_CHECK(n_blocks[p] >= 0);
    std::vector<Buffer> slots;
    for (const int64_t page_bytes : layout.pools()[p].page_bytes) {
      const int64_t bytes = std::max<int64_t>(1, n_blocks[p]) * page_bytes;
      Result<Buffer> slot = Buffer::Allocate(static_cast<size_t>(bytes));
      if (!slot) {
        return Err(ErrorCode::kCapacity,
                   "a KV cache of {} bytes does not fit the memory of this machine; choose a "
                   "smaller context or a smaller --kv-memory",
                   layout.Bytes(n_blocks));
      }
      slots.push_back(*std::move(slot));
    }
    storage.slots_.push_back(std::move(slots));
  }
  for (size_t layer = 0; layer < layout.layers().size(); ++layer) {
    const KvSpec& spec = layout.layers()[layer];
    const KvPlace& place = layout.place(layer);
    KvView view;
    view.pages = layout.Pages(layer, /*recent=*/false);
    view.pages.data = storage.SlotData(place.group, place.slot);
    if (place.recent_group >= 0) {
      view.recent = layout.Pages(layer, /*recent=*/true);
      view.recent.data = storage.SlotData(place.recent_group, place.recent_slot);
    }
    view.n_heads = static_cast<int32_t>(spec.heads);
    view.k_dim = static_cast<int32_t>(spec.k_dim);
    view.v_dim = static_cast<int32_t>(spec.v_dim);
    view.block_size = static_cast<int32_t>(layout.block_size());
    view.layer = static_cast<int32_t>(layer);
    storage.views_.push_back(view);
  }
  return storage;
}

int64_t KvStorage::BytesOf(const KvLayout& layout, const PoolCounts& n_blocks) {
  int64_t bytes = 0;
  for (size_t p = 0; p < layout.pools().size(); ++p) {
    bytes += std::max<int64_t>(1, n_blocks[p]) * layout.pools()[p].block_bytes;
  }
  return bytes;
}

std::byte* KvStorage::SlotData(int32_t group, int32_t slot) const {
  const int32_t pool = layout_.groups()[static_cast<size_t>(group)].pool;
  return slots_[static_cast<size_t>(pool)][static_cast<size_t>(slot)].data();
}

Status KvStorage::Populate() {
  for (std::vector<Buffer>& pool : slots_) {
    for (Buffer& slot : pool) LUCID_RETURN_IF_ERROR(slot.Populate());
  }
  return {};
}

void KvStorage::CopyBlock(int32_t pool, int32_t from, int32_t to) {
  const size_t p = static_cast<size_t>(pool);
  for (size_t slot = 0; slot < slots_[p].size(); ++slot) {
    const int64_t bytes = layout_.pools()[p].page_bytes[slot];
    std::byte* data = slots_[p][slot].data();
    std::memcpy(data + to * bytes, data + from * bytes, static_cast<size_t>(bytes));
  }
}

void KvStorage::ReadBlock(int32_t pool, int32_t block, std::byte* bytes) const {
  const size_t p = static_cast<size_t>(pool);
  for (size_t slot = 0; slot < slots_[p].size(); ++slot) {
    const int64_t page_bytes = layout_.pools()[p].page_bytes[slot];
    std::memcpy(bytes, slots_[p][slot].data() + block * page_bytes,
                static_cast<size_t>(page_bytes));
    bytes += page_bytes;
  }
}

void KvStorage::WriteBlock(int32_t pool, int32_t block, const std::byte* bytes) {
  const size_t p = static_cast<size_t>(pool);
  for (size_t slot = 0; slot < slots_[p].size(); ++slot) {
    const int64_t page_bytes = layout_.pools()[p].page_bytes[slot];
    std::memcpy(slots_[p][slot].data() + block * page_bytes, bytes,
                static_cast<size_t>(page_bytes));
    bytes += page_bytes;
  }
}

}  // namespace lucid
