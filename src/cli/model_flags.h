// Flags that every command which runs a model shares, and the engine they describe.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cli/command.h"
#include "engine/engine.h"

namespace lucid::cli {

struct ModelFlags {
  std::string model;
  int threads = 0;
  int64_t context = 0;
  int64_t batch = 512;
  std::string backend = "cpu";
  std::string isa;
  std::string cache_type_k = "f16";
  std::string cache_type_v = "f16";
};

// Adds -m, -t, -c, -b, --backend, --isa, --cache-type-k, --cache-type-v. Values already in `flags`
// are the defaults.
void AddModelFlags(CLI::App& command, ModelFlags& flags);

// Resolves the model's name and loads it.
Result<std::unique_ptr<Engine>> LoadEngine(const ModelFlags& flags);

// The template of `file` (kept in `own`), or the model's own where `file` is empty. Errors name the
// file, or say that the model has none and what to do.
Result<const ChatTemplate*> FindChatTemplate(const std::string& file, const Engine& engine,
                                             std::optional<ChatTemplate>& own);

// "1,2,3" (spaces allowed) as token ids. kInvalidArgument names the piece that is no number.
Result<std::vector<TokenId>> ParseTokenIds(const std::string& list);

}  // namespace lucid::cli
