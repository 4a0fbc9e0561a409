#include "text/hf_tokenizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "text/hf_json_reader.h"
#include "text/hf_steps.h"

namespace lucid {
namespace {

using Json = nlohmann::json;

// Ids may leave holes, but not so many that a small file asks for a large table.
constexpr size_t kSpareIds = 65536;

// How a turn or a text ends in published models.
constexpr std::string_view kKnownEnds[] = {"<|im_end|>",
                                           "<|eot_id|>",
                                           "<|eom_id|>",
                                           "<end_of_turn>",
                                           "<|endoftext|>",
                                           "<|end|>",
                                           "<|end_of_text|>",
                                           "<|eos|>",
                                           "<|eot|>",
                                           "<|return|>",
                                           "<|call|>",
                                           "<EOT>",
                                           "_<EOT>",
                                           "<|END_OF_TURN_TOKEN|>",
                                           "<\xEF\xBD\x9C"
                                           "end\xE2\x96\x81"
                                           "of\xE2\x96\x81sentence\xEF\xBD\x9C>",
                                           "[|endofturn|]",
                                           "<|endofturn|>",
                                           "<turn|>",
                                           "<|role_end|>",
                                           "<end_of_utterance>"};

const Json& Member(const Json& object, const char* key) {
  static const Json null;
  if (!object.is_object()) return null;
  const auto it = object.find(key);
  return it == object.end() ? null : *it;
}

Result<bool> FlagOr(const Json& object, const char* path, const char* key, bool absent) {
  const Json& value = Member(object, key);
  if (value.is_null()) return absent;
  if (!value.is_boolean())
    return Err(ErrorCode::kInvalidFile, "{}{} is not true or false", path, key);
  return value.get<bool>();
}

Result<std::string> StringOr(const Json& object, const char* path, const char* key) {
  const Json& value = Member(object, key);
  if (value.is_null()) return std::string();
  if (!value.is_string()) return Err(ErrorCode::kInvalidFile, "{}{} is not a string", path, key);
  return value.get<std::string>();
}

bool IsByteToken(std::string_view piece) {
  const auto hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F'); };
  return piece.size() == 6 && piece.starts_with("<0x") && hex(piece[3]) && hex(piece[4]) &&
         piece[5] == '>';
}

// The lowest id of an entry, or -1: for a few names a table of all entries would take longer.
TokenId FindToken(const VocabSpec& spec, std::string_view piece) {
  const auto it = std::find(spec.tokens.begin(), spec.tokens.end(), piece);
  return it == spec.tokens.end() ? -1 : static_cast<TokenId>(it - spec.tokens.begin());
}

class Parser {
 public:
  explicit Parser(HfTokenizerJson json) : json_(std::move(json)) {}

  Result<VocabSpec> Run() {
    const Json& model = Member(json_.rest, "model");
    if (!model.is_object()) return Err(ErrorCode::kInvalidFile, "model is not an object");
    LUCID_RETURN_IF_ERROR(ReadNormalizer(Member(json_.rest, "normalizer"), spec_));
    LUCID_RETURN_IF_ERROR(ReadPreTokenizer(Member(json_.rest, "pre_tokenizer"), spec_));
    LUCID_RETURN_IF_ERROR(ReadModel(model));
    LUCID_RETURN_IF_ERROR(ReadAdded(Member(json_.rest, "added_tokens")));
    LUCID_RETURN_IF_ERROR(ReadPostProcessor(Member(json_.rest, "post_processor"), spec_));
    LUCID_RETURN_IF_ERROR(ReadDecoder(Member(json_.rest, "decoder"), spec_));
    spec_.add_bos = !spec_.prefix_ids.empty();
    spec_.add_eos = !spec_.suffix_ids.empty();
    return std::move(spec_);
  }

