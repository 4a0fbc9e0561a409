// The JSON files beside a Hugging Face checkpoint: config.json, generation_config.json.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "base/result.h"

namespace lucid {

// Reads and parses a JSON file. Errors name the file; depth is limited to 64 levels and size to
// `max_bytes`, so a hostile file cannot exhaust stack or memory.
Result<nlohmann::ordered_json> ReadJsonFile(const std::string& path,
                                            size_t max_bytes = size_t{64} << 20);

// config.json of the folder; must be an object.
Result<nlohmann::ordered_json> ReadHfConfig(const std::string& folder);

}  // namespace lucid
