// Machines whose CPUs each have memory of their own that is nearer than the others' (NUMA nodes):
// where this process runs and takes its memory there.
#pragma once

#include <string>

#include "base/result.h"

namespace lucid {

enum class NumaMode {
  kDistribute,  // memory page by page from all nodes in turn, threads wherever the system puts them
  kIsolate,     // threads on the CPUs of the node where the process runs now; memory follows them
};

// Binds the calling thread and all that it starts from here on, so: before the model is loaded.
// Gives one sentence about what was done, which on a machine with one node is nothing. kIo if the
// system refuses.
Result<std::string> UseNuma(NumaMode mode);

}  // namespace lucid
