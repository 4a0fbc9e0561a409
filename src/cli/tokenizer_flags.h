// The model flag of the commands that need only its tokenizer: tokenize, detokenize, render.
// Neighbour: model_flags.h, for commands that run the model.
#pragma once

#include <string>

#include "cli/command.h"
#include "engine/tokenizer_loader.h"

namespace lucid::cli {

// Adds -m; it is required.
void AddTokenizerFlag(CLI::App& command, std::string& model);

// The tokenizer of what the flag names: a path as it is, any other name from the model store.
Result<LoadedTokenizer> LoadNamedTokenizer(const std::string& model);

}  // namespace lucid::cli
