#include "store/hub.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "store/file_util.h"

namespace lucid {
namespace {

using nlohmann::json;

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

std::string_view BaseName(std::string_view path) {
  return path.substr(path.find_last_of('/') + 1);  // npos + 1 is 0
}

bool IsPlainNamePart(std::string_view part) {
  return !part.empty() && part != "." && part != ".." &&
         std::all_of(part.begin(), part.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
         });
}

// A relative path whose parts stay inside a folder and hold no control characters.
bool IsSafePath(std::string_view path) {
  if (path.empty() || path.find('\\') != std::string_view::npos) return false;
  for (const char c : path) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return false;
  }
  while (true) {
    const size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
}

// "name-00002-of-00005" -> {"name", 2, 5}; count 0 for a file that is not split.
struct SplitName {
  std::string stem;
  int part = 0;
  int count = 0;
};

SplitName ParseSplit(std::string_view file) {
  std::string_view stem = file.substr(0, file.size() - std::string_view(".gguf").size());
  constexpr size_t kSuffix = std::string_view("-00001-of-00005").size();
  SplitName split{std::string(stem), 0, 0};
  if (stem.size() <= kSuffix) return split;
  const std::string suffix(stem.substr(stem.size() - kSuffix));
  const auto digits = [&suffix](size_t begin) {
    return std::all_of(suffix.begin() + static_cast<ptrdiff_t>(begin),
                       suffix.begin() + static_cast<ptrdiff_t>(begin + 5),
                       [](unsigned char c) { return std::isdigit(c) != 0; });
  };
  if (suffix[0] != '-' || suffix.substr(6, 4) != "-of-" || !digits(1) || !digits(10)) return split;
  return {std::string(stem.substr(0, stem.size() - kSuffix)), std::stoi(suffix.substr(1, 5)),
          std::stoi(suffix.substr(10, 5))};
}

// True if `quant` stands in the stem as a word of its own: "Q4_K" does not match "model-Q4_K_M".
bool HasQuant(std::string_view stem, std::string_view quant) {
  const std::string text = Lower(stem);
  const std::string wanted = Lower(quant);
  const auto is_word = [&text](size_t i) {
    return i < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[i])) != 0 || text[i] == '_');
  };
  for (size_t at = text.find(wanted); at != std::string::npos; at = text.find(wanted, at + 1)) {
    if ((at == 0 || !is_word(at - 1)) && !is_word(at + wanted.size())) return true;
  }
  return false;
}

// GGUF files by stem, split files together; projectors of vision models are not models.
using GgufSets = std::map<std::string, std::vector<HubFile>>;

GgufSets CollectGguf(const std::vector<HubFile>& files) {
  GgufSets sets;
  for (const HubFile& file : files) {
    const std::string lower = Lower(file.name);
    if (!lower.ends_with(".gguf") || BaseName(lower).starts_with("mmproj")) continue;
    sets[ParseSplit(file.name).stem].push_back(file);
  }
  for (auto& [stem, parts] : sets) {
    std::sort(parts.begin(), parts.end(),
              [](const HubFile& a, const HubFile& b) { return a.name < b.name; });
  }
  return sets;
}

std::string NameList(const GgufSets& sets) {
  std::string list;
  for (const auto& [stem, parts] : sets) list += (list.empty() ? "" : ", ") + stem + ".gguf";
  return list;
}

Result<HubSelection> ChooseGguf(const GgufSets& sets, const HubName& name) {
  auto chosen = sets.end();
  const std::string quant = name.quant.empty() ? "Q4_K_M" : name.quant;
  for (auto it = sets.begin(); it != sets.end() && chosen == sets.end(); ++it) {
    if (HasQuant(it->first, quant)) chosen = it;
  }
  if (chosen == sets.end() && name.quant.empty()) chosen = sets.begin();
  if (chosen == sets.end()) {
    return Err(ErrorCode::kNotFound, "{} has no GGUF file of the type {}; it has {}", name.repo,
               name.quant, NameList(sets));
  }
  const std::vector<HubFile>& parts = chosen->second;
  const SplitName split = ParseSplit(parts[0].name);
  if (split.count > 0 && parts.size() != static_cast<size_t>(split.count)) {
    return Err(ErrorCode::kInvalidFile, "{} lists {} of the {} parts of {}", name.repo,
               parts.size(), split.count, chosen->first);
  }
  return HubSelection{parts, std::string(BaseName(parts[0].name))};
}

