// HTTP(S) downloads through libcurl that can be interrupted and resumed.
//
// A file grows as PATH.part, with what the server said of it in PATH.part.json; only a complete and
// checked file gets the name PATH. A later call goes on from the .part file if the server still has
// the same bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"

namespace lucid {

struct DownloadRequest {
  std::string url;
  std::string path;
  std::string bearer_token;  // sent to the host of `url` only, never after a redirect elsewhere
  std::string sha256;        // empty: not known
  uint64_t bytes = 0;        // 0: not known
  std::function<void(uint64_t done, uint64_t total)> progress;  // may be empty; total 0: not known
};

struct DownloadResult {
  std::string sha256;
  uint64_t bytes = 0;
};

// kNotFound for HTTP 404; kIo for what the network, the server or the disk refused; kCapacity if
// the disk is too small; kInvalidFile if the bytes are not the promised ones (they are deleted
// then). Transient failures are tried again a few times.
Result<DownloadResult> Download(const DownloadRequest& request);

// The body of a small document.
Result<std::string> FetchText(const std::string& url, const std::string& bearer_token,
                              uint64_t max_bytes);

}  // namespace lucid
