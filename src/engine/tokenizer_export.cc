#include "engine/tokenizer_export.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <utility>

#include "text/hf_tokenizer.h"
#include "text/merge_scores.h"
#include "text/pre_names.h"

namespace lucid {
namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.";
constexpr std::string_view kMetaspace = "\xE2\x96\x81";

// Scripts, digits, line ends, contractions, runs of spaces: what pre-tokenizers treat differently.
constexpr std::string_view kProbe =
    "Hello  World's 12345 x\xC2\xB2 3.14\r\n\n \t I'LL we'd DON'T !?foo_bar(baz)  --> #1\n"
    "   \xE4\xBD\xA0\xE5\xA5\xBD\xEF\xBC\x8C\xE4\xB8\x96\xE7\x95\x8C "
    "\xED\x95\x9C\xEA\xB5\xAD\xEC\x96\xB4 \xE0\xB9\x84\xE0\xB8\x97\xE0\xB8\xA2 "
    "\xD0\x9F\xD1\x80\xD0\xB8\xD0\xB2\xD0\xB5\xD1\x82 na\xC3\xAFve "
    "\xF0\x9F\x98\x80\xF0\x9F\x8F\xBD 1234567 CamelCaseWORDS e\xCC\x81 \t\tend ";

std::string Key(std::string_view name) {
  return std::string(kPrefix).append(name);
}

bool IsPrepend(const NormalizerStep& step) {
  return step.kind == NormalizerStep::Kind::kPrepend && step.content == kMetaspace;
}
bool IsSpaceToMetaspace(const NormalizerStep& step) {
  return step.kind == NormalizerStep::Kind::kReplace && !step.pattern_is_regex &&
         step.pattern == " " && step.content == kMetaspace;
}
// Gemma's step that no text meets: its spaces are metaspaces by then.
bool SplitsSpacesOnly(const PreTokenizerStep& step) {
  return step.kind == PreTokenizerStep::Kind::kSplit && !step.pattern_is_regex &&
         step.pattern == " ";
}

class Writer {
 public:
  Writer(const LoadedTokenizer& loaded, int64_t vocab_size, GgufMetadata& metadata,
         std::vector<std::string>& notes)
      : loaded_(loaded),
        spec_(loaded.tokenizer->spec()),
        size_(static_cast<size_t>(vocab_size)),
        metadata_(metadata),
        notes_(notes) {}

  Status Run() {
    const bool byte_level = spec_.model == TokenModel::kBpe && spec_.byte_level;
    const bool by_characters = spec_.model == TokenModel::kBpe && !spec_.byte_level &&
                               spec_.byte_fallback && spec_.decoder.metaspace;
    if (byte_level) {
      LUCID_RETURN_IF_ERROR(WriteByteLevelBpe());
    } else if (by_characters) {
      LUCID_RETURN_IF_ERROR(WriteSpm());
    } else {
      return Err(ErrorCode::kUnsupported,
                 "only byte-level BPE and BPE with byte fallback are written to GGUF files, and "
                 "the model's tokenizer is neither");
    }
    WriteTokens();
    WriteIds();
    WriteEnds();
    NoteAddedTokens();
    if (!loaded_.chat_template.empty()) {
      metadata_.SetString("tokenizer.chat_template", loaded_.chat_template);
    }
    return ReadBack();
  }

 private:
  Status WriteByteLevelBpe() {
    if (!spec_.end_of_word_suffix.empty() || !spec_.continuing_subword_prefix.empty()) {
      return Err(ErrorCode::kUnsupported,
                 "GGUF files cannot say a prefix or suffix of the pieces of a byte-level BPE");
    }
    LUCID_ASSIGN_OR_RETURN(const std::string_view pre, FindPreName(spec_));
    metadata_.SetString(Key("model"), "gpt2");
    metadata_.SetString(Key("pre"), std::string(pre));
    std::vector<std::string> merges;
    merges.reserve(spec_.merges.size());
    for (size_t i = 0; i < spec_.merges.size(); ++i) {
      const auto [left, right] = spec_.merges[i];
      merges.push_back(fmt::format("{} {}", left, right));
    }
    metadata_.SetStrings(Key("merges"), std::move(merges));
    return {};
  }

  // The tokenizer.json of a SentencePiece model.
  Status WriteSpm() {
    const auto refuse = [] {
      return Err(ErrorCode::kUnsupported,
                 "GGUF files cannot say this tokenizer's normalizer and pre_tokenizer; they know a "
                 "metaspace before the text and in place of spaces");
    };
    bool prefix = false;
    for (const NormalizerStep& step : spec_.normalizer) {
      if (!IsPrepend(step) && !IsSpaceToMetaspace(step)) return refuse();
      prefix |= IsPrepend(step);
    }
    for (const PreTokenizerStep& step : spec_.pre_tokenizer) {
      if (SplitsSpacesOnly(step)) continue;
      if (step.kind != PreTokenizerStep::Kind::kMetaspace || step.split) return refuse();
      prefix |= step.prepend_scheme != PreTokenizerStep::Prepend::kNever;
      if (step.prepend_scheme == PreTokenizerStep::Prepend::kFirst) {
        notes_.push_back(
            "a space is put before text behind a special token too, which the tokenizer.json does "
            "at the very beginning only");
      }
    }
    LUCID_ASSIGN_OR_RETURN(const std::vector<float> scores, ScoresFromMerges(spec_));
    std::vector<double> padded(scores.begin(), scores.end());
    padded.resize(size_);
    metadata_.SetString(Key("model"), "llama");
    metadata_.SetString(Key("pre"), "default");
    metadata_.SetFloat32s(Key("scores"), std::move(padded));
    metadata_.SetBool(Key("add_space_prefix"), prefix);
    return {};
  }

