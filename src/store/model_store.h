// The local model store: where pulled models lie, and how a name becomes a path.
//
// A store is a folder ($LUCID_HOME/models, default ~/.cache/lucid/models) with one sub-folder per
// model and an index file. Names: built-in ones ("smollm2", "gemma3-270m") and "hf:REPO[:QUANT]"
// after they were pulled.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace lucid {

struct StoredModel {
  std::string name;    // what commands accept
  std::string path;    // the file or folder to open
  std::string source;  // where it came from
  std::string sha256;
  uint64_t bytes = 0;
  std::string pulled_at;  // ISO 8601, UTC
};

// The folder of everything that Lucid keeps: $LUCID_HOME, by default ~/.cache/lucid.
std::string LucidFolder();
// The store's folder in it; created on demand.
std::string ModelStoreFolder();

// A path as it is if it exists; else the path of a stored model of that name. kNotFound says what
// was tried and, for a built-in name, the pull command that would fetch it.
Result<std::string> ResolveModel(const std::string& name_or_path);

Result<std::vector<StoredModel>> ListModels();
// Deletes the model's files, its packed weights and its entry. kNotFound if there is none of that
// name.
Status RemoveModel(const std::string& name);

}  // namespace lucid