 private:
  Status ReadModel(const Json& model) {
    LUCID_ASSIGN_OR_RETURN(std::string type, StringOr(model, "model.", "type"));
    // Files before version 0.9 of the library name no type.
    if (type.empty())
      type = model.contains("unk_id") ? "Unigram" : json_.merges.empty() ? "WordPiece" : "BPE";
    if (type == "Unigram") return ReadUnigram(model);
    if (type != "BPE" && type != "WordPiece") {
      return Err(ErrorCode::kUnsupported, "model.type \"{}\" is not supported", type);
    }
    if (!Member(model, "vocab").is_null())
      return Err(ErrorCode::kInvalidFile, "model.vocab is not an object of ids");
    if (!Member(model, "merges").is_null())
      return Err(ErrorCode::kInvalidFile, "model.merges is not an array");
    LUCID_RETURN_IF_ERROR(ReadVocab());
    LUCID_ASSIGN_OR_RETURN(const std::string unknown, StringOr(model, "model.", "unk_token"));
    LUCID_ASSIGN_OR_RETURN(spec_.continuing_subword_prefix,
                           StringOr(model, "model.", "continuing_subword_prefix"));
    if (type == "BPE") {
      LUCID_RETURN_IF_ERROR(ReadBpe(model));
    } else {
      LUCID_RETURN_IF_ERROR(ReadWordPiece(model));
    }
    if (!unknown.empty()) {
      spec_.unk_id = FindToken(spec_, unknown);
      if (spec_.unk_id >= 0) spec_.kinds[static_cast<size_t>(spec_.unk_id)] = TokenKind::kUnknown;
    }
    MarkByteTokens();
    return {};
  }

  Status ReadBpe(const Json& model) {
    spec_.model = TokenModel::kBpe;
    spec_.merges = std::move(json_.merges);
    LUCID_ASSIGN_OR_RETURN(spec_.end_of_word_suffix,
                           StringOr(model, "model.", "end_of_word_suffix"));
    LUCID_ASSIGN_OR_RETURN(spec_.fuse_unk, FlagOr(model, "model.", "fuse_unk", false));
    LUCID_ASSIGN_OR_RETURN(spec_.byte_fallback, FlagOr(model, "model.", "byte_fallback", false));
    LUCID_ASSIGN_OR_RETURN(spec_.ignore_merges, FlagOr(model, "model.", "ignore_merges", false));
    const Json& dropout = Member(model, "dropout");
    if (dropout.is_number() && dropout.get<double>() != 0) {
      return Err(ErrorCode::kUnsupported, "model.dropout {} makes encoding random",
                 dropout.get<double>());
    }
    return {};
  }

  Status ReadWordPiece(const Json& model) {
    if (spec_.byte_level)
      return Err(ErrorCode::kUnsupported, "model.type WordPiece with a ByteLevel pre_tokenizer");
    spec_.model = TokenModel::kWordPiece;
    const Json& limit = Member(model, "max_input_chars_per_word");
    if (limit.is_null()) return {};
    if (!limit.is_number_unsigned())
      return Err(ErrorCode::kInvalidFile, "model.max_input_chars_per_word is not a count");
    spec_.max_input_chars_per_word =
        static_cast<int>(std::min<uint64_t>(limit.get<uint64_t>(), 1 << 20));
    return {};
  }

