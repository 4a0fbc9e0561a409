#include "engine/tokenizer_loader.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mmap_file.h"
#include "format/safetensors.h"
#include "text/hf_tokenizer.h"
#include "text/pre_names.h"
#include "text/xz.h"

namespace lucid {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMetaspace = "\xE2\x96\x81";
constexpr std::string_view kPrefix = "tokenizer.ggml.";

// A packed tokenizer.json may unpack to this: real ones reach 35 MB and pack to a tenth.
constexpr size_t kUnpackedBase = size_t{64} << 20;
constexpr size_t kUnpackedRatio = 32;

std::string Key(std::string_view name) {
  return std::string(kPrefix).append(name);
}

// Reads the metadata of one GGUF file into a VocabSpec.
class GgufVocabReader {
 public:
  explicit GgufVocabReader(const GgufFile& file) : file_(file) {}

  Result<VocabSpec> Run() {
    const auto model = file_.GetString(Key("model"));
    if (!model && model.error().code == ErrorCode::kNotFound) {
      return Err(ErrorCode::kNotFound, "the file holds no tokenizer (no tokenizer.ggml.model)");
    }
    if (!model) return tl::unexpected<Error>(model.error());
    if (*model == "none" || *model == "no_vocab") {
      return Err(ErrorCode::kNotFound,
                 "the file holds no tokenizer (tokenizer.ggml.model is \"{}\")", *model);
    }
    LUCID_RETURN_IF_ERROR(ReadTokens());
    LUCID_RETURN_IF_ERROR(ReadIds());
    LUCID_RETURN_IF_ERROR(ReadModel(*model));
    LUCID_RETURN_IF_ERROR(ReadFlags());
    MarkKnownEnds();
    AddAddedTokens();
    AddKnownEogIds(spec_);
    return std::move(spec_);
  }

 private:
  Status ReadTokens() {
    const GgufValue* tokens = file_.Get(Key("tokens"));
    const auto* list =
        tokens == nullptr ? nullptr : std::get_if<std::vector<std::string_view>>(&tokens->value);
    if (list == nullptr)
      return Err(ErrorCode::kInvalidFile, "tokenizer.ggml.tokens is not an array of strings");
    spec_.tokens.assign(list->begin(), list->end());
    spec_.kinds.assign(spec_.tokens.size(), TokenKind::kNormal);
    LUCID_ASSIGN_OR_RETURN(const std::vector<double> types, Numbers("token_type"));
    for (size_t i = 0; i < types.size(); ++i) {
      if (types[i] >= 1 && types[i] <= 6)
        spec_.kinds[i] = static_cast<TokenKind>(static_cast<int>(types[i]));
    }
    LUCID_ASSIGN_OR_RETURN(const std::vector<double> scores, Numbers("scores"));
    spec_.scores.assign(scores.begin(), scores.end());
    return {};
  }

  // An array with one number per token; empty where the key is absent.
  Result<std::vector<double>> Numbers(std::string_view name) const {
    const GgufValue* value = file_.Get(Key(name));
    std::vector<double> out;
    if (value == nullptr) return out;
    if (const auto* u = std::get_if<std::vector<uint64_t>>(&value->value)) {
      out.assign(u->begin(), u->end());
    } else if (const auto* i = std::get_if<std::vector<int64_t>>(&value->value)) {
      out.assign(i->begin(), i->end());
    } else if (const auto* d = std::get_if<std::vector<double>>(&value->value)) {
      out = *d;
    } else {
      return Err(ErrorCode::kInvalidFile, "tokenizer.ggml.{} is not an array of numbers", name);
    }
    if (out.size() != spec_.tokens.size()) {
      return Err(ErrorCode::kInvalidFile, "tokenizer.ggml.{} has {} values for {} tokens", name,
                 out.size(), spec_.tokens.size());
    }
    return out;
  }

  // The id under `name`, or -1 where absent; -1 as an unsigned number also means none.
  Result<TokenId> Id(std::string_view name) const {
    LUCID_ASSIGN_OR_RETURN(const int64_t id, file_.GetIntOr(Key(name), -1));
    if (id == -1 || id == static_cast<int64_t>(UINT32_MAX)) return -1;
    if (id < 0 || id >= static_cast<int64_t>(spec_.tokens.size())) {
      return Err(ErrorCode::kInvalidFile, "tokenizer.ggml.{} is {}, but there are {} tokens", name,
                 id, spec_.tokens.size());
    }
    return static_cast<TokenId>(id);
  }

