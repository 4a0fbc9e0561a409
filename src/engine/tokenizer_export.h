// AddTokenizerKeys: a tokenizer and its chat template as metadata of a GGUF file, the inverse of
// tokenizer_loader.h. Used by convert.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/tokenizer_loader.h"
#include "format/gguf_metadata.h"

namespace lucid {

// `vocab_size`: rows of the embedding; entries are added or left out until there are as many, as
// llama.cpp wants. What the file's tokenizer does otherwise is told in `notes`, a sentence each.
// kUnsupported: a kind of vocabulary or pre-tokenizer that GGUF files cannot say. The metadata is
// read back, and a text in many scripts must get the same ids.
Status AddTokenizerKeys(const LoadedTokenizer& loaded, int64_t vocab_size, GgufMetadata& metadata,
                        std::vector<std::string>& notes);

// For a model without a tokenizer.
void AddNoTokenizer(GgufMetadata& metadata);

}  // namespace lucid
