// lucid tokenize: the ids of a text, with the pieces and bytes they stand for.
//
//   lucid tokenize -m smollm2 --text "Hello world"        # a table
//   lucid tokenize -m tokenizer.json.xz --ids < file.txt
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/tokenizer_flags.h"
#include "text/unicode.h"

namespace lucid::cli {
namespace {

using Json = nlohmann::ordered_json;

struct TokenizeFlags {
  std::string model;
  std::string text, file;
  bool has_text = false;
  bool parse_special = true;
  bool no_added_tokens = false;
  bool add_special = true;
  bool ids = false, json = false, table = false, lines = false;
};

EncodeOptions Options(const TokenizeFlags& flags) {
  EncodeOptions options;
  options.add_special = flags.add_special;
  options.added_tokens = flags.no_added_tokens ? AddedTokenMode::kNone
                         : flags.parse_special ? AddedTokenMode::kParseSpecial
                                               : AddedTokenMode::kSpecialAsText;
  return options;
}

const char* KindName(TokenKind kind) {
  switch (kind) {
    case TokenKind::kNormal:
      return "normal";
    case TokenKind::kUnknown:
      return "unknown";
    case TokenKind::kControl:
      return "control";
    case TokenKind::kUserDefined:
      return "user";
    case TokenKind::kUnused:
      return "unused";
    case TokenKind::kByte:
      return "byte";
  }
  return "normal";
}

std::string Hex(std::string_view bytes, std::string_view between = "") {
  std::string out;
  for (const char c : bytes) {
    if (!out.empty()) out += between;
    out += fmt::format("{:02x}", static_cast<unsigned char>(c));
  }
  return out;
}

// Characters as a reader counts them: code points, and one for each byte that is none.
size_t CountCharacters(std::string_view text) {
  size_t n = 0;
  for (size_t at = 0; at < text.size(); at += DecodeUtf8(text, at).length) ++n;
  return n;
}

// Bytes of the text that have no token in the vocabulary; `ids` without what add_special adds. 0
// where that cannot be seen from the pieces: unknown tokens stand for what is missing, and
// normalizers and some pre-tokenizers change the text on purpose.
size_t CountMissingBytes(const Tokenizer& tokenizer, std::string_view text,
                         const std::vector<TokenId>& ids) {
  const VocabSpec& spec = tokenizer.spec();
  const bool keeps_text =
      spec.byte_level && spec.unk_id < 0 && spec.normalizer.empty() &&
      spec.continuing_subword_prefix.empty() && spec.end_of_word_suffix.empty() &&
      std::all_of(
          spec.pre_tokenizer.begin(), spec.pre_tokenizer.end(),
          [](const PreTokenizerStep& step) {
            using Kind = PreTokenizerStep::Kind;
            return (step.kind == Kind::kSplit && step.behavior != SplitBehavior::kRemoved) ||
                   (step.kind == Kind::kByteLevel && !step.add_prefix_space) ||
                   step.kind == Kind::kDigits || step.kind == Kind::kPunctuation;
          }) &&
      std::none_of(spec.added.begin(), spec.added.end(),
                   [](const AddedToken& token) { return token.lstrip || token.rstrip; });
  if (!keeps_text) return 0;
  size_t n = 0;
  for (const TokenId id : ids) n += tokenizer.PieceBytes(id).size();
  return n < text.size() ? text.size() - n : 0;
}

void NoteMissingBytes(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options) {
  options.add_special = false;
  const size_t n = CountMissingBytes(tokenizer, text, tokenizer.Encode(text, options));
  if (n == 0) return;
  fmt::print(stderr, "lucid: {} of the text {} no token in this vocabulary and {} left out\n",
             n == 1 ? "1 byte" : fmt::format("{} bytes", n), n == 1 ? "has" : "have",
             n == 1 ? "was" : "were");
}

std::string DumpJson(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void PrintJson(const Tokenizer& tokenizer, std::string_view text, const std::vector<TokenId>& ids) {
  Json pieces = Json::array(), bytes = Json::array(), kinds = Json::array();
  for (const TokenId id : ids) {
    pieces.push_back(std::string(tokenizer.PieceText(id)));
    bytes.push_back(Hex(tokenizer.PieceBytes(id)));
    kinds.push_back(KindName(tokenizer.Kind(id)));
  }
  const size_t n_chars = CountCharacters(text);
  const auto ratio = [](size_t a, size_t b) {
    return b == 0 ? 0.0 : static_cast<double>(a) / static_cast<double>(b);
  };
  const Json json = {{"ids", ids},
                     {"pieces", pieces},
                     {"bytes", bytes},
                     {"kinds", kinds},
                     {"n_tokens", ids.size()},
                     {"n_chars", n_chars},
                     {"n_bytes", text.size()},
                     {"tokens_per_char", ratio(ids.size(), n_chars)},
                     {"chars_per_token", ratio(n_chars, ids.size())}};
  fmt::print("{}\n", DumpJson(json));
}

void PrintTable(const Tokenizer& tokenizer, std::string_view text,
                const std::vector<TokenId>& ids) {
  fmt::print("{:>8}  {:<24}  {:<32}  kind\n", "id", "piece", "bytes");
  for (const TokenId id : ids) {
    // Quoted, with escapes for what a terminal would act on.
    const std::string piece = DumpJson(Json(std::string(tokenizer.PieceText(id))));
    fmt::print("{:>8}  {:<24}  {:<32}  {}\n", id, piece, Hex(tokenizer.PieceBytes(id), " "),
               KindName(tokenizer.Kind(id)));
  }
  const size_t n_chars = CountCharacters(text);
  fmt::print("{} tokens, {} characters, {} bytes", ids.size(), n_chars, text.size());
  if (!ids.empty())
    fmt::print(", {:.2f} characters per token",
               static_cast<double>(n_chars) / static_cast<double>(ids.size()));
  fmt::print("\n");
}

// One JSON string per line of standard input, one JSON array of ids per line of output.
Status RunLines(const Tokenizer& tokenizer, const EncodeOptions& options) {
  std::string line;
  for (size_t number = 1; std::getline(std::cin, line); ++number) {
    const std::string name = fmt::format("line {} of standard input", number);
    LUCID_ASSIGN_OR_RETURN(const Json value, ParseJson(line, name));
    if (!value.is_string())
      return Err(ErrorCode::kInvalidArgument, "{} is not a JSON string", name);
    const auto& text = value.get_ref<const std::string&>();
    fmt::print("{}\n", DumpJson(Json(tokenizer.Encode(text, options))));
  }
  return {};
}

Status Run(const TokenizeFlags& flags) {
  LUCID_ASSIGN_OR_RETURN(const LoadedTokenizer loaded, LoadNamedTokenizer(flags.model));
  const Tokenizer& tokenizer = *loaded.tokenizer;
  if (flags.lines) return RunLines(tokenizer, Options(flags));
  std::string text = flags.text;
  if (!flags.has_text) {
    LUCID_ASSIGN_OR_RETURN(text, ReadTextFile(flags.file.empty() ? "-" : flags.file));
  }
  const std::vector<TokenId> ids = tokenizer.Encode(text, Options(flags));
  if (flags.ids) {
    fmt::print("{}\n", fmt::join(ids, ","));
  } else if (flags.json) {
    PrintJson(tokenizer, text, ids);
  } else {
    PrintTable(tokenizer, text, ids);
  }
  NoteMissingBytes(tokenizer, text, Options(flags));
  return {};
}

}  // namespace

void AddTokenizeCommand(CLI::App& root, CommandContext& context) {
  CLI::App* command = root.add_subcommand("tokenize", "Show the token ids of a text");
  auto flags = std::make_shared<TokenizeFlags>();
  AddTokenizerFlag(*command, flags->model);
  CLI::Option* text = command->add_option("--text", flags->text,
                                          "the text; without --text and --file: standard input");
  CLI::Option* file =
      command->add_option("-f,--file", flags->file, "file with the text, - for standard input")
          ->excludes(text);
  command->add_flag("--parse-special,!--no-parse-special", flags->parse_special,
                    "read control tokens like <|im_end|> in the text as what they spell (the "
                    "default), or as ordinary text");
  command->add_flag("--no-added-tokens", flags->no_added_tokens,
                    "recognise no added token at all, control or not");
  command->add_flag(
      "--add-special,!--no-add-special,!--no-bos", flags->add_special,
      "put BOS and EOS around the text where the model asks for them (the default), or not");
  CLI::Option* ids =
      command->add_flag("--ids", flags->ids, "print the ids alone, separated by commas");
  CLI::Option* json =
      command->add_flag("--json", flags->json, "print JSON: ids, pieces, bytes, kinds and counts")
          ->excludes(ids);
  CLI::Option* table = command->add_flag("--table", flags->table, "print a table (the default)")
                           ->excludes(ids)
                           ->excludes(json);
  command
      ->add_flag("--jsonl", flags->lines,
                 "batch: one JSON string per line of standard input, one array of ids per line out")
      ->excludes(text)
      ->excludes(file)
      ->excludes(ids)
      ->excludes(json)
      ->excludes(table);
  command->callback([flags, text, &context] {
    flags->has_text = text->count() > 0;
    if (const Status status = Run(*flags); !status) ReportError(status.error(), context);
  });
}

}  // namespace lucid::cli
