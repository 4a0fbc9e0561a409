// Flags that every command which runs a model shares, and the engine they describe. Flags of the
// cache's size and of scheduling are in engine_flags.h.
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
  int threads_batch = 0;
  std::string numa;  // empty: as the system likes
  std::string huge_pages = "auto";
  int64_t context = 0;
  RopeOverrides rope;
  int64_t batch = 512;
  std::string backend = "cpu";
  std::string isa;
  std::string numerics = "default";
  bool no_pack_cache = false;
  std::string kv = "f16";
  std::string cache_type_k;  // empty: as kv
  std::string cache_type_v;
};

// Adds -m, -t, --threads-batch, --numa, --huge-pages, -c, the rope flags, -b, --backend, --isa,
// --numerics, --no-pack-cache, --kv, --cache-type-k, --cache-type-v. Values already in `flags` are
// the defaults.
void AddModelFlags(CLI::App& command, ModelFlags& flags);
// All of them but -m.
void AddRunFlags(CLI::App& command, ModelFlags& flags);
// --threads-batch, --numa and --huge-pages; part of AddModelFlags.
void AddPlacementFlags(CLI::App& command, ModelFlags& flags);
// --rope-scaling, --rope-scale, --rope-freq-base, --rope-freq-scale and --yarn-*; part of
// AddModelFlags.
void AddRopeFlags(CLI::App& command, RopeOverrides& rope);
// The parts of it that mean the same where the others are lists (lucid bench).
void AddModelFlag(CLI::App& command, std::string& model);
void AddBackendFlags(CLI::App& command, ModelFlags& flags);
void AddNumericsFlag(CLI::App& command, ModelFlags& flags);
void AddThreadsFlag(CLI::App& command, ModelFlags& flags);
void AddKvTypeFlags(CLI::App& command, ModelFlags& flags);

// "f32, f16, ...", for help texts.
std::string KvTypeNames();

// What the flags say, with the model's name resolved. Other fields have their defaults.
Result<EngineConfig> ToEngineConfig(const ModelFlags& flags);

// Resolves the model's name and loads it.
Result<std::unique_ptr<Engine>> LoadEngine(const ModelFlags& flags);

// The template of `file` (kept in `own`), or the model's own where `file` is empty. Errors name the
// file, or say that the model has none and what to do.
Result<const ChatTemplate*> FindChatTemplate(const std::string& file, const Engine& engine,
                                             std::optional<ChatTemplate>& own);

// "1,2,3" (spaces allowed) as token ids. kInvalidArgument names the piece that is no number.
Result<std::vector<TokenId>> ParseTokenIds(const std::string& list);

}  // namespace lucid::cli
