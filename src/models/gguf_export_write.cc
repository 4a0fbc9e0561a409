// WriteExportTensor of gguf_export.h: rows of weights as a GGUF file has them.
#include <algorithm>
#include <cmath>
#include <vector>

#include "models/gguf_export.h"

namespace lucid {
namespace {

constexpr float kLargestF16 = 65504.0f;
constexpr int64_t kPieceValues = int64_t{1} << 16;

// Which row of a weight is row `r` of the tensor.
int64_t SourceRow(const ExportTensor& tensor, int64_t r) {
  if (tensor.head_rows == 0) return r;
  const int64_t in_head = r % tensor.head_rows;
  if (in_head >= tensor.rotated_rows) return r;
  const int64_t half = in_head % 2 == 0 ? 0 : tensor.rotated_rows / 2;
  return r - in_head + half + in_head / 2;
}

Status CheckFitsF16(std::span<const float> values, const std::string& name) {
  for (const float value : values) {
    if (std::isfinite(value) && std::abs(value) > kLargestF16) {
      return Err(ErrorCode::kUnsupported,
                 "tensor {} holds {}, which float16 cannot: choose bf16 or f32", name, value);
    }
  }
  return {};
}

// One matrix [rows, cols] at `data`, or a vector as rows of one value.
Status WriteMatrix(const ExportTensor& tensor, const std::byte* data, DType stored, int64_t rows,
                   int64_t cols, const ByteSink& write) {
  const int64_t stride = RowBytes(stored, cols);
  if (stored == tensor.type && tensor.head_rows == 0) {
    return write({data, static_cast<size_t>(rows * stride)});
  }
  const int64_t piece = std::max<int64_t>(1, kPieceValues / cols);
  std::vector<float> values(static_cast<size_t>(piece * cols));
  std::vector<std::byte> encoded;
  for (int64_t first = 0; first < rows; first += piece) {
    const int64_t n = std::min(piece, rows - first);
    for (int64_t i = 0; i < n; ++i) {
      Info(stored).decode(data + SourceRow(tensor, first + i) * stride, values.data() + i * cols,
                          cols);
    }
    const std::span<const float> used(values.data(), static_cast<size_t>(n * cols));
    if (tensor.type == DType::kF16) LUCID_RETURN_IF_ERROR(CheckFitsF16(used, tensor.name));
    encoded.resize(static_cast<size_t>(RowBytes(tensor.type, n * cols)));
    Info(tensor.type).encode(used.data(), encoded.data(), n * cols);
    LUCID_RETURN_IF_ERROR(write(encoded));
  }
  return {};
}

}  // namespace

Status WriteExportTensor(const Model& model, const ExportTensor& tensor, const ByteSink& write) {
  if (tensor.slots.empty()) return write(std::as_bytes(std::span(tensor.values)));
  for (const Value v : tensor.slots) {
    LUCID_ASSIGN_OR_RETURN(const LoadedWeight weight, LoadWeight(model.plan.Info(v), *model.arch,
                                                                 model.config, *model.checkpoint));
    const Tensor& w = weight.tensor;
    if (w.rank == 1) {
      LUCID_RETURN_IF_ERROR(WriteMatrix(tensor, w.data, w.dtype, w.shape[0], 1, write));
    } else if (weight.parts.empty()) {
      LUCID_RETURN_IF_ERROR(WriteMatrix(tensor, w.data, w.dtype, w.rows(), w.cols(), write));
    } else {
      for (const std::byte* part : weight.parts) {
        LUCID_RETURN_IF_ERROR(WriteMatrix(tensor, part, w.dtype, w.shape[1], w.shape[2], write));
      }
    }
  }
  return {};
}

}  // namespace lucid
