// Where packed weights are kept between two starts (exec/packed_file.h says what they are): one
// file a model in a folder, by default $LUCID_HOME/packed, or beside the model. Every file may be
// deleted at any time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace lucid {

// $LUCID_HOME/packed.
std::string PackCacheFolder();

// The file in `folder` for the model at that path: the model's name, and 64 bits of XXH3 of its
// whole path, so that another version of a model takes the place of the first.
std::string PackCacheFile(const std::string& folder, const std::string& model);

// MODEL.pack beside the model, or "" if it is not there, or if it belongs to a user who could not
// have written the model either: in a folder that all may write to, anybody could leave one.
std::string PackFileBeside(const std::string& model);

struct PackCacheEntry {
  std::string path;
  uint64_t bytes = 0;
  int64_t used_at = 0;  // when a start last wrote or mapped it: seconds since 1970
};
// The last used first. What killed processes left unfinished is listed too.
std::vector<PackCacheEntry> ListPackCache(const std::string& folder);

// Most bytes that are kept: $LUCID_PACK_GB, 64 unless set. kInvalidArgument if that is no number.
Result<uint64_t> PackCacheLimit();

// Makes the folder, and room in it for `file`, which will have that many bytes, at most `limit`:
// the files that were not used for longest are deleted until all are within the limit. kCapacity if
// the disk would not have as much again left; kIo.
Status MakePackRoom(const std::string& file, uint64_t bytes, uint64_t limit);

// Notes that the file was used now. The fraction of a second of its time stays: it says what is
// known of the file's content (exec/packed_file.h).
void TouchPack(const std::string& file);

}  // namespace lucid
