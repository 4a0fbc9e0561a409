#include "store/model_index.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "store/file_util.h"

namespace lucid {
namespace {

using nlohmann::json;

constexpr int kIndexVersion = 1;

std::string IndexPath() {
  return ModelStoreFolder() + "/index.json";
}

json ToJson(const StoredModel& model) {
  return {{"name", model.name},     {"path", model.path},   {"source", model.source},
          {"sha256", model.sha256}, {"bytes", model.bytes}, {"pulled_at", model.pulled_at}};
}

std::optional<StoredModel> FromJson(const json& entry) {
  StoredModel model;
  const auto text = [&entry](const char* key, std::string& out) {
    const auto it = entry.find(key);
    if (it == entry.end() || !it->is_string()) return false;
    out = it->get<std::string>();
    return true;
  };
  if (!entry.is_object() || !text("name", model.name) || !text("path", model.path) ||
      !text("source", model.source) || !text("sha256", model.sha256) ||
      !text("pulled_at", model.pulled_at)) {
    return std::nullopt;
  }
  const auto bytes = entry.find("bytes");
  if (bytes == entry.end() || !bytes->is_number_unsigned()) return std::nullopt;
  model.bytes = bytes->get<uint64_t>();
  return model;
}

// Reads the index, lets `change` edit it, and writes it back, all under the lock.
template <typename Change>
Status ChangeIndex(Change change) {
  LUCID_RETURN_IF_ERROR(MakeFolders(ModelStoreFolder()));
  LUCID_ASSIGN_OR_RETURN(const FileLock lock, FileLock::Acquire(IndexPath() + ".lock", [] {}));
  LUCID_ASSIGN_OR_RETURN(std::vector<StoredModel> models, LoadModelIndex());
  change(models);
  json entries = json::array();
  for (const StoredModel& model : models) entries.push_back(ToJson(model));
  const json index = {{"version", kIndexVersion}, {"models", entries}};
  return WriteFileAtomically(IndexPath(),
                             index.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
}

}  // namespace

Result<std::vector<StoredModel>> LoadModelIndex() {
  const std::string path = IndexPath();
  auto text = ReadFile(path);
  if (!text && text.error().code == ErrorCode::kNotFound) return std::vector<StoredModel>{};
  if (!text) return tl::unexpected(text.error());
  const auto broken = [&path](std::string_view what) {
    return Err(ErrorCode::kInvalidFile,
               "the model index {} is damaged ({}); remove it and pull the models again", path,
               what);
  };
  const auto parsed = ParseSortedJson(*text, "it");
  if (!parsed) return broken(parsed.error().message);
  const json& index = *parsed;
  if (!index.is_object() || !index.contains("models") || !index["models"].is_array()) {
    return broken("no list of models");
  }
  if (index.value("version", json()) != kIndexVersion) return broken("unknown version");
  std::vector<StoredModel> models;
  for (const json& entry : index["models"]) {
    std::optional<StoredModel> model = FromJson(entry);
    if (!model) return broken("an entry lacks a field");
    models.push_back(*std::move(model));
  }
  std::sort(models.begin(), models.end(),
            [](const StoredModel& a, const StoredModel& b) { return a.name < b.name; });
  return models;
}

Result<std::optional<StoredModel>> FindInModelIndex(const std::string& name) {
  LUCID_ASSIGN_OR_RETURN(const std::vector<StoredModel> models, LoadModelIndex());
  for (const StoredModel& model : models) {
    if (model.name == name) return model;
  }
  return std::nullopt;
}

Status PutInModelIndex(const StoredModel& model) {
  return ChangeIndex([&model](std::vector<StoredModel>& models) {
    std::erase_if(models, [&model](const StoredModel& m) { return m.name == model.name; });
    models.push_back(model);
  });
}

Result<bool> DropFromModelIndex(const std::string& name) {
  size_t dropped = 0;
  LUCID_RETURN_IF_ERROR(ChangeIndex([&](std::vector<StoredModel>& models) {
    dropped = std::erase_if(models, [&name](const StoredModel& m) { return m.name == name; });
  }));
  return dropped > 0;
}

std::string ModelFolder(const std::string& name) {
  std::string folder;
  for (const char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '_' || c == '-' || (c == '.' && !folder.empty());
    if (plain) {
      folder += c;
    } else {
      folder += fmt::format("%{:02X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    }
  }
  return ModelStoreFolder() + "/" + folder;
}

}  // namespace lucid
