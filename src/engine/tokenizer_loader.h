// LoadTokenizer: the tokenizer and chat template of a model, from GGUF metadata or Hugging Face
// files.
//
// Neighbours: text/hf_tokenizer.h reads tokenizer.json, text/pre_names.h knows GGUF's pre-tokenizer
// names.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "format/gguf.h"
#include "text/tokenizer.h"
#include "text/vocab_spec.h"

namespace lucid {

struct LoadedTokenizer {
  std::unique_ptr<Tokenizer> tokenizer;
  std::string chat_template;  // Jinja source, "" if the model has none
};

// From the metadata of an open file. kNotFound if it holds no tokenizer, kUnsupported for a kind of
// vocabulary or pre-tokenizer this build does not know, kInvalidFile naming the key.
Result<LoadedTokenizer> LoadTokenizer(const GgufFile& file);

// From what `path` names: a .gguf file, a tokenizer.json or tokenizer.json.xz (with the
// tokenizer_config.json, generation_config.json and chat_template.jinja beside it), a folder that
// holds these, or a weights file in such a folder.
Result<LoadedTokenizer> LoadTokenizer(const std::string& path);

// Of the model that a checkpoint is: from its metadata, or the files beside it.
Result<LoadedTokenizer> LoadTokenizerOf(const Checkpoint& checkpoint);

// The vocabulary alone, for tools that show or convert it.
Result<VocabSpec> VocabSpecFromGguf(const GgufFile& file);

}  // namespace lucid
