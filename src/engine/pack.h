// Packing a model ahead of its first start, and checking what was packed: `lucid pack`.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace lucid {

struct PackReport {
  std::string file;
  int64_t matrices = 0;
  uint64_t bytes = 0;       // of the packed matrices
  double pack_seconds = 0;  // packing, or packing anew and comparing
  double write_seconds = 0;
};

// Packs the model at that path (0 threads: one per physical core) and writes `file`, "" being the
// model's in PackCacheFolder(). kInvalidArgument if what lies at `file` is the model or anything
// else than packed weights; kUnsupported if no matrix has a packed form; kCapacity if the cache is
// too small or another process is writing the same file; kIo.
Result<PackReport> PackModel(const std::string& model, int n_threads, const std::string& file);

// Compares every byte of `file`, "" being what a start would map, with what packing the model
// gives. kNotFound, kInvalidFile.
Result<PackReport> VerifyPack(const std::string& model, int n_threads, const std::string& file);

}  // namespace lucid
