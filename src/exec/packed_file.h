// Files of packed weights: the image that PackedWeights makes in memory, kept so that the next
// start maps it (docs/adr/0015).
//
// A file is a header, zeros up to kImageOffset, and the image. Nothing in it is a position: where
// each matrix lies follows from the plan (packed_weights.h). The header only says what the image
// was made from, by its key, and what it holds, by its hash. So a file is either the one that this
// model would make, or not used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/mmap_file.h"
#include "base/result.h"
#include "base/thread_pool.h"

namespace lucid {

// The image begins on a huge page, so that the map of a file that is in memory in huge pages uses
// them.
constexpr uint64_t kImageOffset = uint64_t{2} << 20;

// What a file's name ends in until it is whole.
inline constexpr char kUnfinishedPack[] = ".part";

// 128 bits of XXH3 over all that an image follows from.
struct PackKey {
  uint64_t low = 0, high = 0;
  bool operator==(const PackKey&) const = default;
};

// Maps the file if it is whole and has this key. kNotFound if it is absent; kInvalidFile if it is
// no such file, of another version of this format, damaged, cut off, or has another key; kIo.
Result<MmapFile> OpenPackedFile(const std::string& path, const PackKey& key, size_t image_bytes);

// Compares the image with its hash, and notes that it was right in the fraction of a second of the
// file's time, where that can be set. As long as the note is there, which any other change of the
// file ends, it is right without being read, unless `anyway`. kInvalidFile if it is damaged.
Status CheckImage(const MmapFile& file, ThreadPool& pool, bool anyway);

// Whether a file is there that begins as packed weights do, of whatever model and version.
bool IsPackedFile(const std::string& path);

// Writes `image` as `path` + kUnfinishedPack, syncs it and renames it. False if another
// process is writing the same file. kIo (a full disk, a folder that cannot be written) leaves
// nothing behind; so does kCancelled, where `go_on`, called with the bytes written so far after
// each few megabytes, returned false.
Result<bool> WritePackedFile(const std::string& path, const PackKey& key,
                             std::span<const std::byte> image,
                             const std::function<bool(size_t)>& go_on);

}  // namespace lucid
