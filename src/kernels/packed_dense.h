// The packed form of plain types (F32, F16, BF16), laid out as packed.h tells. Called by packed.cc.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/packed.h"
#include "tensor/tensor.h"

namespace lucid {

// PackStrips and DecodePackedRow of packed.h for a plain `form`.
void PackDenseStrips(const PackedForm& form, const Tensor& w, int64_t begin, int64_t end,
                     std::byte* packed);
void DecodeDenseRow(const PackedForm& form, const std::byte* packed, int64_t n_in, int64_t row,
                    float* dst);

}  // namespace lucid
