// The small objects of a tokenizer.json: normalizer, pre_tokenizer, post_processor, decoder.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "text/vocab_spec.h"

namespace lucid {

// Each reads one value (null is allowed) into the spec. kInvalidFile or kUnsupported naming the
// key.
Status ReadNormalizer(const nlohmann::json& value, VocabSpec& spec);
Status ReadPreTokenizer(const nlohmann::json& value, VocabSpec& spec);
Status ReadPostProcessor(const nlohmann::json& value, VocabSpec& spec);
Status ReadDecoder(const nlohmann::json& value, VocabSpec& spec);

}  // namespace lucid
