#include "cli/batch_output.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
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

constexpr std::string_view kRowBegin = R"({"id":"batch_req_)";
constexpr int kNoCapacity = 503, kTooMany = 429;

// A row of the output: the line of the input that it answers, and whether a later run tries again.
struct OutputRow {
  int64_t line = 0;
  bool again = false;
};

// Nothing if the line answers none of this input.
std::optional<OutputRow> ReadRow(const LineReader::Line& line, const BatchIndex& index) {
  if (line.too_long) return std::nullopt;
  const Result<Json> row = ParseJson(line.text, "row");
  if (!row || !row->is_object() || !row->contains("response")) return std::nullopt;
  const Json& response = (*row)["response"];
  const Json status = response.is_object() ? response.value("status_code", Json()) : Json();
  const bool again = status == kNoCapacity || status == kTooMany;
  const Json id = row->value("custom_id", Json());
  if (id.is_string()) {
    const std::optional<int64_t> found = index.LineOf(id.get<std::string>());
    return found ? std::optional(OutputRow{*found, again}) : std::nullopt;
  }
  const Json number = row->value("line", Json());
  if (!id.is_null() || !number.is_number_unsigned()) return std::nullopt;
  const auto input_line = static_cast<int64_t>(number.get<uint64_t>());
  return index.IsNameless(input_line) ? std::optional(OutputRow{input_line, again}) : std::nullopt;
}

// True if a last line without its end is the beginning of a row, as a run that was killed leaves
// it.
bool IsTorn(const LineReader::Line& line) {
  const std::string_view text = line.text;
  return text.substr(0, kRowBegin.size()) == kRowBegin.substr(0, text.size()) &&
         !ParseJson(text, "row");
}

// The file itself, where the path is a symbolic link.
std::string RealPath(const std::string& path) {
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(path, error);
  return error ? path : real.string();
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

tl::unexpected<Error> BatchOutput::Failed() const {
  return Err(ErrorCode::kIo, "cannot write to {}: {}", path_, std::strerror(errno));
}

// What fd_ must be to be written: a file that is not the input, and no other process's.
Status BatchOutput::Lock() {
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) return Failed();
  if (!S_ISREG(info.st_mode)) {
    return Err(ErrorCode::kInvalidArgument, "{} is not a regular file", path_);
  }
  struct stat source {};
  if (::stat(input_.c_str(), &source) == 0 && source.st_dev == info.st_dev &&
      source.st_ino == info.st_ino) {
    return Err(ErrorCode::kInvalidArgument, "{} is both the input and the output", path_);
  }
  struct stat named {};  // another process may have put a sorted file into its place
  const bool same = ::flock(fd_.get(), LOCK_EX | LOCK_NB) == 0 &&
                    ::stat(path_.c_str(), &named) == 0 && named.st_dev == info.st_dev &&
                    named.st_ino == info.st_ino;
  if (!same) return Err(ErrorCode::kInvalidArgument, "another process writes to {}", path_);
  path_ = RealPath(path_);
  return {};
}

Result<BatchOutput> BatchOutput::Open(const std::string& path, bool overwrite,
                                      const std::string& input, const BatchIndex& index) {
  BatchOutput output;
  output.path_ = path;
  output.input_ = input;
  output.overwrite_ = overwrite;
  output.done_.resize(static_cast<size_t>(index.n_lines() + 1));
  // A pipe that nobody reads is no reason to wait.
  output.fd_ = UniqueFd(::open(path.c_str(), O_RDWR | O_APPEND | O_CLOEXEC | O_NONBLOCK));
  if (!output.fd_.open() && errno == ENOENT) {
    const std::string folder = std::filesystem::path(path).parent_path().string();
    if (::access(folder.empty() ? "." : folder.c_str(), W_OK) != 0) return output.Failed();
    return output;
  }
  if (!output.fd_.open()) return output.Failed();
  LUCID_RETURN_IF_ERROR(output.Lock());
  if (!overwrite) LUCID_RETURN_IF_ERROR(output.ReadRows(index));
  return output;
}

Status BatchOutput::Begin(const BatchIndex& index) {
  if (!fd_.open()) {
    fd_ =
        UniqueFd(::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666));
    if (!fd_.open()) return Failed();
    LUCID_RETURN_IF_ERROR(Lock());
    struct stat info {};
    if (::fstat(fd_.get(), &info) != 0) return Failed();
    if (info.st_size > 0 && !overwrite_) {
      return Err(ErrorCode::kInvalidArgument, "another process has written to {} meanwhile", path_);
    }
  }
  if (overwrite_) return ::ftruncate(fd_.get(), 0) == 0 ? Status() : Status(Failed());
  if (retries_) {
    LUCID_RETURN_IF_ERROR(Rewrite(index, /*sort=*/false));
    fd_.Close();
    fd_ = UniqueFd(::open(path_.c_str(), O_RDWR | O_APPEND | O_CLOEXEC | O_NONBLOCK));
    return fd_.open() ? Lock() : Status(Failed());
  }
  if (torn_at_ >= 0 && ::ftruncate(fd_.get(), torn_at_) != 0) return Failed();
  return {};
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
    if (!line.ended && IsTorn(line)) {
      torn_at_ = line.offset;
      break;
    }
    const std::optional<OutputRow> row = line.ended ? ReadRow(line, index) : std::nullopt;
    if (!row) {
      return Err(ErrorCode::kInvalidArgument,
                 "line {} of {} answers no row of this input; --overwrite begins anew", line.number,
                 path_);
    }
    if (row->again) {
      retries_ = true;
      continue;
    }
    if (Has(row->line)) {
      return Err(
          ErrorCode::kInvalidArgument,
          "line {} of {} answers line {} of the input a second time; --overwrite begins anew",
          line.number, path_, row->line);
    }
    Note(row->line);
  }
  return {};
}

Status BatchOutput::Append(int64_t line, const Json& row) {
  const std::string text = Dump(row) + "\n";
  size_t written = 0;
  while (written < text.size()) {  // once, unless the disk is full
    const ssize_t n = ::write(fd_.get(), text.data() + written, text.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed();
    written += static_cast<size_t>(n);
  }
  Note(line);
  return {};
}

Status BatchOutput::Sort(const BatchIndex& index) {
  return in_order_ ? Status() : Rewrite(index, /*sort=*/true);
}

Status BatchOutput::Rewrite(const BatchIndex& index, bool sort) {
  struct Place {
    int64_t line, offset, bytes;
  };
  std::vector<Place> places;
  LUCID_ASSIGN_OR_RETURN(LineReader reader, LineReader::Open(path_));
  LineReader::Line line;
  while (true) {
    LUCID_ASSIGN_OR_RETURN(const bool more, reader.Next(line));
    if (!more || !line.ended) break;
    const std::optional<OutputRow> row = ReadRow(line, index);
    if (!row) return Err(ErrorCode::kIo, "{} was changed while it was written", path_);
    if (!sort && row->again) continue;
    places.push_back({row->line, line.offset, std::ssize(line.text) + 1});
  }
  if (sort) {
    std::sort(places.begin(), places.end(),
              [](const Place& a, const Place& b) { return a.line < b.line; });
  }
  LUCID_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path_));
  std::string text;
  for (const Place& place : places) {
    text.resize(static_cast<size_t>(place.bytes));
    if (::pread(fd_.get(), text.data(), text.size(), place.offset) != place.bytes) return Failed();
    LUCID_RETURN_IF_ERROR(file.Write(text));
  }
  return file.Commit();
}

}  // namespace lucid::cli
