// The row kernels of each instruction set: the only symbol that cpu/rows_<name>.cc exports.
#pragma once

#include "kernels/rows.h"

namespace lucid {

const RowKernels& GenericRowKernels();  // the base instruction set of the build
#if defined(__x86_64__)
const RowKernels& Avx2RowKernels();    // the needs of the table "avx2"
const RowKernels& Avx512RowKernels();  // the needs of the table "avx512"
#endif

}  // namespace lucid
