// The kernels of instruction set avx512.
#include "kernels/cpu/tables.h"

namespace lucid {
namespace {
constexpr KernelTable kTable = {"avx512", {}};
}  // namespace

const KernelTable& Avx512Kernels() {
  return kTable;
}

}  // namespace lucid