  void WriteTokens() {
    std::vector<std::string> tokens;
    std::vector<int64_t> kinds;
    for (size_t i = 0; i < size_; ++i) {
      const bool known = i < spec_.tokens.size() && !spec_.tokens[i].empty();
      tokens.push_back(known ? spec_.tokens[i] : fmt::format("[PAD{}]", i));
      kinds.push_back(static_cast<int64_t>(known ? spec_.kinds[i] : TokenKind::kUnused));
    }
    if (spec_.tokens.size() > size_) {
      notes_.push_back(
          fmt::format("{} entries of the tokenizer have no row of the embedding and "
                      "are left out, the first of them \"{}\"",
                      spec_.tokens.size() - size_, spec_.tokens[size_]));
    }
    metadata_.SetStrings(Key("tokens"), std::move(tokens));
    metadata_.SetInt32s(Key("token_type"), std::move(kinds));
  }

  bool Kept(TokenId id) const { return id >= 0 && static_cast<size_t>(id) < size_; }

  // BOS and EOS may be known only by their places around a text.
  static TokenId Known(TokenId id, const std::vector<TokenId>& around) {
    return id < 0 && around.size() == 1 ? around[0] : id;
  }

  void WriteIds() {
    const TokenId bos_id = Known(spec_.bos_id, spec_.prefix_ids);
    const TokenId eos_id = Known(spec_.eos_id, spec_.suffix_ids);
    const std::array<std::pair<const char*, TokenId>, 4> ids = {
        {{"bos_token_id", bos_id},
         {"eos_token_id", eos_id},
         {"unknown_token_id", spec_.unk_id},
         {"padding_token_id", spec_.pad_id}}};
    for (const auto& [name, id] : ids) {
      if (Kept(id)) metadata_.SetUint32(Key(name), static_cast<uint32_t>(id));
    }
    const bool bos = spec_.prefix_ids == std::vector{bos_id};
    const bool eos = spec_.suffix_ids == std::vector{eos_id};
    metadata_.SetBool(Key("add_bos_token"), bos);
    metadata_.SetBool(Key("add_eos_token"), eos);
    if ((!bos && !spec_.prefix_ids.empty()) || (!eos && !spec_.suffix_ids.empty())) {
      notes_.push_back(
          "the tokens that the tokenizer.json puts around a text are not only BOS and EOS: the "
          "file adds none that it cannot name");
    }
  }

  // Ids that end a reply besides EOS and what every reader knows by its spelling.
  void WriteEnds() {
    std::vector<TokenId> others;
    for (const TokenId id : spec_.eog_ids) {
      if (id == spec_.eos_id || !Kept(id)) continue;
      if (!IsKnownEnd(spec_.tokens[static_cast<size_t>(id)])) others.push_back(id);
    }
    constexpr std::array<const char*, 2> kNames = {"eot_token_id", "eom_token_id"};
    for (size_t i = 0; i < others.size(); ++i) {
      if (i < kNames.size()) {
        metadata_.SetUint32(Key(kNames[i]), static_cast<uint32_t>(others[i]));
      } else {
        notes_.push_back(
            fmt::format("token {} ends a reply too, which the file cannot say", others[i]));
      }
    }
  }

  void NoteAddedTokens() {
    const auto strips = [](const AddedToken& t) { return t.lstrip || t.rstrip || t.single_word; };
    const auto found = std::ranges::find_if(spec_.added, strips);
    if (found == spec_.added.end()) return;
    notes_.push_back(
        fmt::format("\"{}\" and other added tokens take white space beside them away, "
                    "or stand alone only; the file cannot say so",
                    found->content));
  }

  Status ReadBack() const {
    const auto entries = metadata_.entries();
    LUCID_ASSIGN_OR_RETURN(const auto file, GgufFile::Outline({entries.begin(), entries.end()}, {},
                                                              "the GGUF file's tokenizer"));
    LUCID_ASSIGN_OR_RETURN(const LoadedTokenizer other, LoadTokenizer(*file));
    EncodeOptions options;
    options.add_special = false;
    if (other.tokenizer->Encode(kProbe, options) == loaded_.tokenizer->Encode(kProbe, options)) {
      return {};
    }
    return Err(ErrorCode::kUnsupported,
               "the form that GGUF files have for this tokenizer would give other ids");
  }

  const LoadedTokenizer& loaded_;
  const VocabSpec& spec_;
  size_t size_;
  GgufMetadata& metadata_;
  std::vector<std::string>& notes_;
};

}  // namespace

Status AddTokenizerKeys(const LoadedTokenizer& loaded, int64_t vocab_size, GgufMetadata& metadata,
                        std::vector<std::string>& notes) {
  return Writer(loaded, vocab_size, metadata, notes).Run();
}

void AddNoTokenizer(GgufMetadata& metadata) {
  metadata.SetString(Key("model"), "none");
}

}  // namespace lucid