Result<HubSelection> ChooseSafetensors(const std::vector<HubFile>& files, const HubName& name) {
  constexpr std::array<std::string_view, 9> kCompanions = {
      "config.json",           "generation_config.json", "tokenizer.json",
      "tokenizer_config.json", "tokenizer.model",        "special_tokens_map.json",
      "chat_template.jinja",   "chat_template.json",     "model.safetensors.index.json"};
  HubSelection selection;
  bool weights = false;
  bool config = false;
  for (const HubFile& file : files) {
    const bool is_weights = file.name.ends_with(".safetensors");
    const bool companion =
        std::find(kCompanions.begin(), kCompanions.end(), file.name) != kCompanions.end();
    if (file.name.find('/') != std::string::npos || (!is_weights && !companion)) continue;
    weights = weights || is_weights;
    config = config || file.name == "config.json";
    selection.files.push_back(file);
  }
  if (!weights || !config) {
    return Err(ErrorCode::kNotFound,
               "{} has neither a GGUF file nor safetensors with a config.json", name.repo);
  }
  return selection;
}

}  // namespace

Result<HubName> ParseHubName(std::string_view name) {
  const auto wrong = [name](std::string_view what) {
    return Err(ErrorCode::kInvalidArgument, "'{}' {}; write hf:OWNER/REPO or hf:OWNER/REPO:QUANT",
               name, what);
  };
  if (!name.starts_with("hf:")) return wrong("does not begin with hf:");
  std::string_view rest = name.substr(3);
  HubName parsed;
  if (const size_t colon = rest.find(':'); colon != std::string_view::npos) {
    parsed.quant = std::string(rest.substr(colon + 1));
    rest = rest.substr(0, colon);
    if (!IsPlainNamePart(parsed.quant)) return wrong("has no valid quantisation after the colon");
  }
  const size_t slash = rest.find('/');
  if (slash == std::string_view::npos || !IsPlainNamePart(rest.substr(0, slash)) ||
      !IsPlainNamePart(rest.substr(slash + 1))) {
    return wrong("names no repository");
  }
  parsed.repo = std::string(rest);
  return parsed;
}

Result<std::vector<HubFile>> ParseHubListing(const std::string& body) {
  LUCID_ASSIGN_OR_RETURN(const json listing, ParseSortedJson(body, "the hub's answer"));
  if (!listing.is_object() || !listing.contains("siblings") || !listing["siblings"].is_array()) {
    return Err(ErrorCode::kInvalidFile, "the hub's answer has no list of files ('siblings')");
  }
  std::vector<HubFile> files;
  for (const json& entry : listing["siblings"]) {
    if (!entry.is_object() || !entry.contains("rfilename") || !entry["rfilename"].is_string()) {
      return Err(ErrorCode::kInvalidFile, "a file in the hub's answer has no 'rfilename'");
    }
    HubFile file;
    file.name = entry["rfilename"];
    if (!IsSafePath(file.name)) {
      return Err(ErrorCode::kInvalidFile, "the hub names a file '{}', which is no plain path",
                 file.name);
    }
    const auto number = [](const json& object, const char* key) -> uint64_t {
      const auto it = object.find(key);
      return it != object.end() && it->is_number_unsigned() ? it->get<uint64_t>() : 0;
    };
    file.bytes = number(entry, "size");
    if (const auto lfs = entry.find("lfs"); lfs != entry.end() && lfs->is_object()) {
      if (file.bytes == 0) file.bytes = number(*lfs, "size");
      for (const char* key : {"sha256", "oid"}) {
        const auto it = lfs->find(key);
        if (it != lfs->end() && it->is_string() && IsSha256(*it)) file.sha256 = *it;
      }
    }
    files.push_back(std::move(file));
  }
  return files;
}

Result<HubSelection> ChooseHubFiles(const std::vector<HubFile>& files, const HubName& name) {
  const GgufSets sets = CollectGguf(files);
  if (!sets.empty()) return ChooseGguf(sets, name);
  if (!name.quant.empty()) {
    return Err(ErrorCode::kNotFound, "{} has no GGUF files, so no {}", name.repo, name.quant);
  }
  return ChooseSafetensors(files, name);
}

}  // namespace lucid
