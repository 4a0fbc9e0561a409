// The output of lucid batch: one line for each row of the input, appended as it is finished, so
// that a run which was killed goes on where it stopped.
//
// Open() looks at the file without changing it, Begin() makes it ready to be written: so a run that
// fails before it begins leaves everything as it was.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/batch_input.h"

namespace lucid::cli {

class BatchOutput {
 public:
  // Reads what is there: complete lines count as done, but for those that were refused for lack of
  // capacity. kInvalidArgument for a line that is no row of this input, a file that is none, is the
  // input or is being written by another process; kIo. `overwrite` begins anew.
  static Result<BatchOutput> Open(const std::string& path, bool overwrite, const std::string& input,
                                  const BatchIndex& index);

  bool Has(int64_t line) const { return done_[static_cast<size_t>(line)]; }
  int64_t n_done() const { return n_done_; }
  // Creates the file if there is none, and cuts off a last line that was torn and the lines that
  // do not count as done. Once, before Append. kIo; kInvalidArgument if another process came first.
  Status Begin(const BatchIndex& index);
  // Adds the row of an input line with one write.
  Status Append(int64_t line, const nlohmann::ordered_json& row);
  // Puts the rows into the order of the input, if they are not: in a file of their own that then
  // takes the place of this one.
  Status Sort(const BatchIndex& index);

 private:
  BatchOutput() = default;
  Status Lock();
  Status ReadRows(const BatchIndex& index);
  // Writes the rows into a file that takes the place of this one: sorted, or without the rows that
  // are to be tried again.
  Status Rewrite(const BatchIndex& index, bool sort);
  tl::unexpected<Error> Failed() const;
  void Note(int64_t line);

  std::string path_, input_;
  UniqueFd fd_;
  bool overwrite_ = false;
  bool retries_ = false;    // there are rows to be tried again
  int64_t torn_at_ = -1;    // where a torn last line begins
  std::vector<bool> done_;  // by line of the input
  int64_t n_done_ = 0;
  int64_t newest_line_ = 0;
  bool in_order_ = true;
};

// The members of a row: {"id", "custom_id", "response": {"status_code", "request_id", "body"},
// "error"}; "line" where there is no custom_id. An error row has the error object both as its body
// and as "error".
nlohmann::ordered_json AnswerRow(const std::optional<std::string>& custom_id, int64_t line,
                                 nlohmann::ordered_json body);
nlohmann::ordered_json ErrorRow(const std::optional<std::string>& custom_id, int64_t line,
                                const ApiError& error);

}  // namespace lucid::cli