  Status ReadIds() {
    LUCID_ASSIGN_OR_RETURN(spec_.bos_id, Id("bos_token_id"));
    LUCID_ASSIGN_OR_RETURN(spec_.eos_id, Id("eos_token_id"));
    LUCID_ASSIGN_OR_RETURN(spec_.unk_id, Id("unknown_token_id"));
    LUCID_ASSIGN_OR_RETURN(spec_.pad_id, Id("padding_token_id"));
    LUCID_ASSIGN_OR_RETURN(spec_.sep_id, Id("seperator_token_id"));  // spelled so in the format
    LUCID_ASSIGN_OR_RETURN(spec_.cls_id, Id("cls_token_id"));
    for (const std::string_view name : {"eot_token_id", "eom_token_id"}) {
      LUCID_ASSIGN_OR_RETURN(const TokenId id, Id(name));
      if (id >= 0) spec_.eog_ids.push_back(id);
    }
    return {};
  }

  Status ReadModel(std::string_view model) {
    if (model == "gpt2") return ReadByteLevelBpe();
    if (model == "gemma4") return ReadCharacterBpe();
    if (model == "llama") return ReadSpm();
    if (model == "t5") return ReadUnigram();
    if (model == "bert") return ReadWordPiece();
    return Err(ErrorCode::kUnsupported, "tokenizer.ggml.model \"{}\" is not supported", model);
  }

  Status ReadMerges() {
    const GgufValue* merges = file_.Get(Key("merges"));
    const auto* list =
        merges == nullptr ? nullptr : std::get_if<std::vector<std::string_view>>(&merges->value);
    if (list == nullptr)
      return Err(ErrorCode::kInvalidFile, "tokenizer.ggml.merges is not an array of strings");
    spec_.merges.reserve(list->size());
    for (size_t i = 0; i < list->size(); ++i) {
      const std::string_view line = (*list)[i];
      // A piece may itself begin with a space.
      const size_t space = line.find(' ', 1);
      if (space == std::string_view::npos) {
        return Err(ErrorCode::kInvalidFile, "tokenizer.ggml.merges[{}] is not \"left right\"", i);
      }
      spec_.merges.emplace_back(line.substr(0, space), line.substr(space + 1));
    }
    return {};
  }

  Status ReadByteLevelBpe() {
    spec_.model = TokenModel::kBpe;
    spec_.scores.clear();
    spec_.unk_id = -1;  // every byte has a piece; one that has none is dropped
    const auto pre = file_.GetString(Key("pre"));
    if (!pre && pre.error().code != ErrorCode::kNotFound) return tl::unexpected<Error>(pre.error());
    LUCID_RETURN_IF_ERROR(ApplyPreName(pre ? *pre : "default", spec_));
    if (spec_.ignore_merges) {
      // Whole words are looked up in the vocabulary: only there the added tokens could be taken for
      // words.
      spec_.outside_model.resize(spec_.tokens.size());
      for (size_t i = 0; i < spec_.kinds.size(); ++i) {
        spec_.outside_model[i] = spec_.kinds[i] == TokenKind::kUserDefined ? 1 : 0;
      }
    }
    return ReadMerges();
  }

  // Merges over characters with spaces spelled as in SentencePiece, as Gemma 4's tokenizer.json.
  Status ReadCharacterBpe() {
    spec_.model = TokenModel::kBpe;
    spec_.scores.clear();
    spec_.byte_fallback = true;
    spec_.decoder.metaspace = true;
    spec_.add_bos = true;
    AddSpaceToMetaspace();
    return ReadMerges();
  }

  void AddSpaceToMetaspace() {
    NormalizerStep replace;
    replace.kind = NormalizerStep::Kind::kReplace;
    replace.pattern = " ";
    replace.content = kMetaspace;
    spec_.normalizer.push_back(std::move(replace));
  }

  Status NeedScores() const {
    if (!spec_.scores.empty()) return {};
    return Err(ErrorCode::kInvalidFile, "tokenizer.ggml.scores is not there");
  }

