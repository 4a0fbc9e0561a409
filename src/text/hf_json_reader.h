// Reads a tokenizer.json in one pass: the vocabulary and the merges go straight into lists,
// everything else into a small JSON value. Without this the 450,000 merges of some models cost
// seconds and gigabytes.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "text/vocab_spec.h"

namespace lucid {

struct HfTokenizerJson {
  nlohmann::json rest;  // the file without model.vocab (where it is an object) and model.merges
  std::vector<std::pair<std::string, int64_t>> vocab;
  MergeList merges;
};

// kInvalidFile naming the key or the byte.
Result<HfTokenizerJson> ReadHfTokenizerJson(std::string_view json);

}  // namespace lucid
