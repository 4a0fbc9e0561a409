// GgufWriter: writes a GGUF v3 file. Declare metadata and tensors, Begin, stream the data, Finish.
//
//   GgufWriter writer;
//   writer.AddString("general.architecture", "llama");
//   writer.AddTensor("token_embd.weight", DType::kF16, shape);   // and its result checked, as
//   below writer.Begin(path); writer.Write(bytes);                                          // all
//   tensors in order, in pieces of any size writer.Finish();
//
// The file appears under its name only when Finish has succeeded (output_file.h). Reading is
// gguf.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/output_file.h"
#include "base/result.h"
#include "format/gguf.h"
#include "tensor/dtype.h"

namespace lucid {

class GgufWriter {
 public:
  // Sets a key, replacing an earlier value of it but keeping its place. kInvalidArgument: an empty
  // or overlong key, or arrays nested deeper than the reader takes. "general.alignment" must be a
  // power of two from 8 on.
  Status Add(std::string_view key, const GgufValue& value);
  Status AddString(std::string_view key, std::string_view value);
  Status AddUint32(std::string_view key, uint32_t value);
  Status AddFloat32(std::string_view key, float value);
  Status AddBool(std::string_view key, bool value);

  // Declares the next tensor; `shape` is outermost first. kInvalidArgument: a name that is empty,
  // too long or taken, a bad shape, or rows that the type's blocks do not divide.
  Status AddTensor(std::string_view name, DType type, std::span<const int64_t> shape);

  // Creates the file and writes everything before the data. kIo names the path and cause, here and
  // below.
  Status Begin(const std::string& path);
  // The next bytes of the tensors in the order declared; padding between tensors is added here.
  Status Write(std::span<const std::byte> bytes);
  // kInvalidArgument if some tensor has not got all its bytes.
  Status Finish();

 private:
  struct Pair {
    std::string key;
    std::string encoded;  // type and value as they go to the file
  };
  struct Declared {
    std::string name;
    DType type;
    std::vector<int64_t> shape;
    uint64_t bytes = 0;
    uint64_t offset = 0;  // from the start of the data
  };

  std::vector<Pair> pairs_;
  std::unordered_map<std::string, size_t> pair_index_;
  std::vector<Declared> tensors_;
  std::unordered_map<std::string, size_t> tensor_index_;
  uint64_t alignment_ = 32;
  std::optional<OutputFile> file_;
  size_t current_ = 0;    // tensor being written
  uint64_t written_ = 0;  // bytes of it that are written
};

}  // namespace lucid
