// The input of lucid batch: lines of JSON, in OpenAI's batch format or plain.
//
// The file is read twice, so that a row never has to be kept: BatchIndex finds out beforehand
// how many rows there are and that no custom_id comes twice; then LineReader and ParseBatchRow give
// one row after the other. Lines of nothing but white space are passed over.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "engine/openai_request.h"

namespace lucid::cli {

// Longer lines are not taken into memory; prompts of millions of tokens are shorter.
constexpr size_t kMostLineBytes = size_t{64} << 20;

class LineReader {
 public:
  // kNotFound, kIo; kInvalidArgument if it is no regular file, which could not be read twice.
  static Result<LineReader> Open(const std::string& path);

  struct Line {
    int64_t number = 0;     // from 1
    int64_t offset = 0;     // of its first byte in the file
    std::string text = {};  // without its line end
    bool too_long = false;  // then `text` is only its beginning
    bool ended = true;      // by a line end; only the last line of a file may lack it
  };
  // The next line; false at the end. kIo.
  Result<bool> Next(Line& line);

 private:
  LineReader() = default;

  std::string path_;
  UniqueFd fd_;
  std::vector<char> buffer_;
  size_t at_ = 0, filled_ = 0;
  int64_t number_ = 0;
  int64_t offset_ = 0;
};

// One request. `custom_id` is known even where the rest is wrong.
struct BatchRow {
  std::optional<std::string> custom_id;
  ApiEndpoint endpoint = ApiEndpoint::kChat;
  nlohmann::ordered_json body;
  std::optional<ApiError> error;  // why there is no body
};
BatchRow ParseBatchRow(const LineReader::Line& line);
bool IsBlank(const LineReader::Line& line);

class BatchIndex {
 public:
  // kInvalidArgument names the custom_id that two lines have, and both lines.
  static Result<BatchIndex> Make(const std::string& path);

  int64_t n_rows() const { return n_rows_; }    // lines that are not blank
  int64_t n_lines() const { return n_lines_; }  // all
  // The line that has this custom_id.
  std::optional<int64_t> LineOf(const std::string& custom_id) const;
  // True if the line is a row without a custom_id.
  bool IsNameless(int64_t line) const;

 private:
  // A custom_id by 128 bits of hash: two of a billion are alike with a probability of 1e-21.
  struct Entry {
    uint64_t high = 0, low = 0;
    int64_t line = 0;
    auto operator<=>(const Entry&) const = default;
  };
  static Entry EntryOf(const std::string& custom_id, int64_t line);

  int64_t n_rows_ = 0, n_lines_ = 0;
  std::vector<Entry> entries_;  // sorted
  std::vector<bool> nameless_;  // by line number
};

}  // namespace lucid::cli