  Status ReadUnigram(const Json& model) {
    if (spec_.byte_level)
      return Err(ErrorCode::kUnsupported, "model.type Unigram with a ByteLevel pre_tokenizer");
    spec_.model = TokenModel::kUnigram;
    const Json& vocab = Member(model, "vocab");
    if (!vocab.is_array())
      return Err(ErrorCode::kInvalidFile, "model.vocab is not an array of pieces and scores");
    for (size_t i = 0; i < vocab.size(); ++i) {
      const Json& pair = vocab[i];
      if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_number()) {
        return Err(ErrorCode::kInvalidFile, "model.vocab[{}] is not a piece and its score", i);
      }
      spec_.tokens.push_back(pair[0].get<std::string>());
      spec_.scores.push_back(static_cast<float>(pair[1].get<double>()));
      if (!std::isfinite(spec_.scores.back()))
        return Err(ErrorCode::kInvalidFile, "model.vocab[{}] has no finite score", i);
    }
    spec_.kinds.assign(spec_.tokens.size(), TokenKind::kNormal);
    LUCID_ASSIGN_OR_RETURN(spec_.byte_fallback, FlagOr(model, "model.", "byte_fallback", false));
    const Json& unknown = Member(model, "unk_id");
    if (!unknown.is_null()) {
      if (!unknown.is_number_unsigned() || unknown.get<uint64_t>() >= spec_.tokens.size()) {
        return Err(ErrorCode::kInvalidFile, "model.unk_id is not an id of model.vocab");
      }
      spec_.unk_id = static_cast<TokenId>(unknown.get<uint64_t>());
      spec_.kinds[static_cast<size_t>(spec_.unk_id)] = TokenKind::kUnknown;
    }
    MarkByteTokens();
    return {};
  }

  void MarkByteTokens() {
    if (!spec_.byte_fallback) return;
    for (size_t id = 0; id < spec_.tokens.size(); ++id) {
      if (IsByteToken(spec_.tokens[id])) spec_.kinds[id] = TokenKind::kByte;
    }
  }

  Status ReadVocab() {
    if (json_.vocab.empty())
      return Err(ErrorCode::kInvalidFile, "model.vocab is empty or not there");
    const size_t limit = json_.vocab.size() * 2 + kSpareIds;
    spec_.tokens.reserve(json_.vocab.size());
    spec_.kinds.reserve(json_.vocab.size());
    spec_.outside_model.reserve(json_.vocab.size());
    for (auto& [piece, id] : json_.vocab) {
      if (static_cast<uint64_t>(id) >= limit) {
        return Err(ErrorCode::kInvalidFile,
                   "model.vocab[\"{}\"] has id {}, too large for {} entries", piece, id,
                   json_.vocab.size());
      }
      const auto at = static_cast<size_t>(id);
      GrowTo(at + 1);
      if (spec_.kinds[at] != TokenKind::kUnused) {
        return Err(ErrorCode::kInvalidFile, "model.vocab gives id {} to both \"{}\" and \"{}\"", id,
                   spec_.tokens[at], piece);
      }
      spec_.tokens[at] = std::move(piece);
      spec_.kinds[at] = TokenKind::kNormal;
      spec_.outside_model[at] = 0;
    }
    json_.vocab = {};
    return {};
  }

  // New ids are holes until something names them.
  void GrowTo(size_t n) {
    if (n <= spec_.tokens.size()) return;
    spec_.tokens.resize(n);
    spec_.kinds.resize(n, TokenKind::kUnused);
    if (spec_.model == TokenModel::kUnigram) spec_.scores.resize(n);
    spec_.outside_model.resize(n, 1);
  }

  Status ReadAdded(const Json& list) {
    if (list.is_null()) return {};
    if (!list.is_array()) return Err(ErrorCode::kInvalidFile, "added_tokens is not an array");
    spec_.outside_model.resize(spec_.tokens.size(), 0);
    const size_t n_model = spec_.tokens.size();
    for (size_t i = 0; i < list.size(); ++i) {
      LUCID_ASSIGN_OR_RETURN(AddedToken token,
                             ReadOneAdded(list[i], fmt::format("added_tokens[{}].", i)));
      if (token.content.empty()) continue;
      if (static_cast<size_t>(token.id) >= n_model + list.size() * 2 + kSpareIds) {
        return Err(ErrorCode::kInvalidFile, "added_tokens[{}].id {} is too large for {} tokens", i,
                   token.id, n_model);
      }
      const auto at = static_cast<size_t>(token.id);
      GrowTo(at + 1);
      const bool is_hole = spec_.kinds[at] == TokenKind::kUnused && spec_.tokens[at].empty();
      if (!is_hole && spec_.tokens[at] != token.content) {
        return Err(ErrorCode::kInvalidFile,
                   "added_tokens[{}].id {} already belongs to \"{}\", not \"{}\"", i, token.id,
                   spec_.tokens[at], token.content);
      }
      spec_.tokens[at] = token.content;
      if (spec_.kinds[at] != TokenKind::kUnknown && spec_.kinds[at] != TokenKind::kByte) {
        spec_.kinds[at] = token.special ? TokenKind::kControl : TokenKind::kUserDefined;
      }
      spec_.added.push_back(std::move(token));
    }
    return {};
  }

