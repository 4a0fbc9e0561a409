#include "cli/batch_input.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/json.h"

namespace lucid::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kBufferBytes = size_t{1} << 20;

ApiError Invalid(std::string message, std::string param = {}) {
  return {Error{ErrorCode::kInvalidArgument, std::move(message)}, std::move(param)};
}

// {"custom_id", "method", "url", "body"}
std::optional<ApiError> ReadOpenAiRow(const Json& json, int64_t number, BatchRow& row) {
  for (const auto& [name, value] : json.items()) {
    if (name != "custom_id" && name != "method" && name != "url" && name != "body") {
      return Invalid(fmt::format("line {} has the member {} beside its body", number,
                                 Json(name).dump(-1, ' ', false, Json::error_handler_t::replace)),
                     name);
    }
  }
  if (json.value("method", Json()) != "POST") {
    return Invalid(fmt::format("line {}: the method must be \"POST\"", number), "method");
  }
  const Json url = json.value("url", Json());
  if (url == "/v1/chat/completions") {
    row.endpoint = ApiEndpoint::kChat;
  } else if (url == "/v1/completions") {
    row.endpoint = ApiEndpoint::kCompletion;
  } else {
    return Invalid(
        fmt::format("line {}: the url must be /v1/chat/completions or /v1/completions", number),
        "url");
  }
  row.body = json.value("body", Json());
  if (row.body.is_object()) return std::nullopt;
  return Invalid(fmt::format("line {}: the body must be an object", number), "body");
}

// {"custom_id", "prompt" or "messages", parameters ...}
std::optional<ApiError> ReadPlainRow(Json json, int64_t number, BatchRow& row) {
  const bool chat = json.contains("messages");
  if (chat == json.contains("prompt")) {
    return Invalid(fmt::format(
        "line {} {}", number,
        chat ? "has both a prompt and messages" : "has neither a body nor a prompt nor messages"));
  }
  row.endpoint = chat ? ApiEndpoint::kChat : ApiEndpoint::kCompletion;
  json.erase("custom_id");
  row.body = std::move(json);
  return std::nullopt;
}

}  // namespace

Result<LineReader> LineReader::Open(const std::string& path) {
  LineReader reader;
  reader.path_ = path;
  LUCID_ASSIGN_OR_RETURN(OpenedFile file, OpenRegularFile(path, ErrorCode::kInvalidArgument));
  reader.fd_ = std::move(file.fd);
  reader.buffer_.resize(kBufferBytes);
  return reader;
}

Result<bool> LineReader::Next(Line& line) {
  line = {.number = number_ + 1, .offset = offset_, .ended = false};
  bool any = false;
  while (!line.ended) {
    if (at_ == filled_) {
      const ssize_t n = ::read(fd_.get(), buffer_.data(), buffer_.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return Err(ErrorCode::kIo, "cannot read {}: {}", path_, std::strerror(errno));
      if (n == 0) break;
      at_ = 0;
      filled_ = static_cast<size_t>(n);
    }
    any = true;
    const char* begin = buffer_.data() + at_;
    const auto* end = static_cast<const char*>(std::memchr(begin, '\n', filled_ - at_));
    line.ended = end != nullptr;
    const size_t n = line.ended ? static_cast<size_t>(end - begin) : filled_ - at_;
    const size_t room = kMostLineBytes - line.text.size();
    line.too_long = line.too_long || n > room;
    line.text.append(begin, std::min(n, room));
    at_ += n + (line.ended ? 1 : 0);
    offset_ += static_cast<int64_t>(n) + (line.ended ? 1 : 0);
  }
  if (any) ++number_;
  return any;
}

bool IsBlank(const LineReader::Line& line) {
  return line.text.find_first_not_of(" \t\r") == std::string::npos;
}

BatchRow ParseBatchRow(const LineReader::Line& line) {
  BatchRow row;
  if (line.too_long) {
    row.error =
        Invalid(fmt::format("line {} is longer than {} bytes", line.number, kMostLineBytes));
    return row;
  }
  Result<Json> json = ParseJson(line.text, fmt::format("line {}", line.number));
  if (!json) {
    row.error =
        ApiError{Error{ErrorCode::kInvalidArgument, json.error().message}, "", "invalid_json"};
    return row;
  }
  if (!json->is_object()) {
    row.error = Invalid(fmt::format("line {} is not a JSON object", line.number));
    return row;
  }
  const auto id = json->find("custom_id");
  if (id != json->end() && id->is_string()) row.custom_id = id->get<std::string>();
  if (id != json->end() && !id->is_string() && !id->is_null()) {
    row.error =
        Invalid(fmt::format("line {}: custom_id must be a string", line.number), "custom_id");
    return row;
  }
  const bool openai = json->contains("body") || json->contains("method") || json->contains("url");
  row.error = openai ? ReadOpenAiRow(*json, line.number, row)
                     : ReadPlainRow(*std::move(json), line.number, row);
  return row;
}

BatchIndex::Entry BatchIndex::EntryOf(const std::string& custom_id, int64_t line) {
  const XXH128_hash_t hash = XXH3_128bits(custom_id.data(), custom_id.size());
  return {hash.high64, hash.low64, line};
}

namespace {

// The custom_id of a line, as JSON.
std::string NameAt(const std::string& path, int64_t number) {
  Result<LineReader> reader = LineReader::Open(path);
  LineReader::Line line;
  while (reader && line.number < number && reader->Next(line).value_or(false)) {
  }
  const Json name = ParseBatchRow(line).custom_id.value_or("");
  return name.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

Result<BatchIndex> BatchIndex::Make(const std::string& path) {
  LUCID_ASSIGN_OR_RETURN(LineReader reader, LineReader::Open(path));
  BatchIndex index;
  index.nameless_.push_back(false);  // lines count from 1
  LineReader::Line line;
  while (true) {
    LUCID_ASSIGN_OR_RETURN(const bool more, reader.Next(line));
    if (!more) break;
    ++index.n_lines_;
    const bool blank = IsBlank(line);
    const std::optional<std::string> id = blank ? std::nullopt : ParseBatchRow(line).custom_id;
    index.nameless_.push_back(!blank && !id);
    if (!blank) ++index.n_rows_;
    if (id) index.entries_.push_back(EntryOf(*id, line.number));
  }
  std::sort(index.entries_.begin(), index.entries_.end());
  for (size_t i = 1; i < index.entries_.size(); ++i) {
    const Entry& a = index.entries_[i - 1];
    const Entry& b = index.entries_[i];
    if (a.high != b.high || a.low != b.low) continue;
    return Err(ErrorCode::kInvalidArgument, "lines {} and {} of {} have the same custom_id {}",
               a.line, b.line, path, NameAt(path, a.line));
  }
  return index;
}

std::optional<int64_t> BatchIndex::LineOf(const std::string& custom_id) const {
  const Entry wanted = EntryOf(custom_id, 0);
  const auto found = std::lower_bound(entries_.begin(), entries_.end(), wanted);
  if (found == entries_.end() || found->high != wanted.high || found->low != wanted.low) {
    return std::nullopt;
  }
  return found->line;
}

bool BatchIndex::IsNameless(int64_t line) const {
  return line > 0 && line < std::ssize(nameless_) && nameless_[static_cast<size_t>(line)];
}

}  // namespace lucid::cli
