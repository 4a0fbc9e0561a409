#include "cli/tokenizer_flags.h"

#include "store/model_store.h"

namespace lucid::cli {

void AddTokenizerFlag(CLI::App& command, std::string& model) {
  command
      .add_option("-m,--model", model,
                  "model, folder, tokenizer.json or tokenizer.json.xz, or a name of 'lucid models'")
      ->required();
}

Result<LoadedTokenizer> LoadNamedTokenizer(const std::string& model) {
  LUCID_ASSIGN_OR_RETURN(const std::string path, ResolveModel(model));
  return LoadTokenizer(path);
}

}  // namespace lucid::cli
