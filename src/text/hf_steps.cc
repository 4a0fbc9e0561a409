#include "text/hf_steps.h"

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

namespace lucid {
namespace {

using Json = nlohmann::json;
using NKind = NormalizerStep::Kind;
using PKind = PreTokenizerStep::Kind;

constexpr std::string_view kMetaspace = "\xE2\x96\x81";

Status Bad(std::string_view path, std::string_view key, std::string_view want) {
  return Err(ErrorCode::kInvalidFile, "{}.{} is not {}", path, key, want);
}

// An object's member, or null.
const Json& Member(const Json& object, const char* key) {
  static const Json null;
  const auto it = object.find(key);
  return it == object.end() ? null : *it;
}

Result<std::string> GetString(const Json& object, const std::string& path, const char* key) {
  const Json& value = Member(object, key);
  if (!value.is_string()) return Err(ErrorCode::kInvalidFile, "{}.{} is not a string", path, key);
  return value.get<std::string>();
}

Result<bool> GetBool(const Json& object, const std::string& path, const char* key, bool absent) {
  const Json& value = Member(object, key);
  if (value.is_null()) return absent;
  if (!value.is_boolean())
    return Err(ErrorCode::kInvalidFile, "{}.{} is not true or false", path, key);
  return value.get<bool>();
}

Result<std::string> GetType(const Json& object, const std::string& path) {
  if (!object.is_object()) return Err(ErrorCode::kInvalidFile, "{} is not an object", path);
  return GetString(object, path, "type");
}

// {"String": ...} or {"Regex": ...}
Status GetPattern(const Json& object, const std::string& path, std::string& pattern,
                  bool& is_regex) {
  const Json& value = Member(object, "pattern");
  if (!value.is_object()) return Bad(path, "pattern", "an object");
  is_regex = value.contains("Regex");
  const Json& text = Member(value, is_regex ? "Regex" : "String");
  if (!text.is_string()) return Bad(path, "pattern", "a String or a Regex");
  pattern = text.get<std::string>();
  return {};
}

Result<SplitBehavior> GetBehavior(const Json& object, const std::string& path) {
  constexpr std::array<std::pair<std::string_view, SplitBehavior>, 5> kNames = {
      {{"Removed", SplitBehavior::kRemoved},
       {"Isolated", SplitBehavior::kIsolated},
       {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
       {"MergedWithNext", SplitBehavior::kMergedWithNext},
       {"Contiguous", SplitBehavior::kContiguous}}};
  LUCID_ASSIGN_OR_RETURN(const std::string name, GetString(object, path, "behavior"));
  for (const auto& [known, behavior] : kNames) {
    if (name == known) return behavior;
  }
  return Err(ErrorCode::kUnsupported, "{}.behavior \"{}\" is not known", path, name);
}

// The list of a Sequence, each element read by `read(value, path)`.
template <typename Read>
Status ReadSequence(const Json& object, const std::string& path, const char* key,
                    const Read& read) {
  const Json& list = Member(object, key);
  if (!list.is_array()) return Bad(path, key, "an array");
  for (size_t i = 0; i < list.size(); ++i) {
    LUCID_RETURN_IF_ERROR(read(list[i], fmt::format("{}.{}[{}]", path, key, i)));
  }
  return {};
}

std::optional<std::string> DecodeBase64(std::string_view text) {
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string out;
  uint32_t bits = 0;
  int n_bits = 0;
  for (const char c : text) {
    const int value = c >= 'A' && c <= 'Z'   ? c - 'A'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 26
                      : c >= '0' && c <= '9' ? c - '0' + 52
                      : c == '+'             ? 62
                      : c == '/'             ? 63
                                             : -1;
    if (value < 0) return std::nullopt;
    bits = (bits << 6 | static_cast<uint32_t>(value)) & 0xFFFF;
    n_bits += 6;
    if (n_bits >= 8) {
      n_bits -= 8;
      out.push_back(static_cast<char>(bits >> n_bits & 0xFF));
    }
  }
  return out;
}

std::optional<NKind> PlainNormalizer(std::string_view type) {
  constexpr std::array<std::pair<std::string_view, NKind>, 6> kNames = {
      {{"NFC", NKind::kNfc},
       {"NFD", NKind::kNfd},
       {"NFKC", NKind::kNfkc},
       {"NFKD", NKind::kNfkd},
       {"Lowercase", NKind::kLowercase},
       {"StripAccents", NKind::kStripAccents}}};
  for (const auto& [name, kind] : kNames) {
    if (type == name) return kind;
  }
  return std::nullopt;
}

Status ReadBertNormalizer(const Json& object, const std::string& path, NormalizerStep& step) {
  step.kind = NKind::kBertNormalizer;
  LUCID_ASSIGN_OR_RETURN(step.clean_text, GetBool(object, path, "clean_text", true));
  LUCID_ASSIGN_OR_RETURN(step.handle_chinese_chars,
                         GetBool(object, path, "handle_chinese_chars", true));
  LUCID_ASSIGN_OR_RETURN(step.lowercase, GetBool(object, path, "lowercase", true));
  LUCID_ASSIGN_OR_RETURN(step.strip_accents,
                         GetBool(object, path, "strip_accents", step.lowercase));
  return {};
}

Status ReadOneNormalizer(const Json& object, const std::string& path, VocabSpec& spec) {
  LUCID_ASSIGN_OR_RETURN(const std::string type, GetType(object, path));
  if (type == "Sequence") {
    return ReadSequence(object, path, "normalizers",
                        [&](const Json& one, const std::string& where) {
                          return ReadOneNormalizer(one, where, spec);
                        });
  }
  NormalizerStep step;
  if (const auto plain = PlainNormalizer(type)) {
    step.kind = *plain;
  } else if (type == "Strip") {
    step.kind = NKind::kStrip;
    LUCID_ASSIGN_OR_RETURN(step.strip_left, GetBool(object, path, "strip_left", true));
    LUCID_ASSIGN_OR_RETURN(step.strip_right, GetBool(object, path, "strip_right", true));
  } else if (type == "Prepend") {
    step.kind = NKind::kPrepend;
    LUCID_ASSIGN_OR_RETURN(step.content, GetString(object, path, "prepend"));
  } else if (type == "Replace") {
    step.kind = NKind::kReplace;
    LUCID_RETURN_IF_ERROR(GetPattern(object, path, step.pattern, step.pattern_is_regex));
    LUCID_ASSIGN_OR_RETURN(step.content, GetString(object, path, "content"));
  } else if (type == "BertNormalizer") {
    LUCID_RETURN_IF_ERROR(ReadBertNormalizer(object, path, step));
  } else if (type == "Precompiled") {
    step.kind = NKind::kPrecompiled;
    LUCID_ASSIGN_OR_RETURN(const std::string encoded,
                           GetString(object, path, "precompiled_charsmap"));
    auto blob = DecodeBase64(encoded);
    if (!blob) return Bad(path, "precompiled_charsmap", "base64");
    step.content = std::move(*blob);
  } else {
    return Err(ErrorCode::kUnsupported, "{}.type \"{}\" is not supported", path, type);
  }
  spec.normalizer.push_back(std::move(step));
  return {};
}

Status ReadMetaspace(const Json& object, const std::string& path, PreTokenizerStep& step) {
  step.kind = PKind::kMetaspace;
  step.pattern = kMetaspace;
  if (object.contains("replacement")) {
    LUCID_ASSIGN_OR_RETURN(step.pattern, GetString(object, path, "replacement"));
  }
  LUCID_ASSIGN_OR_RETURN(step.split, GetBool(object, path, "split", true));
  // Files before version 0.14 of the library say add_prefix_space instead of prepend_scheme.
  LUCID_ASSIGN_OR_RETURN(const bool prefix, GetBool(object, path, "add_prefix_space", true));
  step.prepend_scheme =
      prefix ? PreTokenizerStep::Prepend::kAlways : PreTokenizerStep::Prepend::kNever;
  if (!object.contains("prepend_scheme")) return {};
  LUCID_ASSIGN_OR_RETURN(const std::string scheme, GetString(object, path, "prepend_scheme"));
  if (scheme == "always") {
    step.prepend_scheme = PreTokenizerStep::Prepend::kAlways;
  } else if (scheme == "first") {
    step.prepend_scheme = PreTokenizerStep::Prepend::kFirst;
  } else if (scheme == "never") {
    step.prepend_scheme = PreTokenizerStep::Prepend::kNever;
  } else {
    return Err(ErrorCode::kUnsupported, "{}.prepend_scheme \"{}\" is not known", path, scheme);
  }
  return {};
}

Status ReadSplit(const Json& object, const std::string& path, PreTokenizerStep& step) {
  step.kind = PKind::kSplit;
  LUCID_RETURN_IF_ERROR(GetPattern(object, path, step.pattern, step.pattern_is_regex));
  LUCID_ASSIGN_OR_RETURN(step.behavior, GetBehavior(object, path));
  LUCID_ASSIGN_OR_RETURN(step.invert, GetBool(object, path, "invert", false));
  return {};
}

Status ReadOnePreTokenizer(const Json& object, const std::string& path, VocabSpec& spec) {
  LUCID_ASSIGN_OR_RETURN(const std::string type, GetType(object, path));
  if (type == "Sequence") {
    return ReadSequence(object, path, "pretokenizers",
                        [&](const Json& one, const std::string& where) {
                          return ReadOnePreTokenizer(one, where, spec);
                        });
  }
  PreTokenizerStep step;
  if (type == "Split") {
    LUCID_RETURN_IF_ERROR(ReadSplit(object, path, step));
  } else if (type == "ByteLevel") {
    step.kind = PKind::kByteLevel;
    LUCID_ASSIGN_OR_RETURN(step.add_prefix_space, GetBool(object, path, "add_prefix_space", true));
    LUCID_ASSIGN_OR_RETURN(step.use_regex, GetBool(object, path, "use_regex", true));
    spec.byte_level = true;
  } else if (type == "Metaspace") {
    LUCID_RETURN_IF_ERROR(ReadMetaspace(object, path, step));
  } else if (type == "Digits") {
    step.kind = PKind::kDigits;
    LUCID_ASSIGN_OR_RETURN(step.individual_digits,
                           GetBool(object, path, "individual_digits", false));
  } else if (type == "Punctuation") {
    step.kind = PKind::kPunctuation;
    if (object.contains("behavior")) {
      LUCID_ASSIGN_OR_RETURN(step.behavior, GetBehavior(object, path));
    }
  } else if (type == "Whitespace") {
    step.kind = PKind::kWhitespace;
  } else if (type == "WhitespaceSplit") {
    step.kind = PKind::kWhitespaceSplit;
  } else if (type == "BertPreTokenizer") {
    step.kind = PKind::kBert;
  } else if (type == "CharDelimiterSplit") {
    step.pattern_is_regex = false;
    step.behavior = SplitBehavior::kRemoved;
    LUCID_ASSIGN_OR_RETURN(step.pattern, GetString(object, path, "delimiter"));
  } else {
    return Err(ErrorCode::kUnsupported, "{}.type \"{}\" is not supported", path, type);
  }
  spec.pre_tokenizer.push_back(std::move(step));
  return {};
}

// ["[SEP]", 102]
Result<TokenId> GetNamedId(const Json& object, const std::string& path, const char* key) {
  const Json& pair = Member(object, key);
  if (!pair.is_array() || pair.size() != 2 || !pair[1].is_number_unsigned() ||
      pair[1].get<uint64_t>() > INT32_MAX) {
    return Err(ErrorCode::kInvalidFile, "{}.{} is not a token and its id", path, key);
  }
  return static_cast<TokenId>(pair[1].get<uint64_t>());
}

// The ids of special_tokens[name].
Status AppendTemplateIds(const Json& object, const std::string& path, const std::string& name,
                         std::vector<TokenId>& out) {
  const Json& tokens = Member(object, "special_tokens");
  const Json& entry = tokens.is_object() ? Member(tokens, name.c_str()) : tokens;
  const Json& ids = entry.is_object() ? Member(entry, "ids") : entry;
  if (!ids.is_array())
    return Err(ErrorCode::kInvalidFile, "{}.special_tokens[\"{}\"].ids is not an array", path,
               name);
  for (const Json& id : ids) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > INT32_MAX) {
      return Err(ErrorCode::kInvalidFile,
                 "{}.special_tokens[\"{}\"].ids holds something that is no id", path, name);
    }
    out.push_back(static_cast<TokenId>(id.get<uint64_t>()));
  }
  return {};
}

Status ReadTemplate(const Json& object, const std::string& path, VocabSpec& spec) {
  bool after_text = false;
  return ReadSequence(
      object, path, "single", [&](const Json& item, const std::string& where) -> Status {
        if (!item.is_object()) return Err(ErrorCode::kInvalidFile, "{} is not an object", where);
        if (item.contains("Sequence")) {
          after_text = true;
          return {};
        }
        const Json& special = Member(item, "SpecialToken");
        if (!special.is_object())
          return Err(ErrorCode::kInvalidFile, "{} is neither a Sequence nor a SpecialToken", where);
        LUCID_ASSIGN_OR_RETURN(const std::string name,
                               GetString(special, where + ".SpecialToken", "id"));
        return AppendTemplateIds(object, path, name,
                                 after_text ? spec.suffix_ids : spec.prefix_ids);
      });
}

Status ReadOnePostProcessor(const Json& object, const std::string& path, VocabSpec& spec) {
  LUCID_ASSIGN_OR_RETURN(const std::string type, GetType(object, path));
  if (type == "Sequence") {
    return ReadSequence(object, path, "processors", [&](const Json& one, const std::string& where) {
      return ReadOnePostProcessor(one, where, spec);
    });
  }
  if (type == "ByteLevel") return {};  // moves offsets only
  if (type == "TemplateProcessing") return ReadTemplate(object, path, spec);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    LUCID_ASSIGN_OR_RETURN(spec.cls_id, GetNamedId(object, path, "cls"));
    LUCID_ASSIGN_OR_RETURN(spec.sep_id, GetNamedId(object, path, "sep"));
    spec.prefix_ids = {spec.cls_id};
    spec.suffix_ids = {spec.sep_id};
    return {};
  }
  return Err(ErrorCode::kUnsupported, "{}.type \"{}\" is not supported", path, type);
}