  static Result<AddedToken> ReadOneAdded(const Json& object, const std::string& path) {
    if (!object.is_object())
      return Err(ErrorCode::kInvalidFile, "{} is not an object", path.substr(0, path.size() - 1));
    AddedToken token;
    const Json& id = Member(object, "id");
    if (!id.is_number_unsigned() || id.get<uint64_t>() > INT32_MAX) {
      return Err(ErrorCode::kInvalidFile, "{}id is not an id", path);
    }
    token.id = static_cast<TokenId>(id.get<uint64_t>());
    if (!Member(object, "content").is_string())
      return Err(ErrorCode::kInvalidFile, "{}content is not a string", path);
    token.content = Member(object, "content").get<std::string>();
    LUCID_ASSIGN_OR_RETURN(token.special, FlagOr(object, path.c_str(), "special", false));
    LUCID_ASSIGN_OR_RETURN(token.lstrip, FlagOr(object, path.c_str(), "lstrip", false));
    LUCID_ASSIGN_OR_RETURN(token.rstrip, FlagOr(object, path.c_str(), "rstrip", false));
    LUCID_ASSIGN_OR_RETURN(token.single_word, FlagOr(object, path.c_str(), "single_word", false));
    LUCID_ASSIGN_OR_RETURN(token.normalized,
                           FlagOr(object, path.c_str(), "normalized", !token.special));
    return token;
  }

  HfTokenizerJson json_;
  VocabSpec spec_;
};

// A JSON object from text that is not large.
Result<Json> ParseObject(std::string_view text) {
  LUCID_ASSIGN_OR_RETURN(Json json, ParseSortedJson(text, "it"));
  if (!json.is_object()) return Err(ErrorCode::kInvalidFile, "it is not a JSON object");
  return json;
}

// "bos_token": "<s>" or {"content": "<s>", ...} or null.
Result<std::string> TokenText(const Json& config, const char* key) {
  const Json& value = Member(config, key);
  if (value.is_null()) return std::string();
  const Json& text = value.is_object() ? Member(value, "content") : value;
  if (!text.is_string()) return Err(ErrorCode::kInvalidFile, "{} is not a token", key);
  return text.get<std::string>();
}

// chat_template: a string, or a list of named ones of which "default" is taken.
Result<std::string> ChatTemplateText(const Json& config) {
  const Json& value = Member(config, "chat_template");
  if (value.is_null()) return std::string();
  if (value.is_string()) return value.get<std::string>();
  if (value.is_array()) {
    for (const Json& one : value) {
      const Json& name = Member(one, "name");
      const Json& text = Member(one, "template");
      if (name.is_string() && name == "default" && text.is_string()) return text.get<std::string>();
    }
    return std::string();
  }
  return Err(ErrorCode::kInvalidFile, "chat_template is neither a string nor a list of templates");
}

}  // namespace

Result<VocabSpec> ParseHfTokenizer(std::string_view json) {
  LUCID_ASSIGN_OR_RETURN(HfTokenizerJson read, ReadHfTokenizerJson(json));
  return Parser(std::move(read)).Run();
}

