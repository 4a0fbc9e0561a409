// What `lucid show` says of a model, gathered once and printed as text or JSON by cmd_show.cc.
//
// Hyperparameters are read by the naming conventions of the two formats, not by an architecture's
// reader, so models that Lucid cannot run can be looked at too.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "format/checkpoint.h"
#include "plan/rope_overrides.h"

namespace lucid::cli {

struct TypeTotals {
  int64_t tensors = 0;
  int64_t params = 0;
  int64_t bytes = 0;
};

struct ShowValue {
  std::string key;
  std::string type;  // the GGUF type, "[string]" for arrays; empty where the format has none
  nlohmann::ordered_json value;  // arrays whole
};

struct ShowReport {
  std::unique_ptr<Checkpoint> checkpoint;
  std::string format;               // "GGUF v3", "safetensors"
  std::vector<ShowValue> metadata;  // in file order; for safetensors config.json and "__metadata__"
  std::vector<ShowValue> hyperparameters;  // only those that the file states or implies
  std::vector<std::string> positions;      // how the model knows them, a line for each way
  // Tensors that nothing of the model reads, by what they are.
  std::map<std::string, std::vector<std::string>> passed_over;
  std::string refusal;  // why this build cannot run the model; empty where it can
  std::map<DType, TypeTotals> types;
  int64_t n_params = 0;
  int64_t tensor_bytes = 0;

  double bits_per_weight() const {
    return n_params == 0 ? 0.0
                         : 8.0 * static_cast<double>(tensor_bytes) / static_cast<double>(n_params);
  }
};

// `path`: whatever OpenCheckpoint takes; its errors, and those of a config.json that is there but
// broken.
Result<ShowReport> MakeShowReport(const std::string& path, const RopeOverrides& rope);

}  // namespace lucid::cli
