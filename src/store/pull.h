// Fetching a model into the store: a built-in name, a URL of a GGUF file, or a name on a hub.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"
#include "store/model_store.h"

namespace lucid {

struct PullOptions {
  std::string
      name;  // what to call the model; default: the built-in or hf: name, or the URL's file name
  std::string sha256;    // demanded checksum, for sources that are one file
  std::string endpoint;  // of the hub; default: LUCID_HF_ENDPOINT, HF_ENDPOINT, the public one
  bool offline = false;  // an error where a connection would be needed; LUCID_OFFLINE does the same
  bool force = false;    // fetch again although it is there
  bool pip_progress = false;  // pip may draw on stderr
  std::function<void(const std::string& file, uint64_t done, uint64_t total)> progress;
  std::function<void(const std::string& line)> notify;  // things worth telling, one line each
};

struct PulledModel {
  StoredModel model;
  bool was_there = false;  // nothing had to be fetched
};

// Two pulls of one model wait for each other; the second finds the work done. Whatever goes wrong,
// the store never lists a model that is not complete.
Result<PulledModel> PullModel(const std::string& source, const PullOptions& options);

}  // namespace lucid
