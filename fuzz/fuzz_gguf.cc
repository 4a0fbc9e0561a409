// libFuzzer target of the GGUF parser: any bytes must give a parsed file or one sentence.
//
// What parses is also used as a model would use it: typed reads of every key, and the first and
// last row of every tensor decoded, so that a bad extent shows as a read outside the input.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "format/gguf.h"

namespace {

// Rows longer than this are not decoded: the point is where they lie, not their values.
constexpr int64_t kMaxCols = 1 << 16;

void DecodeEnds(const lucid::Tensor& tensor) {
  const lucid::DTypeInfo& info = lucid::Info(tensor.dtype);
  if (info.decode == nullptr || tensor.rows() == 0) return;
  const int64_t cols = std::min(tensor.cols(), kMaxCols / info.block_elems * info.block_elems);
  std::vector<float> row(static_cast<size_t>(cols));
  info.decode(tensor.row(0), row.data(), cols);
  const int64_t skipped = lucid::RowBytes(tensor.dtype, tensor.cols() - cols);
  info.decode(tensor.row(tensor.rows() - 1) + skipped, row.data(), cols);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = lucid::GgufFile::FromBytes(std::as_bytes(std::span(data, size)), "fuzz");
  if (!file) return file.error().message.empty() ? __builtin_trap(), 0 : 0;
  for (const lucid::GgufEntry& entry : (*file)->metadata()) {
    if ((*file)->Get(entry.key) != &entry.value) __builtin_trap();
    (void)(*file)->GetInt(entry.key);
    (void)(*file)->GetFloat(entry.key);
    (void)(*file)->GetBool(entry.key);
    (void)(*file)->GetString(entry.key);
  }
  for (const lucid::TensorEntry& entry : (*file)->tensors()) {
    if ((*file)->Find(entry.name) != &entry) __builtin_trap();
    DecodeEnds(entry.tensor);
  }
  return 0;
}