  Status ReadSpm() {
    LUCID_RETURN_IF_ERROR(NeedScores());
    spec_.model = TokenModel::kSpmBpe;
    spec_.byte_fallback = true;
    spec_.fuse_unk = true;
    spec_.add_bos = true;
    if (spec_.unk_id < 0) spec_.unk_id = FirstOfKind(TokenKind::kUnknown);
    LUCID_ASSIGN_OR_RETURN(spec_.add_space_prefix, file_.GetBoolOr(Key("add_space_prefix"), true));
    if (spec_.add_space_prefix) {
      NormalizerStep prepend;
      prepend.kind = NormalizerStep::Kind::kPrepend;
      prepend.content = kMetaspace;
      spec_.normalizer.push_back(std::move(prepend));
    }
    AddSpaceToMetaspace();
    spec_.decoder.metaspace = true;
    spec_.decoder.strip_leading_space = spec_.add_space_prefix;
    return {};
  }

  Status ReadUnigram() {
    LUCID_RETURN_IF_ERROR(NeedScores());
    spec_.model = TokenModel::kUnigram;
    spec_.add_eos = true;
    if (spec_.unk_id < 0) spec_.unk_id = FirstOfKind(TokenKind::kUnknown);
    spec_.byte_fallback = FirstOfKind(TokenKind::kByte) >= 0;
    if (file_.Get(Key("precompiled_charsmap")) != nullptr) {
      NormalizerStep step;
      step.kind = NormalizerStep::Kind::kPrecompiled;
      LUCID_ASSIGN_OR_RETURN(step.content, Bytes("precompiled_charsmap"));
      spec_.normalizer.push_back(std::move(step));
    }
    LUCID_ASSIGN_OR_RETURN(spec_.remove_extra_whitespaces,
                           file_.GetBoolOr(Key("remove_extra_whitespaces"), true));
    if (spec_.remove_extra_whitespaces) {
      spec_.normalizer.emplace_back().kind = NormalizerStep::Kind::kStrip;
      NormalizerStep collapse;
      collapse.kind = NormalizerStep::Kind::kReplace;
      collapse.pattern = " {2,}";
      collapse.pattern_is_regex = true;
      collapse.content = " ";
      spec_.normalizer.push_back(std::move(collapse));
    }
    LUCID_ASSIGN_OR_RETURN(spec_.add_space_prefix, file_.GetBoolOr(Key("add_space_prefix"), true));
    PreTokenizerStep metaspace;
    metaspace.kind = PreTokenizerStep::Kind::kMetaspace;
    metaspace.pattern = kMetaspace;
    metaspace.prepend_scheme = spec_.add_space_prefix ? PreTokenizerStep::Prepend::kAlways
                                                      : PreTokenizerStep::Prepend::kNever;
    spec_.pre_tokenizer.push_back(std::move(metaspace));
    spec_.decoder.metaspace = true;
    spec_.decoder.strip_leading_space = spec_.add_space_prefix;
    return {};
  }

  Result<std::string> Bytes(std::string_view name) const {
    const GgufValue* value = file_.Get(Key(name));
    std::string out;
    if (const auto* u = std::get_if<std::vector<uint64_t>>(&value->value)) {
      for (const uint64_t byte : *u) out.push_back(static_cast<char>(byte));
    } else if (const auto* i = std::get_if<std::vector<int64_t>>(&value->value)) {
      for (const int64_t byte : *i) out.push_back(static_cast<char>(byte));
    } else {
      return Err(ErrorCode::kInvalidFile, "tokenizer.ggml.{} is not an array of bytes", name);
    }
    return out;
  }

