// Pre-tokenizers by the names that GGUF files give them in `tokenizer.ggml.pre`.
//
// The patterns are those of the models' own tokenizer.json files; the names were given by
// llama.cpp's converter. A name that is not in the table is an error: guessing would silently give
// other ids.
#pragma once

#include <string_view>

#include "base/result.h"
#include "text/vocab_spec.h"

namespace lucid {

// Fills pre_tokenizer, normalizer, ignore_merges and byte_level, and the defaults of add_bos and
// add_eos for files that do not say them. kUnsupported naming `name`.
Status ApplyPreName(std::string_view name, VocabSpec& spec);

// The inverse: the name of a byte-level BPE's normalizer, pre-tokenizer and way with whole words,
// as a tokenizer.json has them. kUnsupported with the patterns of one that has no name.
Result<std::string_view> FindPreName(const VocabSpec& spec);

}  // namespace lucid