Status ReadOneDecoder(const Json& object, const std::string& path, VocabSpec& spec) {
  LUCID_ASSIGN_OR_RETURN(const std::string type, GetType(object, path));
  DecoderSpec& decoder = spec.decoder;
  if (type == "Sequence") {
    return ReadSequence(object, path, "decoders", [&](const Json& one, const std::string& where) {
      return ReadOneDecoder(one, where, spec);
    });
  }
  if (type == "ByteLevel" || type == "ByteFallback" || type == "Fuse") return {};
  if (type == "Metaspace") {
    PreTokenizerStep step;
    LUCID_RETURN_IF_ERROR(ReadMetaspace(object, path, step));
    if (step.pattern != kMetaspace)
      return Err(ErrorCode::kUnsupported, "{}.replacement is not \"{}\"", path, kMetaspace);
    decoder.metaspace = true;
    decoder.strip_leading_space = step.prepend_scheme != PreTokenizerStep::Prepend::kNever;
    return {};
  }
  if (type == "Replace") {
    std::string pattern;
    bool is_regex = false;
    LUCID_RETURN_IF_ERROR(GetPattern(object, path, pattern, is_regex));
    LUCID_ASSIGN_OR_RETURN(const std::string content, GetString(object, path, "content"));
    if (is_regex || pattern != kMetaspace || content != " ") {
      return Err(ErrorCode::kUnsupported, "{} replaces \"{}\" by \"{}\", which is not supported",
                 path, pattern, content);
    }
    decoder.metaspace = true;
    return {};
  }
  if (type == "Strip") {
    LUCID_ASSIGN_OR_RETURN(const std::string content, GetString(object, path, "content"));
    const Json& start = Member(object, "start");
    decoder.strip_leading_space =
        content == " " && start.is_number_unsigned() && start.get<uint64_t>() > 0;
    return {};
  }
  if (type == "WordPiece") {
    LUCID_ASSIGN_OR_RETURN(decoder.cleanup, GetBool(object, path, "cleanup", true));
    decoder.word_piece = decoder.strip_leading_space = true;
    return {};
  }
  if (type == "BPEDecoder") {
    LUCID_ASSIGN_OR_RETURN(decoder.suffix, GetString(object, path, "suffix"));
    return {};
  }
  return Err(ErrorCode::kUnsupported, "{}.type \"{}\" is not supported", path, type);
}

}  // namespace

Status ReadNormalizer(const Json& value, VocabSpec& spec) {
  return value.is_null() ? Status() : ReadOneNormalizer(value, "normalizer", spec);
}
Status ReadPreTokenizer(const Json& value, VocabSpec& spec) {
  return value.is_null() ? Status() : ReadOnePreTokenizer(value, "pre_tokenizer", spec);
}
Status ReadPostProcessor(const Json& value, VocabSpec& spec) {
  return value.is_null() ? Status() : ReadOnePostProcessor(value, "post_processor", spec);
}
Status ReadDecoder(const Json& value, VocabSpec& spec) {
  return value.is_null() ? Status() : ReadOneDecoder(value, "decoder", spec);
}

}  // namespace lucid
