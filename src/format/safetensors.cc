// SafetensorsCheckpoint and WriteSafetensors. The parsing is safetensors_parse.cc.
#include "format/safetensors.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/output_file.h"
#include "format/quote.h"
#include "format/safetensors_parse.h"

namespace lucid {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSingleName = "model.safetensors";
constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr size_t kMaxIndexBytes = size_t{64} << 20;

bool IsFile(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

// The file or index of a folder: what transformers would load, else the only .safetensors file.
Result<std::string> FindInFolder(const std::string& folder) {
  for (const std::string_view name : {kSingleName, kIndexName}) {
    std::string path = fmt::format("{}/{}", folder, name);
    if (IsFile(path)) return path;
  }
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".safetensors") found.push_back(it->path().string());
  }
  if (error) return Err(ErrorCode::kIo, "cannot list {}: {}", folder, error.message());
  if (found.size() == 1) return found[0];
  if (found.empty()) {
    return Err(ErrorCode::kNotFound, "{}: the folder has no {} and no {}", folder, kSingleName,
               kIndexName);
  }
  return Err(ErrorCode::kInvalidFile,
             "{}: the folder has {} .safetensors files, but no {} to join them", folder,
             found.size(), kIndexName);
}

std::string FolderOf(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

}  // namespace

Result<std::unique_ptr<SafetensorsCheckpoint>> SafetensorsCheckpoint::Open(
    const std::string& path) {
  std::unique_ptr<SafetensorsCheckpoint> checkpoint(new SafetensorsCheckpoint);
  std::string file = path;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    LUCID_ASSIGN_OR_RETURN(file, FindInFolder(path));
  }
  checkpoint->folder_ = FolderOf(file);
  if (file.ends_with(".json")) {
    LUCID_RETURN_IF_ERROR(checkpoint->OpenIndex(file));
  } else {
    LUCID_RETURN_IF_ERROR(checkpoint->OpenShard(file, nullptr));
  }
  checkpoint->BuildIndex();
  return checkpoint;
}

Status SafetensorsCheckpoint::OpenIndex(const std::string& path) {
  LUCID_ASSIGN_OR_RETURN(const MmapFile map, MmapFile::Open(path));
  if (map.bytes().size() > kMaxIndexBytes) {
    return Err(ErrorCode::kInvalidFile, "{}: an index of {} bytes, more than {}", path,
               map.bytes().size(), kMaxIndexBytes);
  }
  const std::string_view text(reinterpret_cast<const char*>(map.bytes().data()),
                              map.bytes().size());
  LUCID_ASSIGN_OR_RETURN(const auto shard_of, ParseSafetensorsIndex(text, path));
  std::map<std::string, std::vector<std::string_view>> tensors_of;  // by shard, tensor names sorted
  for (const auto& [tensor, shard] : shard_of) tensors_of[shard].push_back(tensor);
  for (const auto& [shard, tensors] : tensors_of) {
    LUCID_RETURN_IF_ERROR(OpenShard(fmt::format("{}/{}", folder_, shard), &tensors));
  }
  return {};
}

Status SafetensorsCheckpoint::OpenShard(const std::string& path,
                                        const std::vector<std::string_view>* wanted) {
  LUCID_ASSIGN_OR_RETURN(MmapFile map, MmapFile::Open(path));
  LUCID_ASSIGN_OR_RETURN(ParsedSafetensors parsed, ParseSafetensors(map.bytes(), path));
  size_t n_found = 0;
  for (TensorEntry& entry : parsed.tensors) {
    if (wanted != nullptr) {
      if (!std::ranges::binary_search(*wanted, entry.name)) continue;
      ++n_found;
    }
    entry.shard = static_cast<int>(maps_.size());
    tensors_.push_back(std::move(entry));
  }
  if (wanted != nullptr && n_found != wanted->size()) {
    return Err(ErrorCode::kInvalidFile,
               "{}: the index places {} tensors here, but only {} of them are in the file", path,
               wanted->size(), n_found);
  }
  for (auto& pair : parsed.metadata) {
    if (maps_.empty()) metadata_.push_back(std::move(pair));
  }
  file_bytes_ += map.bytes().size();
  maps_.push_back(std::move(map));
  paths_.push_back(path);
  return {};
}

void SafetensorsCheckpoint::BuildIndex() {
  tensor_index_.reserve(tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) tensor_index_.emplace(tensors_[i].name, i);
}

const TensorEntry* SafetensorsCheckpoint::Find(std::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

Status WriteSafetensors(const std::string& path, std::span<const SafetensorsTensor> tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  uint64_t end = 0;
  for (const SafetensorsTensor& item : tensors) {
    const std::string_view type = SafetensorsName(item.tensor.dtype);
    if (type.empty()) {
      return Err(ErrorCode::kUnsupported, "tensor {} is {}, which safetensors cannot hold",
                 Quote(item.name), Name(item.tensor.dtype));
    }
    if (header.contains(item.name)) {
      return Err(ErrorCode::kInvalidArgument, "two tensors are named {}", Quote(item.name));
    }
    const uint64_t begin = end;
    end += static_cast<uint64_t>(item.tensor.bytes());
    const auto shape_begin = item.tensor.shape.begin();
    header[item.name] = {
        {"dtype", type},
        {"shape", std::vector<int64_t>(shape_begin, shape_begin + item.tensor.rank)},
        {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // data begins at a multiple of 8
  const uint64_t length = text.size();

  LUCID_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path));
  LUCID_RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(&length, 1))));
  LUCID_RETURN_IF_ERROR(file.Write(text));
  for (const SafetensorsTensor& item : tensors) {
    LUCID_RETURN_IF_ERROR(file.Write({item.tensor.data, static_cast<size_t>(item.tensor.bytes())}));
  }
  return file.Commit();
}

}  // namespace lucid
