#include "models/gguf_export.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "models/gguf_key_writer.h"
#include "models/same_plan.h"
#include "models/spare_tensors.h"

namespace lucid {
namespace {

constexpr std::string_view kDivisors = "rope_freqs.weight";
constexpr std::string_view kLongFactors = "rope_factors_long.weight";
constexpr std::string_view kShortFactors = "rope_factors_short.weight";

// The part of a fused tensor that a slot is, in GGUF's order of rows.
Rows GgufPart(Rows stored) {
  switch (stored) {
    case Rows::kGroupQ:
      return Rows::kQ;
    case Rows::kGroupK:
      return Rows::kK;
    case Rows::kGroupV:
      return Rows::kV;
    default:
      return stored;
  }
}

// What the folder keeps in one tensor goes to one tensor, where GGUF has a name for it; else every
// slot gets its own.
std::string TensorName(const ArchSpec& arch, const std::string& slot, Rows stored) {
  const auto [pattern, layer] = SplitLayer(slot);
  for (const NameRule& rule : arch.gguf_names) {
    if (rule.slot == pattern) return WithLayer(rule.tensor, layer);
  }
  const Rows part = GgufPart(stored);
  // Keys and values of heads are tensors of their own in all but the first files.
  if (part != Rows::kAll && part != Rows::kHeadKeys && part != Rows::kHeadValues) {
    for (const NameRule& rule : names::kGguf) {
      if (rule.slot == pattern && rule.rows == part) return WithLayer(rule.tensor, layer);
    }
  }
  return slot.ends_with(".bias") ? slot : slot + ".weight";
}

// Tensors that llama.cpp multiplies or adds as float32 only.
bool IsFloat32(const std::string& name, const Tensor& weight) {
  const std::string_view tail = std::string_view(name).substr(name.find('.', 4) + 1);
  return weight.rank == 1 || name.ends_with(".bias") || name == "position_embd.weight" ||
         tail == "ffn_gate_inp.weight" || tail == "ffn_gate_inp_shexp.weight";
}

DType WrittenType(const std::string& name, const Tensor& weight, std::optional<DType> asked) {
  if (IsFloat32(name, weight)) return DType::kF32;
  const DType stored = weight.dtype;
  if (Info(stored).block_elems != 1) return stored;
  if (asked) return *asked;
  if (stored == DType::kF16 || stored == DType::kBF16) return stored;
  return Info(stored).block_bytes == 1 ? DType::kF16 : DType::kF32;  // 8-bit floats fit
}

class Planner {
 public:
  Planner(const Model& model, std::optional<DType> type) : model_(model), type_(type) {}

  Result<GgufExport> Run() {
    const ArchSpec& arch = *model_.arch;
    const std::string_view name = arch.gguf_as.empty() ? arch.gguf : arch.gguf_as;
    if (name.empty()) {
      return Err(ErrorCode::kUnsupported,
                 "architecture {} has no form in GGUF files, so it cannot be converted", arch.name);
    }
    out_.metadata.SetString("general.architecture", std::string(name));
    GgufKeyWriter keys(name, out_.metadata);
    WriteCommonKeys(model_.config, keys);
    if (arch.to_gguf != nullptr) arch.to_gguf(model_.config, keys);
    LUCID_RETURN_IF_ERROR(keys.status());
    out_.notes = keys.notes();
    AddFrequencies();
    LUCID_RETURN_IF_ERROR(AddWeights());
    LUCID_RETURN_IF_ERROR(ReadBack(name));
    return std::move(out_);
  }

 private:
  void AddNumbers(std::string_view name, std::vector<float> values) {
    const auto n = static_cast<int64_t>(values.size());
    out_.tensors.push_back({.name = std::string(name), .shape = {n}, .values = std::move(values)});
  }

  // Frequencies that keys do not say.
  void AddFrequencies() {
    for (const LayerConfig& layer : model_.config.layers) {
      if (!layer.use_rope) continue;
      if (layer.rope.scaling == RopeSpec::Scaling::kLongRope) {
        AddNumbers(kLongFactors, layer.rope.long_factors);
        AddNumbers(kShortFactors, layer.rope.short_factors);
        return;
      }
      if (layer.rope.scaling != RopeSpec::Scaling::kLlama3) continue;
      RopeSpec plain = layer.rope;
      plain.scaling = RopeSpec::Scaling::kNone;
      const std::vector<float> scaled = InverseFrequencies(layer.rope, 1);
      std::vector<float> divisors = InverseFrequencies(plain, 1);
      for (size_t i = 0; i < scaled.size(); ++i) divisors[i] /= scaled[i];
      AddNumbers(kDivisors, std::move(divisors));
      return;
    }
  }