  // GGUF spells the beginning of a word with "▁" and leaves out BERT's "##"; the spec spells as
  // BERT does.
  Status ReadWordPiece() {
    spec_.model = TokenModel::kWordPiece;
    spec_.scores.clear();
    spec_.continuing_subword_prefix = "##";
    for (size_t i = 0; i < spec_.tokens.size(); ++i) {
      if (spec_.kinds[i] != TokenKind::kNormal) continue;
      std::string& piece = spec_.tokens[i];
      piece = piece.starts_with(kMetaspace) ? piece.substr(kMetaspace.size()) : "##" + piece;
    }
    NormalizerStep bert;
    bert.kind = NormalizerStep::Kind::kBertNormalizer;
    LUCID_ASSIGN_OR_RETURN(bert.lowercase, file_.GetBoolOr(Key("normalizer.lowercase"), true));
    LUCID_ASSIGN_OR_RETURN(bert.strip_accents,
                           file_.GetBoolOr(Key("normalizer.strip_accents"), bert.lowercase));
    spec_.normalizer.push_back(std::move(bert));
    spec_.pre_tokenizer.emplace_back().kind = PreTokenizerStep::Kind::kBert;
    spec_.decoder.word_piece = spec_.decoder.strip_leading_space = true;
    const TokenId first = spec_.cls_id >= 0 ? spec_.cls_id : spec_.bos_id;
    const TokenId last = spec_.sep_id >= 0 ? spec_.sep_id : spec_.eos_id;
    if (first >= 0) spec_.prefix_ids = {first};
    if (last >= 0) spec_.suffix_ids = {last};
    return {};
  }

  TokenId FirstOfKind(TokenKind kind) const {
    const auto it = std::find(spec_.kinds.begin(), spec_.kinds.end(), kind);
    return it == spec_.kinds.end() ? -1 : static_cast<TokenId>(it - spec_.kinds.begin());
  }

  Status ReadFlags() {
    LUCID_ASSIGN_OR_RETURN(spec_.add_bos, file_.GetBoolOr(Key("add_bos_token"), spec_.add_bos));
    LUCID_ASSIGN_OR_RETURN(spec_.add_eos, file_.GetBoolOr(Key("add_eos_token"), spec_.add_eos));
    return {};
  }

  // Converters have marked the ends of a turn as ordinary text; then a model would never stop.
  void MarkKnownEnds() {
    for (size_t i = 0; i < spec_.tokens.size(); ++i) {
      if (spec_.kinds[i] != TokenKind::kNormal && spec_.kinds[i] != TokenKind::kUserDefined)
        continue;
      if (IsKnownEnd(spec_.tokens[i])) spec_.kinds[i] = TokenKind::kControl;
    }
    for (const TokenId id : {spec_.bos_id, spec_.eos_id}) {
      if (id >= 0 && spec_.kinds[static_cast<size_t>(id)] == TokenKind::kNormal &&
          spec_.model == TokenModel::kBpe && spec_.tokens[static_cast<size_t>(id)].size() > 1) {
        spec_.kinds[static_cast<size_t>(id)] = TokenKind::kControl;
      }
    }
  }

  void AddAddedTokens() {
    for (size_t i = 0; i < spec_.tokens.size(); ++i) {
      const TokenKind kind = spec_.kinds[i];
      const bool special = kind == TokenKind::kControl || kind == TokenKind::kUnknown;
      if ((!special && kind != TokenKind::kUserDefined) || spec_.tokens[i].empty()) continue;
      AddedToken token;
      token.id = static_cast<TokenId>(i);
      token.content = spec_.tokens[i];
      token.special = special;
      spec_.added.push_back(std::move(token));
    }
  }

  const GgufFile& file_;
  VocabSpec spec_;
};

// The text of a file, unpacked if it is .xz. It stays in the map otherwise: a copy of 11 MB costs
// more in new pages than in bytes.
class FileText {
 public:
  static Result<FileText> Read(const std::string& path) {
    FileText text;
    LUCID_ASSIGN_OR_RETURN(text.file_, MmapFile::Open(path));
    const auto bytes = text.file_.bytes();
    if (!LooksLikeXz(bytes)) return text;
    auto unpacked = DecompressXz(bytes, kUnpackedBase + kUnpackedRatio * bytes.size());
    if (!unpacked) return Err(unpacked.error().code, "{}: {}", path, unpacked.error().message);
    text.unpacked_ = *std::move(unpacked);
    return text;
  }

  std::string_view view() const {
    if (unpacked_) return *unpacked_;
    return {reinterpret_cast<const char*>(file_.bytes().data()), file_.bytes().size()};
  }

