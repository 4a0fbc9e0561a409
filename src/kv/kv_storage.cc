#include "kv/kv_storage.h"

#include <utility>

namespace lucid {
namespace {

bool IsCacheType(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

}  // namespace

Result<KvStorage> KvStorage::Create(std::span<const KvSpec> layers,
                                    const KvStorageOptions& options) {
  for (const DType dtype : {options.k_dtype, options.v_dtype}) {
    if (!IsCacheType(dtype)) {
      return Err(ErrorCode::kInvalidArgument,
                 "the cache cannot be stored as {}; choose f32, f16 or bf16", Name(dtype));
    }
  }
  KvStorage storage;
  storage.options_ = options;
  for (const KvSpec& spec : layers) {
    const int64_t positions = options.block_size * spec.heads;
    const int64_t k_bytes = positions * RowBytes(options.k_dtype, spec.k_dim);
    const int64_t v_bytes = positions * RowBytes(options.v_dtype, spec.v_dim);
    Result<Buffer> k = Buffer::Allocate(static_cast<size_t>(options.n_blocks * k_bytes));
    Result<Buffer> v = Buffer::Allocate(static_cast<size_t>(options.n_blocks * v_bytes));
    if (!k || !v) {
      return Err(ErrorCode::kCapacity,
                 "a cache of {} positions does not fit the memory of this machine; choose a "
                 "smaller context",
                 options.n_blocks * options.block_size);
    }
    KvView view;
    view.k = k->data();
    view.v = v->data();
    view.k_dtype = options.k_dtype;
    view.v_dtype = options.v_dtype;
    view.n_heads = static_cast<int32_t>(spec.heads);
    view.k_dim = static_cast<int32_t>(spec.k_dim);
    view.v_dim = static_cast<int32_t>(spec.v_dim);
    view.block_size = static_cast<int32_t>(options.block_size);
    storage.views_.push_back(view);
    storage.buffers_.push_back(*std::move(k));
    storage.buffers_.push_back(*std::move(v));
    storage.bytes_per_block_ += k_bytes + v_bytes;
  }
  return storage;
}

}  // namespace lucid