void SetAddBos(VocabSpec& spec, bool add) {
  const bool has = !spec.prefix_ids.empty() && spec.prefix_ids.front() == spec.bos_id;
  if (spec.bos_id < 0 || has == add) return;
  spec.add_bos = add;
  if (add) {
    spec.prefix_ids.insert(spec.prefix_ids.begin(), spec.bos_id);
  } else {
    spec.prefix_ids.erase(spec.prefix_ids.begin());
  }
}

void SetAddEos(VocabSpec& spec, bool add) {
  const bool has = !spec.suffix_ids.empty() && spec.suffix_ids.back() == spec.eos_id;
  if (spec.eos_id < 0 || has == add) return;
  spec.add_eos = add;
  if (add) {
    spec.suffix_ids.push_back(spec.eos_id);
  } else {
    spec.suffix_ids.pop_back();
  }
}

Result<std::string> ApplyHfTokenizerConfig(std::string_view json, VocabSpec& spec) {
  LUCID_ASSIGN_OR_RETURN(const Json config, ParseObject(json));
  const std::array<std::pair<const char*, TokenId*>, 6> names = {{{"bos_token", &spec.bos_id},
                                                                  {"eos_token", &spec.eos_id},
                                                                  {"unk_token", &spec.unk_id},
                                                                  {"pad_token", &spec.pad_id},
                                                                  {"sep_token", &spec.sep_id},
                                                                  {"cls_token", &spec.cls_id}}};
  for (const auto& [key, id] : names) {
    LUCID_ASSIGN_OR_RETURN(const std::string text, TokenText(config, key));
    // The model's own unknown token stays: only it is what encoding writes.
    if (!text.empty() && *id < 0 && id != &spec.unk_id) *id = FindToken(spec, text);
  }
  for (const char* key : {"add_bos_token", "add_eos_token"}) {
    const Json& value = Member(config, key);
    if (value.is_null()) continue;
    if (!value.is_boolean()) return Err(ErrorCode::kInvalidFile, "{} is not true or false", key);
    (std::string_view(key) == "add_bos_token" ? SetAddBos : SetAddEos)(spec, value.get<bool>());
  }
  return ChatTemplateText(config);
}

Status ApplyHfGenerationConfig(std::string_view json, VocabSpec& spec) {
  LUCID_ASSIGN_OR_RETURN(const Json config, ParseObject(json));
  const Json& value = Member(config, "eos_token_id");
  const Json list = value.is_array()  ? value
                    : value.is_null() ? Json::array()
                                      : Json::array({value});
  for (const Json& id : list) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= spec.tokens.size()) {
      return Err(ErrorCode::kInvalidFile, "eos_token_id is not an id of the {} tokens",
                 spec.tokens.size());
    }
    spec.eog_ids.push_back(static_cast<TokenId>(id.get<uint64_t>()));
  }
  return {};
}

bool IsKnownEnd(std::string_view piece) {
  return std::find(std::begin(kKnownEnds), std::end(kKnownEnds), piece) != std::end(kKnownEnds);
}

void AddKnownEogIds(VocabSpec& spec) {
  if (spec.eos_id >= 0) spec.eog_ids.push_back(spec.eos_id);
  TokenId end_id = -1, return_id = -1, call_id = -1;
  for (const AddedToken& token : spec.added) {
    if (!IsKnownEnd(token.content)) continue;
    spec.eog_ids.push_back(token.id);
    if (token.content == "<|end|>") end_id = token.id;
    if (token.content == "<|return|>") return_id = token.id;
    if (token.content == "<|call|>") call_id = token.id;
  }
  std::sort(spec.eog_ids.begin(), spec.eog_ids.end());
  spec.eog_ids.erase(std::unique(spec.eog_ids.begin(), spec.eog_ids.end()), spec.eog_ids.end());
  // In the Harmony format <|end|> only ends one message of a reply.
  if (return_id >= 0 && call_id >= 0) std::erase(spec.eog_ids, end_id);
}

}  // namespace lucid
