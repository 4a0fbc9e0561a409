#include "models/spare_tensors.h"

#include <algorithm>
#include <charconv>

namespace lucid {
namespace {

constexpr std::string_view kFurther = "of a layer that predicts further tokens";
constexpr std::string_view kTied = "an output matrix, where the config says it is the embedding";
constexpr std::string_view kFrequencies = "rotary frequencies, which follow from the config";
constexpr std::string_view kMask = "a mask of earlier versions";

// What the readers of GGUF files read beside keys (config_readers_gguf.cc).
bool IsOfConfig(std::string_view name) {
  return name == "rope_freqs.weight" || name == "rope_factors_long.weight" ||
         name == "rope_factors_short.weight";
}

// The layer of "blk.61.attn_q.weight" and "model.layers.61.mlp.up_proj.weight"; -1 for others.
int64_t LayerOf(std::string_view name) {
  for (const std::string_view prefix : {"blk.", "model.layers."}) {
    if (!name.starts_with(prefix)) continue;
    int64_t layer = -1;
    std::from_chars(name.data() + prefix.size(), name.data() + name.size(), layer);
    return layer;
  }
  return -1;
}

// Whether a Hugging Face file of the architecture calls its output matrix so.
bool IsOutput(const ArchSpec& arch, std::string_view name) {
  return std::ranges::any_of(arch.hf_names, [&](NameTable table) {
    return std::ranges::any_of(
        table, [&](const NameRule& rule) { return rule.slot == "output" && rule.tensor == name; });
  });
}

// Why the tensor may be passed over; "" where it may not.
std::string_view ReasonFor(const ArchSpec& arch, const ModelConfig& c, Checkpoint::Format format,
                           const TensorEntry& entry) {
  const std::string_view name = entry.name;
  if (const int64_t layer = LayerOf(name);
      layer >= c.n_layers && layer < c.n_layers + c.n_unrun_layers) {
    return kFurther;
  }
  if (format == Checkpoint::Format::kGguf) {
    return name.find(".attn_rot_embd") != name.npos ? kFrequencies : "";
  }
  if (c.tied_embeddings && IsOutput(arch, name)) return kTied;
  if (name.ends_with(".inv_freq")) return kFrequencies;
  // Modules of which the mask is the only thing of that name: their products have biases of theirs.
  const bool of_module = name.ends_with(".attn.bias") || name.ends_with(".attention.bias");
  if (of_module && entry.tensor.rank == 4) return kMask;
  return name.ends_with(".masked_bias") && entry.tensor.elements() == 1 ? kMask : "";
}

}  // namespace

Result<std::vector<SpareTensor>> SpareTensors(const ArchSpec& arch, const ModelConfig& config,
                                              const Checkpoint& checkpoint,
                                              const std::unordered_set<std::string_view>& read) {
  std::vector<SpareTensor> spare;
  const TensorEntry* first = nullptr;
  int64_t others = -1;
  for (const TensorEntry& entry : checkpoint.tensors()) {
    if (read.contains(entry.name) || IsOfConfig(entry.name)) continue;
    const std::string_view reason = ReasonFor(arch, config, checkpoint.format(), entry);
    if (!reason.empty()) {
      spare.push_back({entry.name, reason});
      continue;
    }
    if (first == nullptr) first = &entry;
    ++others;
  }
  if (first == nullptr) return spare;
  const std::string more = others == 0
                               ? std::string()
                               : fmt::format(" (and {} other{})", others, others == 1 ? "" : "s");
  return Err(ErrorCode::kUnsupported,
             "tensor {}{} is in the file, but nothing of a model of architecture {} with these "
             "settings reads it",
             first->name, more, arch.name);
}

}  // namespace lucid
