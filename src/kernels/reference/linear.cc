// Matrix products: each weight row is decoded to float32 once and multiplied with every activation
// row, in double. See reference.h.
#include "kernels/reference/reference.h"
#include "kernels/split.h"

namespace lucid::reference {

// Eight sums let the compiler use vector instructions; in double the order does not show in a
// float32 result.
double Dot(const float* a, const float* b, int64_t n) {
  constexpr int kLanes = 8;
  double sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) sums[l] += static_cast<double>(a[i + l]) * b[i + l];
  }
  double sum = 0;
  for (; i < n; ++i) sum += static_cast<double>(a[i]) * b[i];
  for (double s : sums) sum += s;
  return sum;
}

namespace {

// Row `n` of the matrix as float32, in `scratch`.
const float* DecodeRow(const Tensor& w, int64_t n, float* scratch) {
  Info(w.dtype).decode(w.row(n), scratch, w.cols());
  return scratch;
}

float Output(const LinearArgs& a, const float* row, int64_t n, const float* x) {
  const double bias = a.bias != nullptr ? a.bias[n] : 0.0;
  return static_cast<float>(Dot(row, x, a.w.cols()) + bias);
}

float* Floats(const ThreadSlot& thread) {
  return reinterpret_cast<float*>(thread.scratch);
}

size_t RowBytesF32(const LinearArgs& a) {
  return static_cast<size_t>(a.w.cols()) * sizeof(float);
}

}  // namespace

void Linear(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const LinearArgs*>(args);
  const int64_t rows = step.rows(a.rows);
  const int64_t n_in = a.w.cols();
  const int64_t n_out = a.w.rows();
  const Share share = ShareOf(n_out, 1, thread);
  for (int64_t n = share.begin; n < share.end; ++n) {
    const float* w = DecodeRow(a.w, n, Floats(thread));
    for (int64_t r = 0; r < rows; ++r) a.y[r * n_out + n] = Output(a, w, n, a.x + r * n_in);
  }
}

void LinearGroup(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const LinearGroupArgs*>(args);
  for (int32_t i = 0; i < a.count; ++i) Linear(&a.linear[i], step, thread);
}

void GluLinear(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const GluLinearArgs*>(args);
  const int64_t rows = step.rows(a.gate.rows);
  const int64_t n_in = a.gate.w.cols();
  const int64_t n_out = a.gate.w.rows();
  const Share share = ShareOf(n_out, 1, thread);
  for (int64_t n = share.begin; n < share.end; ++n) {
    const float* gate = DecodeRow(a.gate.w, n, Floats(thread));
    const float* up = DecodeRow(a.up.w, n, Floats(thread) + n_in);
    for (int64_t r = 0; r < rows; ++r) {
      const float* x = a.gate.x + r * n_in;
      a.y[r * n_out + n] = Activate(a.act, Output(a.gate, gate, n, x)) * Output(a.up, up, n, x);
    }
  }
}

size_t LinearScratch(const void* args, int64_t /*max_rows*/) {
  return RowBytesF32(*static_cast<const LinearArgs*>(args));
}

size_t LinearGroupScratch(const void* args, int64_t /*max_rows*/) {
  const auto& a = *static_cast<const LinearGroupArgs*>(args);
  size_t bytes = 0;
  for (int32_t i = 0; i < a.count; ++i) {
    const size_t one = RowBytesF32(a.linear[i]);
    bytes = one > bytes ? one : bytes;
  }
  return bytes;
}

size_t GluLinearScratch(const void* args, int64_t /*max_rows*/) {
  return 2 * RowBytesF32(static_cast<const GluLinearArgs*>(args)->gate);
}

}  // namespace lucid::reference
