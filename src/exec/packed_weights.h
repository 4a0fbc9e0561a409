// PackedWeights: the matrices of a plan in the packed form that its kernels read
// (kernels/packed.h): packed by all threads when a model is made ready to run, or mapped from a
// file that an earlier start left (packed_file.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/mmap_file.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "exec/packed_file.h"
#include "models/load.h"
#include "plan/plan.h"

namespace lucid {

// The fused plan of a model: linears become one op where their weights pack alike.
Plan FusedPlan(const Model& model);

class PackedWeights {
 public:
  struct Matrix;

  PackedWeights() = default;

  // Packs every matrix that an op of `plan` (the model's, fused or not) multiplies with and whose
  // type has a packed form; quantised types only `with_quantised`. An op that takes several gets
  // all of them packed, if they pack alike, or none. kCapacity if memory is short.
  static Result<PackedWeights> Pack(const Plan& plan, const Model& model, ThreadPool& pool,
                                    bool with_quantised = true);
  // Of the same matrices the sizes alone: places are set, and must not be read.
  static PackedWeights Outline(const Plan& plan, const Model& model, bool with_quantised = true);
  // Maps a file that Write made from this model, its files unchanged since. kNotFound if it is
  // absent, kInvalidFile if it is another or damaged: one strip of each matrix is compared with the
  // model, and the whole image with its hash, unless that was done since the file last changed.
  static Result<PackedWeights> Open(const Plan& plan, const Model& model, ThreadPool& pool,
                                    const std::string& file);
  // Opens the first of `files` that can be, and packs where none can. One that is there and does
  // not fit is named in a warning.
  static Result<PackedWeights> Load(const Plan& plan, const Model& model, ThreadPool& pool,
                                    std::span<const std::string> files);

  // The packed matrix of a weight value, or nullptr.
  const std::byte* operator[](Value v) const {
    return v.present() && !places_.empty() ? places_[static_cast<size_t>(v.id)] : nullptr;
  }
  size_t bytes() const { return bytes_; }                      // of the image
  size_t file_bytes() const { return kImageOffset + bytes_; }  // of the file that Write makes
  int64_t matrices() const { return matrices_; }
  // The file that is mapped, "" where the matrices were packed.
  const std::string& file() const { return map_.path(); }

  // Keeps the image in a file that Load takes; as WritePackedFile.
  Result<bool> Write(const std::string& path, const std::function<bool(size_t)>& go_on) const;

  // As Open without that one comparison with the hash, then packs every matrix anew and compares
  // all of them. kInvalidFile names the first that differs.
  static Result<PackedWeights> Verify(const Plan& plan, const Model& model, ThreadPool& pool,
                                      const std::string& file);

 private:
  PackedWeights(const Plan& plan, const Model& model, const std::vector<Matrix>& matrices);
  static Result<PackedWeights> Map(const Plan& plan, const Model& model, ThreadPool& pool,
                                   const std::string& file);
  void SetPlaces(const std::vector<Matrix>& matrices);
  std::span<const std::byte> image() const;

  Buffer memory_;
  MmapFile map_;
  std::vector<const std::byte*> places_;  // by value id
  size_t bytes_ = 0;
  int64_t matrices_ = 0;
  PackKey key_;
};

}  // namespace lucid
