#include "engine/convert.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/timer.h"
#include "engine/tokenizer_export.h"
#include "engine/tokenizer_loader.h"
#include "format/gguf_writer.h"
#include "format/safetensors.h"
#include "models/gguf_export.h"

namespace lucid {
namespace {

namespace fs = std::filesystem;

// general.file_type
uint32_t FileType(DType type) {
  switch (type) {
    case DType::kF16:
      return 1;
    case DType::kQ8_0:
      return 7;
    case DType::kBF16:
      return 32;
    default:
      return 0;
  }
}

void AddGeneralKeys(const std::string& folder, GgufExport& out) {
  out.metadata.SetString("general.type", "model");
  const fs::path path = fs::absolute(folder).lexically_normal();
  const std::string name = (path.has_filename() ? path : path.parent_path()).filename().string();
  out.metadata.SetString("general.name", name);
  // Files are called by the type of most of their bytes: that of the first matrix.
  const auto matrix = std::ranges::find_if(
      out.tensors, [](const ExportTensor& tensor) { return tensor.shape.size() > 1; });
  if (matrix == out.tensors.end()) return;
  out.metadata.SetUint32("general.file_type", FileType(matrix->type));
  out.metadata.SetUint32("general.quantization_version", 2);
}

Status AddTokenizer(const std::string& folder, int64_t vocab_size, GgufExport& out) {
  Result<LoadedTokenizer> tokenizer = LoadTokenizer(folder);
  if (tokenizer) return AddTokenizerKeys(*tokenizer, vocab_size, out.metadata, out.notes);
  if (tokenizer.error().code != ErrorCode::kNotFound) return tl::unexpected(tokenizer.error());
  for (const char* name : {"tokenizer.model", "vocab.json", "tekken.json", "tokenizer.tiktoken"}) {
    std::error_code ignored;
    if (!fs::exists(fs::path(folder) / name, ignored)) continue;
    return Err(ErrorCode::kUnsupported,
               "{} holds a {} but no tokenizer.json, the only form of a tokenizer that is read",
               folder, name);
  }
  AddNoTokenizer(out.metadata);
  out.notes.push_back("the folder holds no tokenizer.json, so the file has no tokenizer");
  return {};
}

Status WriteFile(const Model& model, const GgufExport& out, const std::string& path,
                 const ConvertOptions& options, ConvertReport& report) {
  GgufWriter writer;
  for (const GgufEntry& entry : out.metadata.entries()) {
    LUCID_RETURN_IF_ERROR(writer.Add(entry.key, entry.value));
  }
  for (const ExportTensor& tensor : out.tensors) {
    LUCID_RETURN_IF_ERROR(writer.AddTensor(tensor.name, tensor.type, tensor.shape));
    int64_t rows = 1;
    for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) rows *= tensor.shape[i];
    report.bytes += static_cast<uint64_t>(rows * RowBytes(tensor.type, tensor.shape.back()));
  }
  LUCID_RETURN_IF_ERROR(writer.Begin(path));
  uint64_t done = 0;
  const ByteSink write = [&](std::span<const std::byte> bytes) -> Status {
    LUCID_RETURN_IF_ERROR(writer.Write(bytes));
    done += bytes.size();
    if (options.progress) options.progress(done, report.bytes);
    return {};
  };
  for (const ExportTensor& tensor : out.tensors) {
    LUCID_RETURN_IF_ERROR(WriteExportTensor(model, tensor, write));
  }
  return writer.Finish();
}

}  // namespace

Result<ConvertReport> ConvertModel(const std::string& folder, const std::string& file,
                                   const ConvertOptions& options) {
  const Clock::time_point start = Clock::now();
  std::error_code ignored;
  if (!options.overwrite && fs::is_regular_file(file, ignored)) {
    return Err(ErrorCode::kInvalidArgument, "{} exists already; --force replaces it", file);
  }
  LUCID_ASSIGN_OR_RETURN(const Model model, OpenModel(folder));
  if (model.checkpoint->format() != Checkpoint::Format::kSafetensors) {
    return Err(ErrorCode::kInvalidArgument,
               "{} is a GGUF file already; a Hugging Face folder is converted", folder);
  }
  // Where config.json lies, whatever file of the folder was named.
  const std::string& path = static_cast<const SafetensorsCheckpoint&>(*model.checkpoint).folder();
  const auto in = [&](const Error& error) {
    return Err(error.code, "{}: {}", folder, error.message);
  };
  Result<GgufExport> out = PlanGgufExport(model, options.type);
  if (!out) return in(out.error());
  AddGeneralKeys(path, *out);
  if (const Status status = AddTokenizer(path, model.config.vocab_size, *out); !status) {
    return in(status.error());
  }
  ConvertReport report{.tensors = std::ssize(out->tensors), .notes = out->notes};
  report.architecture = model.arch->gguf_as.empty() ? model.arch->gguf : model.arch->gguf_as;
  LUCID_RETURN_IF_ERROR(WriteFile(model, *out, file, options, report));
  report.seconds = SecondsSince(start);
  return report;
}

}  // namespace lucid
