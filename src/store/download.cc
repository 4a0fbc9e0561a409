#include "store/download.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "base/check.h"
#include "base/json.h"
#include "store/file_util.h"

namespace lucid {
namespace {

using nlohmann::json;

constexpr int kMaxAttemptsWithoutProgress = 4;
constexpr long kConnectTimeoutSeconds = 30;
constexpr long kStallSeconds =
    60;  // below one byte per second for this long, the transfer is given up
constexpr long kMaxRedirects = 10;
constexpr long kBufferBytes = 512L * 1024;

using CurlPtr = std::unique_ptr<CURL, void (*)(CURL*)>;

CurlPtr NewCurl() {
  static const CURLcode initialised = curl_global_init(CURL_GLOBAL_DEFAULT);
  LUCID_CHECK(initialised == CURLE_OK, "curl_global_init");
  CurlPtr curl(curl_easy_init(), curl_easy_cleanup);
  LUCID_CHECK(curl != nullptr, "curl_easy_init");
  return curl;
}

template <typename T>
void SetOption(CURL* curl, CURLoption option, T value) {
  const CURLcode code = curl_easy_setopt(curl, option, value);
  LUCID_CHECK(code == CURLE_OK, "curl option {}: {}", static_cast<int>(option),
              curl_easy_strerror(code));
}

void SetCommonOptions(CURL* curl, const std::string& url, const std::string& token) {
  SetOption(curl, CURLOPT_URL, url.c_str());
  SetOption(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  SetOption(curl, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
  SetOption(curl, CURLOPT_FOLLOWLOCATION, 1L);
  SetOption(curl, CURLOPT_MAXREDIRS, kMaxRedirects);
  SetOption(curl, CURLOPT_FAILONERROR, 1L);
  SetOption(curl, CURLOPT_NOSIGNAL, 1L);
  SetOption(curl, CURLOPT_CONNECTTIMEOUT, kConnectTimeoutSeconds);
  SetOption(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  SetOption(curl, CURLOPT_LOW_SPEED_TIME, kStallSeconds);
  SetOption(curl, CURLOPT_BUFFERSIZE, kBufferBytes);
  SetOption(curl, CURLOPT_USERAGENT, "lucid");
  if (!token.empty()) {
    SetOption(curl, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
    SetOption(curl, CURLOPT_XOAUTH2_BEARER, token.c_str());
  }
}

Error TransferError(CURL* curl, CURLcode code, const std::string& url) {
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  if (code != CURLE_HTTP_RETURNED_ERROR) {
    return {ErrorCode::kIo, fmt::format("cannot download {}: {}", url, curl_easy_strerror(code))};
  }
  if (status == 404) {
    return {ErrorCode::kNotFound, fmt::format("there is nothing at {} (HTTP 404)", url)};
  }
  if (status == 401 || status == 403) {
    return {ErrorCode::kIo,
            fmt::format("the server refuses access to {} (HTTP {}); a model behind a licence needs "
                        "its terms accepted and a token in HF_TOKEN",
                        url, status)};
  }
  return {ErrorCode::kIo, fmt::format("the server answers HTTP {} for {}", status, url)};
}

bool IsTransient(CURL* curl, CURLcode code) {
  switch (code) {
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
      return true;
    case CURLE_HTTP_RETURNED_ERROR: {
      long status = 0;
      curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
      return status == 408 || status == 429 || status >= 500;
    }
    default:
      return false;
  }
}

// What the server said of the file, kept beside the .part file.
struct PartNote {
  std::string url;
  std::string validator;  // a strong ETag or a date, for If-Range; may be empty
  uint64_t total = 0;     // 0: not known
};

void SaveNote(const std::string& path, const PartNote& note) {
  const json text = {{"url", note.url}, {"validator", note.validator}, {"total", note.total}};
  // Without the note the next call starts from the beginning; that is all that can go wrong.
  static_cast<void>(
      WriteFileAtomically(path, text.dump(-1, ' ', false, json::error_handler_t::replace)));
}

std::optional<PartNote> LoadNote(const std::string& path) {
  const auto text = ReadFile(path);
  if (!text) return std::nullopt;
  const auto parsed = ParseSortedJson(*text, path);
  if (!parsed) return std::nullopt;
  const json& note = *parsed;
  if (!note.is_object() || !note.contains("url") || !note["url"].is_string() ||
      !note.contains("validator") || !note["validator"].is_string() || !note.contains("total") ||
      !note["total"].is_number_unsigned()) {
    return std::nullopt;
  }
  return PartNote{note["url"], note["validator"], note["total"]};
}

// The part of a header line after "name:", without surrounding blanks; nullopt for another header.
std::optional<std::string> HeaderValue(std::string_view line, std::string_view name) {
  if (line.size() <= name.size() || line[name.size()] != ':' ||
      strncasecmp(line.data(), name.data(), name.size()) != 0) {
    return std::nullopt;
  }
  line.remove_prefix(name.size() + 1);
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t begin = line.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return "";
  return std::string(line.substr(begin, line.find_last_not_of(kBlanks) - begin + 1));
}

// One GET into the .part file.
class Transfer {
 public:
  explicit Transfer(const DownloadRequest& request)
      : request_(request),
        part_path_(request.path + ".part"),
        note_path_(request.path + ".part.json") {}
  ~Transfer() {
    if (fd_ >= 0) close(fd_);
  }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  // Opens the .part file and goes to where it can be resumed.
  Status Prepare() {
    fd_ = open(part_path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd_ < 0) return tl::unexpected(FileError("open"));
    struct stat info = {};
    if (fstat(fd_, &info) != 0) return tl::unexpected(FileError("examine"));
    const auto have = static_cast<uint64_t>(info.st_size);
    const std::optional<PartNote> note = LoadNote(note_path_);
    if (note && note->url == request_.url) note_ = *note;
    const bool same_size = request_.bytes == 0 || note_.total == request_.bytes;
    if (have > 0 && note_.url == request_.url && same_size) offset_ = have;
    return offset_ == 0 ? Restart() : Status{};
  }

  // True once the .part file is complete; false to try again.
  Result<bool> Run() {
    const CurlPtr curl = NewCurl();
    curl_ = curl.get();
    started_ = false;
    content_total_ = 0;
    failure_.reset();
    const uint64_t offset_before = offset_;
    SetCommonOptions(curl_, request_.url, request_.bearer_token);
    SetOption(curl_, CURLOPT_WRITEFUNCTION, &Transfer::OnBody);
    SetOption(curl_, CURLOPT_WRITEDATA, this);
    SetOption(curl_, CURLOPT_HEADERFUNCTION, &Transfer::OnHeader);
    SetOption(curl_, CURLOPT_HEADERDATA, this);
    const std::string range = fmt::format("{}-", offset_);
    curl_slist* list = nullptr;
    if (offset_ > 0) {
      SetOption(curl_, CURLOPT_RANGE, range.c_str());
      if (!note_.validator.empty()) {
        list = curl_slist_append(nullptr, ("If-Range: " + note_.validator).c_str());
      }
    }
    const std::unique_ptr<curl_slist, void (*)(curl_slist*)> headers(list, curl_slist_free_all);
    if (headers != nullptr) SetOption(curl_, CURLOPT_HTTPHEADER, headers.get());

    const CURLcode code = curl_easy_perform(curl_);
    made_progress_ = offset_ != offset_before;
    if (failure_) return tl::unexpected(*failure_);
    if (code == CURLE_OK) return Finish();
    if (code == CURLE_HTTP_RETURNED_ERROR && Status416()) {
      if (content_total_ != 0 && content_total_ == offset_) return Finish();
      LUCID_RETURN_IF_ERROR(Restart());  // the server has fewer bytes than we: not the same file
      return false;
    }
    if (IsTransient(curl_, code)) {
      last_error_ = TransferError(curl_, code, request_.url);
      return false;
    }
    return tl::unexpected(TransferError(curl_, code, request_.url));
  }

  uint64_t bytes() const { return offset_; }  // in the .part file
  bool made_progress() const { return made_progress_; }
  const Error& last_error() const { return last_error_; }
  // The checksum that a hub names in the header of the file, or "".
  const std::string& linked_sha256() const { return linked_sha256_; }
  const std::string& part_path() const { return part_path_; }

  void Discard() const {
    unlink(part_path_.c_str());
    unlink(note_path_.c_str());
  }
  Status Publish() const {
    if (std::rename(part_path_.c_str(), request_.path.c_str()) != 0) {
      return Err(ErrorCode::kIo, "cannot rename {} to {}: {}", part_path_, request_.path,
                 std::strerror(errno));
    }
    unlink(note_path_.c_str());
    return {};
  }

 private:
  Error FileError(const char* what) const {
    return {errno == ENOSPC ? ErrorCode::kCapacity : ErrorCode::kIo,
            fmt::format("cannot {} {}: {}", what, part_path_, std::strerror(errno))};
  }

  Status Restart() {
    offset_ = 0;
    note_ = {};
    if (ftruncate(fd_, 0) != 0) return tl::unexpected(FileError("empty"));
    return {};
  }

  bool Status416() const {
    long status = 0;
    curl_easy_getinfo(curl_, CURLINFO_RESPONSE_CODE, &status);
    return status == 416;
  }

  Result<bool> Finish() {
    const uint64_t total = request_.bytes != 0 ? request_.bytes : note_.total;
    if (total != 0 && offset_ != total) {
      return Err(ErrorCode::kInvalidFile, "{} has {} bytes, but {} were promised", request_.url,
                 offset_, total);
    }
    if (fsync(fd_) != 0) return tl::unexpected(FileError("write"));
    return true;
  }

  static size_t OnHeader(char* data, size_t size, size_t count, void* self) {
    static_cast<Transfer*>(self)->Header({data, size * count});
    return size * count;
  }

  void Header(std::string_view line) {
    if (line.starts_with("HTTP/")) {  // the next answer of a chain of redirects
      validator_.clear();
      content_start_ = 0;
      content_total_ = 0;
    } else if (const auto etag = HeaderValue(line, "ETag")) {
      if (!etag->starts_with("W/")) validator_ = *etag;  // If-Range needs a strong one
    } else if (const auto date = HeaderValue(line, "Last-Modified")) {
      if (validator_.empty()) validator_ = *date;
    } else if (const auto linked = HeaderValue(line, "X-Linked-Etag")) {
      std::string bare = *linked;
      std::erase(bare, '"');
      if (IsSha256(bare)) linked_sha256_ = bare;
    } else if (const auto range = HeaderValue(line, "Content-Range")) {
      unsigned long long start = 0;
      unsigned long long total = 0;
      if (std::sscanf(range->c_str(), "bytes %llu-%*u/%llu", &start, &total) >= 1 ||
          std::sscanf(range->c_str(), "bytes */%llu", &total) == 1) {
        content_start_ = start;
        content_total_ = total;
      }
    }
  }

  static size_t OnBody(char* data, size_t size, size_t count, void* self) {
    return static_cast<Transfer*>(self)->Body(data, size * count) ? size * count : 0;
  }

  bool Body(const char* data, size_t size) {
    if (!started_) {
      started_ = true;
      if (Status status = Begin(); !status) return Fail(status.error());
    }
    for (size_t written = 0; written < size;) {
      const ssize_t n = pwrite(fd_, data + written, size - written, static_cast<off_t>(offset_));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return Fail(FileError("write"));
      written += static_cast<size_t>(n);
      offset_ += static_cast<uint64_t>(n);
    }
    if (request_.progress) request_.progress(offset_, note_.total);
    return true;
  }

  // The headers are in: decides whether the body goes on from the .part file or begins anew.
  Status Begin() {
    long status = 0;
    curl_easy_getinfo(curl_, CURLINFO_RESPONSE_CODE, &status);
    curl_off_t length = -1;
    curl_easy_getinfo(curl_, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    const bool resumed = offset_ > 0 && status == 206 && content_start_ == offset_ &&
                         (note_.total == 0 || note_.total == content_total_);
    if (!resumed) {
      if (status == 206) {
        static_cast<void>(Restart());
        return Err(ErrorCode::kIo, "{} has changed since the download began; pull again to restart",
                   request_.url);
      }
      LUCID_RETURN_IF_ERROR(Restart());
    }
    const uint64_t total = resumed      ? content_total_
                           : length > 0 ? static_cast<uint64_t>(length)
                                        : 0;
    if (request_.bytes != 0 && total != 0 && total != request_.bytes) {
      return Err(ErrorCode::kInvalidFile, "the server offers {} bytes for {}, but {} were promised",
                 total, request_.url, request_.bytes);
    }
    note_ = {request_.url, validator_, total};
    SaveNote(note_path_, note_);
    const auto folder = std::filesystem::path(request_.path).parent_path().string();
    const auto free_bytes = FreeBytes(folder.empty() ? "." : folder);
    if (total > 0 && free_bytes && *free_bytes < total - offset_) {
      return Err(ErrorCode::kCapacity, "{} needs {} more bytes, but the disk of {} has {} left",
                 request_.url, total - offset_, folder, *free_bytes);
    }
    return {};
  }

  bool Fail(Error error) {
    failure_ = std::move(error);
    return false;
  }

  const DownloadRequest& request_;
  const std::string part_path_;
  const std::string note_path_;
  CURL* curl_ = nullptr;
  int fd_ = -1;
  uint64_t offset_ = 0;  // bytes in the .part file
  PartNote note_;
  bool started_ = false;  // the first byte of this answer has come
  std::string validator_;
  std::string linked_sha256_;
  uint64_t content_start_ = 0;
  uint64_t content_total_ = 0;
  bool made_progress_ = false;
  std::optional<Error> failure_;
  Error last_error_;
};

Status TransferWithRetries(Transfer& transfer) {
  int attempts = 0;
  while (true) {
    LUCID_ASSIGN_OR_RETURN(const bool complete, transfer.Run());
    if (complete) return {};
    attempts = transfer.made_progress() ? 1 : attempts + 1;
    if (attempts > kMaxAttemptsWithoutProgress) return tl::unexpected(transfer.last_error());
    std::this_thread::sleep_for(std::chrono::milliseconds(250) * (1 << attempts));
  }
}

size_t AppendText(char* data, size_t size, size_t count, void* target) {
  auto* sink = static_cast<std::pair<std::string, uint64_t>*>(target);
  if (sink->first.size() + size * count > sink->second) return 0;
  sink->first.append(data, size * count);
  return size * count;
}

}  // namespace

Result<DownloadResult> Download(const DownloadRequest& request) {
  Transfer transfer(request);
  LUCID_RETURN_IF_ERROR(transfer.Prepare());
  if (Status status = TransferWithRetries(transfer); !status) {
    const bool useless = status.error().code == ErrorCode::kInvalidFile || transfer.bytes() == 0;
    if (useless) transfer.Discard();
    return tl::unexpected(status.error());
  }
  LUCID_ASSIGN_OR_RETURN(const std::string sha256, Sha256OfFile(transfer.part_path()));
  const std::string& wanted = request.sha256.empty() ? transfer.linked_sha256() : request.sha256;
  if (!wanted.empty() && strcasecmp(wanted.c_str(), sha256.c_str()) != 0) {
    transfer.Discard();
    return Err(ErrorCode::kInvalidFile, "{} has the SHA-256 {}, but {} was promised", request.url,
               sha256, wanted);
  }
  std::error_code error;
  const uint64_t bytes = std::filesystem::file_size(transfer.part_path(), error);
  if (error)
    return Err(ErrorCode::kIo, "cannot examine {}: {}", transfer.part_path(), error.message());
  LUCID_RETURN_IF_ERROR(transfer.Publish());
  return DownloadResult{sha256, bytes};
}

Result<std::string> FetchText(const std::string& url, const std::string& bearer_token,
                              uint64_t max_bytes) {
  for (int attempt = 0;; ++attempt) {
    const CurlPtr curl = NewCurl();
    std::pair<std::string, uint64_t> sink{"", max_bytes};
    SetCommonOptions(curl.get(), url, bearer_token);
    SetOption(curl.get(), CURLOPT_WRITEFUNCTION, &AppendText);
    SetOption(curl.get(), CURLOPT_WRITEDATA, &sink);
    const CURLcode code = curl_easy_perform(curl.get());
    if (code == CURLE_OK) return std::move(sink.first);
    if (code == CURLE_WRITE_ERROR) {
      return Err(ErrorCode::kCapacity, "{} is longer than the {} bytes allowed for it", url,
                 max_bytes);
    }
    if (attempt >= 2 || !IsTransient(curl.get(), code)) {
      return tl::unexpected(TransferError(curl.get(), code, url));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(500) * (1 << attempt));
  }
}

}  // namespace lucid
