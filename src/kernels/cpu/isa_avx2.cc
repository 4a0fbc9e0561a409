// The kernels of instruction set avx2.
#include "kernels/cpu/tables.h"

namespace lucid {
namespace {
constexpr KernelTable kTable = {"avx2", {}};
}  // namespace

const KernelTable& Avx2Kernels() {
  return kTable;
}

}  // namespace lucid
