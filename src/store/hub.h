// Names of models on a Hugging Face style hub: "hf:OWNER/REPO[:QUANT]", the hub's file list, and
// which files of a repository make up the model. No network here (pull.cc has it), so all of it is
// plain functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lucid {

struct HubName {
  std::string repo;   // "OWNER/REPO"
  std::string quant;  // "Q4_K_M", or "" for the default
};

struct HubFile {
  std::string name;    // path inside the repository
  uint64_t bytes = 0;  // 0: not said
  std::string sha256;  // "": not said (small files have none)
};

// What to download. `main_file` is opened by the engine; "" means the folder itself (safetensors).
struct HubSelection {
  std::vector<HubFile> files;
  std::string main_file;
};

// kInvalidArgument says what is wrong with the name.
Result<HubName> ParseHubName(std::string_view name);

// The body of GET {endpoint}/api/models/REPO?blobs=true. File names that could leave a folder are
// an error.
Result<std::vector<HubFile>> ParseHubListing(const std::string& body);

// The files of one quantisation: a GGUF file, or every part of a split one. Without `quant`: Q4_K_M
// if there is one, else the first GGUF; in a repository without GGUF, the safetensors with config
// and tokenizer. kNotFound lists what there is.
Result<HubSelection> ChooseHubFiles(const std::vector<HubFile>& files, const HubName& name);

}  // namespace lucid
