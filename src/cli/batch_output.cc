#include "cli/batch_output.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json.h"
#include "base/output_file.h"
#include "engine/openai_response.h"

namespace lucid::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The line of the input that an output row answers; nothing if it answers none of this input.
std::optional<int64_t> InputLineOf(const LineReader::Line& line, const BatchIndex& index) {
  if (line.too_long) return std::nullopt;
  const Result<Json> row = ParseJson(line.text, "row");
  if (!row || !row->is_object() || !row->contains("response")) return std::nullopt;
  const Json id = row->value("custom_id", Json());
  if (id.is_string()) return index.LineOf(id.get<std::string>());
  const Json number = row->value("line", Json());
  if (!id.is_null() || !number.is_number_unsigned()) return std::nullopt;
  const auto input_line = static_cast<int64_t>(number.get<uint64_t>());
  return index.IsNameless(input_line) ? std::optional(input_line) : std::nullopt;
}

Json Row(const std::optional<std::string>& custom_id, int64_t line, int status, Json body,
         Json error) {
  const std::string id = NewApiId("batch_req_");
  Json row = {{"id", id}, {"custom_id", custom_id ? Json(*custom_id) : Json(nullptr)}};
  if (!custom_id) row["line"] = line;
  row["response"] = {{"status_code", status}, {"request_id", id}, {"body", std::move(body)}};
  row["error"] = std::move(error);
  return row;
}

}  // namespace

Json AnswerRow(const std::optional<std::string>& custom_id, int64_t line, Json body) {
  return Row(custom_id, line, 200, std::move(body), nullptr);
}

Json ErrorRow(const std::optional<std::string>& custom_id, int64_t line, const ApiError& error) {
  Json body = ErrorBody(error);
  Json object = body["error"];
  return Row(custom_id, line, HttpStatus(error.error.code), std::move(body), std::move(object));
}

BatchOutput::BatchOutput(BatchOutput&& other) noexcept {
  *this = std::move(other);
}

BatchOutput& BatchOutput::operator=(BatchOutput&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(done_, other.done_);
  std::swap(n_done_, other.n_done_);
  std::swap(newest_line_, other.newest_line_);
  std::swap(in_order_, other.in_order_);
  return *this;
}

BatchOutput::~BatchOutput() {
  if (fd_ >= 0) ::close(fd_);
}

tl::unexpected<Error> BatchOutput::Failed() const {
  return Err(ErrorCode::kIo, "cannot write to {}: {}", path_, std::strerror(errno));
}

Result<BatchOutput> BatchOutput::Open(const std::string& path, bool overwrite,
                                      const std::string& input, const BatchIndex& index) {
  BatchOutput output;
  output.path_ = path;
  output.fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (output.fd_ < 0) return output.Failed();
  struct stat info {};
  if (::fstat(output.fd_, &info) != 0) return output.Failed();
  if (!S_ISREG(info.st_mode)) {
    return Err(ErrorCode::kInvalidArgument, "{} is not a regular file", path);
  }
  struct stat source {};
  if (::stat(input.c_str(), &source) == 0 && source.st_dev == info.st_dev &&
      source.st_ino == info.st_ino) {
    return Err(ErrorCode::kInvalidArgument, "{} is both the input and the output", path);
  }
  if (::flock(output.fd_, LOCK_EX | LOCK_NB) != 0) {
    return Err(ErrorCode::kInvalidArgument, "another process writes to {}", path);
  }
  output.done_.resize(static_cast<size_t>(index.n_lines() + 1));
  if (overwrite) {
    if (::ftruncate(output.fd_, 0) != 0) return output.Failed();
  } else {
    LUCID_RETURN_IF_ERROR(output.ReadRows(index));
  }
  return output;
}

void BatchOutput::Note(int64_t line) {
  done_[static_cast<size_t>(line)] = true;
  ++n_done_;
  in_order_ = in_order_ && line > newest_line_;
  newest_line_ = std::max(newest_line_, line);
}

Status BatchOutput::ReadRows(const BatchIndex& index) {
  LUCID_ASSIGN_OR_RETURN(LineReader reader, LineReader::Open(path_));
  LineReader::Line line;
  while (true) {
    LUCID_ASSIGN_OR_RETURN(const bool more, reader.Next(line));
    if (!more) break;
    if (!line.ended) {  // the run was killed while it wrote
      if (::ftruncate(fd_, line.offset) != 0) return Failed();
      break;
    }
    const std::optional<int64_t> input_line = InputLineOf(line, index);
    if (!input_line) {
      return Err(ErrorCode::kInvalidArgument,
                 "line {} of {} answers no row of this input; --overwrite begins anew", line.number,
                 path_);
    }
    if (Has(*input_line)) {
      return Err(
          ErrorCode::kInvalidArgument,
          "line {} of {} answers line {} of the input a second time; --overwrite begins anew",
          line.number, path_, *input_line);
    }
    Note(*input_line);
  }
  return {};
}

Status BatchOutput::Append(int64_t line, const Json& row) {
  const std::string text = Dump(row) + "\n";
  size_t written = 0;
  while (written < text.size()) {  // once, unless the disk is full
    const ssize_t n = ::write(fd_, text.data() + written, text.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed();
    written += static_cast<size_t>(n);
  }
  Note(line);
  return {};
}

Status BatchOutput::Sort(const BatchIndex& index) {
  if (in_order_) return {};
  struct Place {
    int64_t line, offset, bytes;
  };
  std::vector<Place> places;
  LUCID_ASSIGN_OR_RETURN(LineReader reader, LineReader::Open(path_));
  LineReader::Line line;
  while (true) {
    LUCID_ASSIGN_OR_RETURN(const bool more, reader.Next(line));
    if (!more) break;
    const std::optional<int64_t> input_line = InputLineOf(line, index);
    if (!input_line) return Err(ErrorCode::kIo, "{} was changed while it was written", path_);
    places.push_back({*input_line, line.offset, std::ssize(line.text) + 1});
  }
  std::sort(places.begin(), places.end(),
            [](const Place& a, const Place& b) { return a.line < b.line; });
  LUCID_ASSIGN_OR_RETURN(OutputFile sorted, OutputFile::Create(path_));
  std::string text;
  for (const Place& place : places) {
    text.resize(static_cast<size_t>(place.bytes));
    if (::pread(fd_, text.data(), text.size(), place.offset) != place.bytes) return Failed();
    LUCID_RETURN_IF_ERROR(sorted.Write(text));
  }
  return sorted.Commit();
}

}  // namespace lucid::cli
