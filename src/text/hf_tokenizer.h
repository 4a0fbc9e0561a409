// tokenizer.json and tokenizer_config.json of Hugging Face, to a VocabSpec.
//
// The files are untrusted; an error is one sentence that names the key, and whoever opened the file
// adds its name. Neighbours:
// hf_json_reader.h streams the big lists, hf_steps.h reads the small objects,
// engine/tokenizer_loader.h opens the files.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "text/vocab_spec.h"

namespace lucid {

// The text of a tokenizer.json. kInvalidFile naming the key; kUnsupported for a component this
// build lacks.
Result<VocabSpec> ParseHfTokenizer(std::string_view json);

// Adds what tokenizer_config.json says (bos, eos, unknown and padding tokens, add_bos_token,
// add_eos_token) and returns its chat template, "" if it has none.
Result<std::string> ApplyHfTokenizerConfig(std::string_view json, VocabSpec& spec);

// Adds the eos_token_id values of a generation_config.json to spec.eog_ids.
Status ApplyHfGenerationConfig(std::string_view json, VocabSpec& spec);

// Fills eog_ids with eos and every control token whose spelling ends a turn or a text in known
// models.
void AddKnownEogIds(VocabSpec& spec);

// True for the spellings that end a turn or a text in known models, e.g. <|im_end|>.
bool IsKnownEnd(std::string_view piece);

// Makes encode() begin with BOS (or not), whatever the file's template said.
void SetAddBos(VocabSpec& spec, bool add);
void SetAddEos(VocabSpec& spec, bool add);

}  // namespace lucid