 private:
  MmapFile file_;
  std::optional<std::string> unpacked_;
};

// The text of a file beside the tokenizer, or nothing if it is not there.
Result<std::optional<std::string>> ReadBeside(const fs::path& folder, const char* name) {
  const fs::path path = folder / name;
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::optional<std::string>();
  LUCID_ASSIGN_OR_RETURN(const FileText text, FileText::Read(path.string()));
  return std::optional<std::string>(text.view());
}

Result<LoadedTokenizer> LoadHf(const fs::path& path) {
  LUCID_ASSIGN_OR_RETURN(const FileText json, FileText::Read(path.string()));
  const auto in = [](const fs::path& file, const Error& error) {
    return Err(error.code, "{}: {}", file.string(), error.message);
  };
  auto spec = ParseHfTokenizer(json.view());
  if (!spec) return in(path, spec.error());
  LoadedTokenizer loaded;
  const fs::path folder = path.parent_path();
  LUCID_ASSIGN_OR_RETURN(const auto config, ReadBeside(folder, "tokenizer_config.json"));
  if (config) {
    auto chat_template = ApplyHfTokenizerConfig(*config, *spec);
    if (!chat_template) return in(folder / "tokenizer_config.json", chat_template.error());
    loaded.chat_template = std::move(*chat_template);
  }
  LUCID_ASSIGN_OR_RETURN(const auto generation, ReadBeside(folder, "generation_config.json"));
  if (generation) {
    const Status status = ApplyHfGenerationConfig(*generation, *spec);
    if (!status) return in(folder / "generation_config.json", status.error());
  }
  LUCID_ASSIGN_OR_RETURN(auto jinja, ReadBeside(folder, "chat_template.jinja"));
  if (jinja) loaded.chat_template = std::move(*jinja);
  AddKnownEogIds(*spec);
  auto tokenizer = Tokenizer::Create(std::move(*spec));
  if (!tokenizer) return in(path, tokenizer.error());
  loaded.tokenizer = std::move(*tokenizer);
  return loaded;
}

bool HasGgufMagic(const std::string& path) {
  const auto file = MmapFile::Open(path);
  return file && file->bytes().size() >= 4 &&
         std::string_view(reinterpret_cast<const char*>(file->bytes().data()), 4) == "GGUF";
}

}  // namespace

Result<VocabSpec> VocabSpecFromGguf(const GgufFile& file) {
  return GgufVocabReader(file).Run();
}

Result<LoadedTokenizer> LoadTokenizer(const GgufFile& file) {
  LoadedTokenizer loaded;
  LUCID_ASSIGN_OR_RETURN(VocabSpec spec, VocabSpecFromGguf(file));
  const auto chat_template = file.GetString("tokenizer.chat_template");
  if (chat_template) {
    loaded.chat_template = *chat_template;
  } else if (chat_template.error().code != ErrorCode::kNotFound) {
    return tl::unexpected<Error>(chat_template.error());
  }
  LUCID_ASSIGN_OR_RETURN(loaded.tokenizer, Tokenizer::Create(std::move(spec)));
  return loaded;
}

Result<LoadedTokenizer> LoadTokenizer(const std::string& path) {
  std::error_code ignored;
  fs::path folder = path;
  if (!fs::is_directory(folder, ignored)) {
    if (HasGgufMagic(path)) {
      LUCID_ASSIGN_OR_RETURN(const auto file, GgufFile::Open(path));
      auto loaded = LoadTokenizer(*file);
      if (!loaded) return Err(loaded.error().code, "{}: {}", path, loaded.error().message);
      return loaded;
    }
    const std::string name = folder.filename().string();
    const bool is_weights =
        name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json");
    if (!is_weights) return LoadHf(folder);
    folder = folder.parent_path();
  }
  for (const char* name : {"tokenizer.json", "tokenizer.json.xz"}) {
    if (fs::exists(folder / name, ignored)) return LoadHf(folder / name);
  }
  return Err(ErrorCode::kNotFound, "{} holds no tokenizer.json", folder.string());
}

Result<LoadedTokenizer> LoadTokenizerOf(const Checkpoint& checkpoint) {
  if (checkpoint.format() == Checkpoint::Format::kGguf) {
    return LoadTokenizer(static_cast<const GgufFile&>(checkpoint));
  }
  return LoadTokenizer(static_cast<const SafetensorsCheckpoint&>(checkpoint).folder());
}

}  // namespace lucid
