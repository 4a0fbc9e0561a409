#include "models/weight_sources.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

namespace lucid {

std::vector<Source> SourcesOf(const ArchSpec& arch, Checkpoint::Format format,
                              const std::string& slot) {
  const auto [pattern, layer] = SplitLayer(slot);
  std::vector<Source> sources;
  const auto add_rules = [&, &pattern = pattern, &layer = layer](NameTable rules) {
    for (const NameRule& rule : rules) {
      if (rule.slot != pattern) continue;
      sources.push_back({WithLayer(rule.tensor, layer), rule.transform, rule.rows});
    }
  };
  if (format == Checkpoint::Format::kGguf) {
    sources.push_back({.tensor = slot.ends_with(".bias") ? slot : slot + ".weight"});
    add_rules(names::kGguf);
  } else {
    for (const NameTable& table : arch.hf_names) add_rules(table);
  }
  return sources;
}

RowGroups GroupsOf(Rows rows, const ModelConfig& c, int64_t slot_rows) {
  const int64_t q = c.n_heads * c.head_dim;
  const int64_t kv = c.n_kv_heads * c.head_dim;
  const int64_t group_q = q / c.n_kv_heads;
  const int64_t group = group_q + 2 * c.head_dim;
  switch (rows) {
    case Rows::kAll:
      return {1, slot_rows, 0, slot_rows};
    case Rows::kQ:
      return {1, q + 2 * kv, 0, q};
    case Rows::kK:
      return {1, q + 2 * kv, q, kv};
    case Rows::kV:
      return {1, q + 2 * kv, q + kv, kv};
    case Rows::kGroupQ:
      return {c.n_kv_heads, group, 0, group_q};
    case Rows::kGroupK:
      return {c.n_kv_heads, group, group_q, c.head_dim};
    case Rows::kGroupV:
      return {c.n_kv_heads, group, group_q + c.head_dim, c.head_dim};
    case Rows::kFirstHalf:
      return {1, 2 * slot_rows, 0, slot_rows};
    case Rows::kSecondHalf:
      return {1, 2 * slot_rows, slot_rows, slot_rows};
    case Rows::kLatent:
      return {1, slot_rows + c.mla.rope, 0, slot_rows};
    case Rows::kRotated:
      return {1, c.mla.kv_lora + slot_rows, c.mla.kv_lora, slot_rows};
    case Rows::kEven:
    case Rows::kOdd:
    case Rows::kHeadKeys:
    case Rows::kHeadValues:
      break;  // of stacks only: weight_stacks.cc
  }
  return {};
}

std::vector<int64_t> StoredShape(const Source& source, const RowGroups& groups, const Shape& slot) {
  std::vector<int64_t> shape{groups.stored_rows()};
  for (int i = 1; i < slot.rank; ++i) shape.push_back(slot[i].size);
  if (source.transform == Transform::kTranspose) std::reverse(shape.begin(), shape.end());
  return shape;
}

bool ShapeFits(const Tensor& tensor, const Source& source, const std::vector<int64_t>& shape) {
  if (source.transform == Transform::kFlatten) {
    return tensor.elements() ==
           std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  }
  return tensor.rank == std::ssize(shape) &&
         std::equal(shape.begin(), shape.end(), tensor.shape.begin());
}

Status CheckType(const Tensor& tensor, const std::string& name) {
  if (Info(tensor.dtype).decode != nullptr && tensor.cols() % Info(tensor.dtype).block_elems == 0) {
    return {};
  }
  return Err(ErrorCode::kUnsupported,
             "tensor {} has type {}, which cannot be used as a weight here", name,
             Name(tensor.dtype));
}

Error Misfit(const std::string& name, const Tensor& stored, std::span<const int64_t> wanted) {
  const std::span<const int64_t> is(stored.shape.data(), static_cast<size_t>(stored.rank));
  return {ErrorCode::kInvalidFile,
          fmt::format("tensor {} has shape [{}], the model's numbers want [{}]", name,
                      fmt::join(is, ", "), fmt::join(wanted, ", "))};
}

const TensorEntry* FindTensor(const ArchSpec& arch, const Checkpoint& checkpoint,
                              std::string_view name) {
  const TensorEntry* entry = checkpoint.Find(name);
  if (entry != nullptr || arch.hf_prefix.empty() || !name.starts_with(arch.hf_prefix)) return entry;
  return checkpoint.Find(name.substr(arch.hf_prefix.size()));
}

std::string NamesOf(std::span<const Source> sources) {
  std::vector<std::string> names;
  const auto add = [&](std::string name) {
    if (const size_t at = name.find("{}"); at != std::string::npos) name.replace(at, 2, "0");
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const Source& source : sources) {
    if (source.transform == Transform::kMxfp4) {
      add(source.tensor + "_blocks and " + source.tensor + "_scales");
    } else {
      add(source.tensor);
    }
  }
  if (names.size() == 1) return names[0];
  return fmt::format("{} (or {})", names[0], fmt::join(std::span(names).subspan(1), ", "));
}

std::byte* CopyColumns(const Tensor& matrix, const std::byte* data, int64_t first, int64_t step,
                       int64_t count, std::byte* out) {
  const auto size = static_cast<size_t>(Info(matrix.dtype).block_bytes);
  for (int64_t i = 0; i < count; ++i) {
    const std::byte* column = data + static_cast<size_t>(first + i * step) * size;
    for (int64_t r = 0; r < matrix.rows(); ++r, out += size) {
      std::memcpy(out, column + r * matrix.row_bytes(), size);
    }
  }
  return out;
}

}  // namespace lucid
