// lucid detokenize: the text of token ids, byte for byte, with nothing added.
//
//   lucid detokenize -m smollm2 --ids 19556,905
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/model_flags.h"
#include "cli/tokenizer_flags.h"

namespace lucid::cli {
namespace {

struct DetokenizeFlags {
  std::string model, ids;
  bool has_ids = false, skip_special = false;
};

bool IsBlank(const std::string& text) {
  return text.find_first_not_of(" \t\r\n") == std::string::npos;
}

Status Run(const DetokenizeFlags& flags) {
  LUCID_ASSIGN_OR_RETURN(const LoadedTokenizer loaded, LoadNamedTokenizer(flags.model));
  std::string list = flags.ids;
  if (!flags.has_ids) {
    LUCID_ASSIGN_OR_RETURN(list, ReadTextFile("-"));
  } else if (IsBlank(list)) {
    return Err(ErrorCode::kInvalidArgument, "--ids is empty");
  }
  // Both 1,2,3 and [1, 2, 3].
  std::erase_if(list, [](char c) { return c == '[' || c == ']'; });
  if (IsBlank(list)) return {};
  LUCID_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, ParseTokenIds(list));
  for (const TokenId id : ids) {
    if (id < 0 || id >= loaded.tokenizer->n_tokens()) {
      return Err(ErrorCode::kInvalidArgument,
                 "token id {} is not one of the {} ids of this vocabulary", id,
                 loaded.tokenizer->n_tokens());
    }
  }
  const std::string text = loaded.tokenizer->Decode(ids, flags.skip_special);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return {};
}

}  // namespace

void AddDetokenizeCommand(CLI::App& root, CommandContext& context) {
  CLI::App* command = root.add_subcommand("detokenize", "Show the text of token ids");
  auto flags = std::make_shared<DetokenizeFlags>();
  AddTokenizerFlag(*command, flags->model);
  CLI::Option* ids = command->add_option(
      "--ids", flags->ids,
      "token ids separated by commas; without it they are read from standard input");
  command->add_flag("--skip-special", flags->skip_special, "leave out control tokens");
  command->callback([flags, ids, &context] {
    flags->has_ids = ids->count() > 0;
    if (const Status status = Run(*flags); !status) ReportError(status.error(), context);
  });
}

}  // namespace lucid::cli
