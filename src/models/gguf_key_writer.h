// GgufKeyWriter: the hyperparameters of a GGUF file that is being made, under its architecture's
// prefix.
//
// The counterpart of GgufHparams (config_readers.h): gguf_export.cc writes what all architectures
// share, ArchSpec::to_gguf the rest. The first failure is kept.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "format/gguf_metadata.h"
#include "models/model_config.h"

namespace lucid {

class GgufKeyWriter {
 public:
  GgufKeyWriter(std::string_view prefix, GgufMetadata& metadata)
      : prefix_(prefix), metadata_(metadata) {}

  // Int("block_count", 2) writes "llama.block_count".
  void Int(std::string_view key, int64_t value);
  void Float(std::string_view key, double value);
  void Bool(std::string_view key, bool value);
  void String(std::string_view key, std::string_view value);
  void Bools(std::string_view key, const std::vector<bool>& values);

  // The model cannot be written: kUnsupported, "a GGUF file cannot say that <what>".
  void Cannot(std::string_view what);
  // What users of the file should know, as a sentence.
  void Note(std::string text) { notes_.push_back(std::move(text)); }

  const std::string& prefix() const { return prefix_; }
  const std::vector<std::string>& notes() const { return notes_; }
  Status status() const;

 private:
  std::string Key(std::string_view key) const { return prefix_ + "." + std::string(key); }

  std::string prefix_;
  GgufMetadata& metadata_;
  std::vector<std::string> notes_;
  std::optional<Error> error_;
};

// What follows from a model's numbers alike for every architecture: sizes, norms, windows,
// rotations, experts. The inverse of ReadGgufCommon and ReadGgufExperts.
void WriteCommonKeys(const ModelConfig& c, GgufKeyWriter& keys);
// What llama.cpp takes for granted of Qwen's experts: whether weights are normalised, and experts
// in every layer.
void NoteQwenExperts(const ModelConfig& c, bool normalise, GgufKeyWriter& keys);

}  // namespace lucid
