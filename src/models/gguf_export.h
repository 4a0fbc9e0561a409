// PlanGgufExport: what a GGUF file of a Hugging Face model holds: keys, and which tensor is made of
// which weights. Neighbours: gguf_key_writer.h, same_plan.h (the check), engine/convert.h (who
// writes it).
//
// Names, layouts and keys are those that llama.cpp reads. Before anything is written, the keys are
// read back with the architecture's own reader, and the plan that follows must compute what the
// folder's plan computes: a setting that GGUF files of this architecture cannot say is an error.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "format/gguf_metadata.h"
#include "models/load.h"
#include "tensor/dtype.h"

namespace lucid {

// A tensor of the file: the rows of one slot, or of several after each other; or numbers that no
// slot has (divisors of frequencies).
struct ExportTensor {
  std::string name = {};
  DType type = DType::kF32;
  std::vector<int64_t> shape = {};  // outermost first
  std::vector<Value> slots = {};
  std::vector<float> values = {};  // where there are no slots
  // Above 0: the halves of each head of so many rows are dealt out in turns, so that what was
  // rotated with its partner in the other half is rotated with its neighbour.
  int64_t head_rows = 0;
  int64_t rotated_rows = 0;  // of these, how many are rotated; the others stay
};

struct GgufExport {
  GgufMetadata metadata;  // all but the tokenizer's
  std::vector<ExportTensor> tensors;
  std::vector<std::string> notes;  // a sentence each, for whoever converts
};

// `model`: as OpenModel gives it, from a Hugging Face folder. Matrices get `type` (nothing: as they
// are stored), vectors, biases and routers float32; quantised ones stay as they are. kUnsupported
// names what the file could not say, or the architecture that GGUF does not have; errors of weights
// as LoadWeight.
Result<GgufExport> PlanGgufExport(const Model& model, std::optional<DType> type);

// The bytes of a tensor, in pieces, one weight in memory at a time. kUnsupported: a number too
// large for float16.
using ByteSink = std::function<Status(std::span<const std::byte>)>;
Status WriteExportTensor(const Model& model, const ExportTensor& tensor, const ByteSink& write);

}  // namespace lucid