  Status AddWeights() {
    std::unordered_set<std::string_view> read;
    for (const Value v : model_.plan.Weights()) {
      const ValueInfo& slot = model_.plan.Info(v);
      LUCID_ASSIGN_OR_RETURN(
          const LoadedWeight weight,
          LoadWeight(slot, *model_.arch, model_.config, *model_.checkpoint, Contents::kNone));
      for (const TensorEntry* source : weight.sources) read.insert(source->name);
      const std::string name = TensorName(*model_.arch, slot.name, weight.rows);
      const auto [at, added] = index_.emplace(name, out_.tensors.size());
      if (added) {
        out_.tensors.push_back(NewTensor(name, v, weight));
      } else {
        ExportTensor& tensor = out_.tensors[at->second];
        tensor.slots.push_back(v);
        tensor.shape[0] += weight.tensor.shape[0];
      }
    }
    LUCID_RETURN_IF_ERROR(SpareTensors(*model_.arch, model_.config, *model_.checkpoint, read));
    return {};
  }

  ExportTensor NewTensor(const std::string& name, Value v, const LoadedWeight& weight) {
    const Tensor& w = weight.tensor;
    ExportTensor tensor{.name = name, .type = WrittenType(name, w, type_), .slots = {v}};
    tensor.shape.assign(w.shape.begin(), w.shape.begin() + w.rank);
    // Norms whose heads have weights of their own.
    if (weight.transform == Transform::kFlatten && w.rank == 1) {
      tensor.shape = {w.shape[0] / model_.config.head_dim, model_.config.head_dim};
    }
    if (tensor.shape.back() % Info(tensor.type).block_elems != 0) {
      out_.notes.push_back(fmt::format("{} is F16: its rows of {} values are no whole {} blocks",
                                       name, tensor.shape.back(), Name(tensor.type)));
      tensor.type = DType::kF16;
    }
    return tensor;
  }

  // Reads the keys as a reader of the file would.
  Status ReadBack(std::string_view name) {
    std::vector<TensorEntry> entries;
    for (const ExportTensor& tensor : out_.tensors) {
      TensorEntry entry;
      entry.name = tensor.name;
      entry.tensor.dtype = tensor.type;
      entry.tensor.rank = static_cast<int>(tensor.shape.size());
      std::ranges::copy(tensor.shape, entry.tensor.shape.begin());
      if (!tensor.values.empty()) {
        entry.tensor.data = reinterpret_cast<const std::byte*>(tensor.values.data());
      }
      entries.push_back(std::move(entry));
    }
    const auto metadata = out_.metadata.entries();
    LUCID_ASSIGN_OR_RETURN(const auto file, GgufFile::Outline({metadata.begin(), metadata.end()},
                                                              std::move(entries), "the GGUF file"));
    LUCID_ASSIGN_OR_RETURN(const ArchSpec* arch, FindArchByGguf(name));
    LUCID_ASSIGN_OR_RETURN(ModelConfig config, arch->from_gguf(*file));
    LUCID_RETURN_IF_ERROR(ValidateConfig(config));
    Plan plan = BuildPlan(*arch, config);
    plan.arch = name;
    LUCID_RETURN_IF_ERROR(CheckSamePlan(model_.plan, plan));
    return DealHeads(config);
  }

  // Marks the tensors whose heads the file wants in another order of rows.
  Status DealHeads(const ModelConfig& file) {
    const ModelConfig& c = model_.config;
    for (size_t i = 0; i < c.layers.size(); ++i) {
      const RopeSpec& rope = c.layers[i].rope;
      if (!c.layers[i].use_rope || rope.style == file.layers[i].rope.style) continue;
      if (rope.style != RopeStyle::kHalfSplit || c.qk_norm != QkNorm::kNone || c.mla.kv_lora > 0) {
        return Err(ErrorCode::kUnsupported,
                   "architecture {} rotates other pairs in GGUF files, and its rows cannot be put "
                   "in their order",
                   c.arch);
      }
    }
    for (ExportTensor& tensor : out_.tensors) {
      if (tensor.slots.size() != 1) continue;
      const std::string& slot = model_.plan.Info(tensor.slots[0]).name;
      const auto [pattern, layer] = SplitLayer(slot);
      if (!pattern.starts_with("blk.{}.attn_q") && !pattern.starts_with("blk.{}.attn_k")) continue;
      const auto i = static_cast<size_t>(std::stoul(layer));
      const LayerConfig& l = c.layers[i];
      // Layers without rotations too, where others have them: files have one order for all.
      if (l.rope.style == file.layers[i].rope.style) continue;
      tensor.head_rows = c.head_dim;
      tensor.rotated_rows = l.rope.rotary_dim;
    }
    return {};
  }

  const Model& model_;
  std::optional<DType> type_;
  GgufExport out_;
  std::map<std::string, size_t> index_;  // of out_.tensors
};

}  // namespace

Result<GgufExport> PlanGgufExport(const Model& model, std::optional<DType> type) {
  LUCID_CHECK(model.checkpoint->format() == Checkpoint::Format::kSafetensors);
  return Planner(model, type).Run();
}

}  // namespace lucid
