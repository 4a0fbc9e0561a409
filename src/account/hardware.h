// Hardware: the few numbers of a machine that a prediction needs: what it reads, computes and
// holds. Built-in ones come from data sheets; this machine's from `lucid limits`; a user's from a
// file. Neighbours: machine.h (measured figures), predict.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "account/machine.h"
#include "base/result.h"
#include "tensor/dtype.h"

namespace lucid {

// Floating point operations per second (a multiply-add is two) of factors of one kind.
struct TypePeak {
  std::string numbers;  // "float32", "16 bit", "8 bit": of the factors, as they meet
  double flops = 0;
};

struct Hardware {
  std::string name;    // "H100 SXM"
  std::string source;  // of the figures: "data sheet", "measured 2026-..."
  double bytes_per_second = 0;
  int64_t memory_bytes = 0;  // 0: unknown
  std::vector<TypePeak> peaks;
  // Measured machines only; empty else: what the kernels make of that (kernel_speed.h).
  std::vector<KernelSpeed> kernels;

  // The peak of products with weights of this type: float32 weights need float32, 8-bit floats may
  // use 8-bit units, everything else is multiplied as 16-bit numbers. The nearest that is known.
  double FlopsFor(DType weights) const;
  // FLOPs per byte at which arithmetic takes as long as memory, with 16-bit numbers.
  double Ridge() const { return FlopsFor(DType::kF16) / bytes_per_second; }
};

// "h100", "h200", "a100", ...
const std::vector<std::string>& HardwareNames();
// A built-in one, or what a file holds: a machine that `lucid limits` stored, or an object
//   {"name": ..., "read_gb_per_s": 3350, "memory_gb": 80, "tflop_per_s": {"16 bit": 989, ...}}
// kInvalidArgument names the built-in ones, kInvalidFile what is wrong with the file. `threads`: of
// a stored machine; `bytes`: that a token reads of it; `eight_bits`: activations are single bytes.
Result<Hardware> FindHardware(const std::string& name, int threads, int64_t bytes, bool eight_bits);
// A measured machine. kNotFound where it has no figures for so many threads.
Result<Hardware> HardwareOf(const Machine& machine, int threads, int64_t bytes, bool eight_bits);

}  // namespace lucid
