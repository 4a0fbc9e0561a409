#include "store/model_store.h"

#include <pwd.h>
#include <unistd.h>

#include <filesystem>

#include "base/env.h"
#include "store/catalogue.h"
#include "store/file_util.h"
#include "store/model_index.h"
#include "store/pack_cache.h"

namespace lucid {
namespace {

namespace fs = std::filesystem;

std::string HomeFolder() {
  if (const auto home = Env("HOME")) return *home;
  const passwd* user = getpwuid(getuid());
  return user != nullptr && user->pw_dir != nullptr ? user->pw_dir : ".";
}

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

}  // namespace

std::string LucidFolder() {
  if (const auto lucid_home = Env("LUCID_HOME")) return *lucid_home;
  if (const auto cache = Env("XDG_CACHE_HOME")) return *cache + "/lucid";
  return HomeFolder() + "/.cache/lucid";
}

std::string ModelStoreFolder() {
  return LucidFolder() + "/models";
}

Result<std::string> ResolveModel(const std::string& name_or_path) {
  if (name_or_path.empty()) {
    return Err(ErrorCode::kInvalidArgument, "the model name is empty");
  }
  if (Exists(name_or_path)) return name_or_path;
  LUCID_ASSIGN_OR_RETURN(const auto stored, FindInModelIndex(name_or_path));
  if (stored) {
    if (Exists(stored->path)) return stored->path;
    return Err(ErrorCode::kNotFound,
               "the model '{}' was pulled, but {} is gone; 'lucid pull {}' fetches it again",
               name_or_path, stored->path, stored->source);
  }
  const bool can_be_pulled =
      FindCatalogueModel(name_or_path) != nullptr || name_or_path.starts_with("hf:");
  return Err(ErrorCode::kNotFound, "there is no file '{}' and no model of that name in {}{}",
             name_or_path, ModelStoreFolder(),
             can_be_pulled ? fmt::format("; 'lucid pull {}' fetches it", name_or_path)
                           : "; 'lucid models' lists those there are");
}

Result<std::vector<StoredModel>> ListModels() {
  return LoadModelIndex();
}

Status RemoveModel(const std::string& name) {
  LUCID_ASSIGN_OR_RETURN(const auto stored, FindInModelIndex(name));
  LUCID_ASSIGN_OR_RETURN(const bool known, DropFromModelIndex(name));
  if (!known) {
    return Err(ErrorCode::kNotFound, "there is no model '{}' in {}; 'lucid models' lists them",
               name, ModelStoreFolder());
  }
  std::error_code error;
  if (stored) fs::remove(PackCacheFile(PackCacheFolder(), stored->path), error);  // if it is there
  fs::remove_all(ModelFolder(name), error);
  if (error) {
    return Err(ErrorCode::kIo, "cannot remove {}: {}", ModelFolder(name), error.message());
  }
  return {};
}

}  // namespace lucid
