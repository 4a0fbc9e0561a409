// The kernels of instruction set generic.
#include "kernels/cpu/tables.h"

namespace lucid {
namespace {
constexpr KernelTable kTable = {"generic", {}};
}  // namespace

const KernelTable& GenericKernels() {
  return kTable;
}

}  // namespace lucid
