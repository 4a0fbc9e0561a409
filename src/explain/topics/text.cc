// From characters to vectors and back to scores: tokens, embedding, logits.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "account/units.h"
#include "explain/topics/topics.h"
#include "text/unicode.h"

namespace lucid::topics {
namespace {

// Texts of several kinds: everyday Chinese and English, code, emoji.
constexpr std::string_view kSamples[] = {
    "你好，今天我们继续学习 AI Infra。",
    "Today we continue learning AI infrastructure.",
    "def hello(name): return f\"hello {name}\"",
    "AI Infra 🚀🔥",
};

size_t Characters(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); ++count) at += DecodeUtf8(text, at).length;
  return count;
}

void SampleTable(const Tokenizer& tokenizer, const std::string& prompt, Page& page) {
  constexpr EncodeOptions kPlain{
      .add_special = false, .added_tokens = AddedTokenMode::kNone, .plain_starts = {}};
  std::vector<std::vector<std::string>> rows;
  const auto add = [&](std::string_view text) {
    const size_t characters = Characters(text);
    const size_t tokens = tokenizer.Encode(text, kPlain).size();
    rows.push_back({std::string(text), std::to_string(characters), std::to_string(text.size()),
                    std::to_string(tokens),
                    tokens == 0
                        ? "-"
                        : Fixed(static_cast<double>(characters) / static_cast<double>(tokens), 2)});
  };
  add(prompt.size() > 46 ? prompt.substr(0, 46 - IncompleteTail(prompt.substr(0, 46))) : prompt);
  for (const std::string_view sample : kSamples) add(sample);
  page.Table({"text", "characters", "bytes", "tokens", "characters per token"}, std::move(rows));
}

void PromptTokens(const Subject& subject, Page& page) {
  constexpr size_t kMost = 24;
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < std::min(kMost, subject.ids().size()); ++i) {
    const TokenId id = subject.ids()[i];
    const std::string_view bytes = subject.tokenizer()->PieceBytes(id);
    std::string hex;
    for (const char byte : bytes) hex += fmt::format("{:02x} ", static_cast<unsigned char>(byte));
    rows.push_back({std::to_string(i), subject.Label(id), std::to_string(id), hex});
  }
  page.Table({"position", "token", "id", "bytes"}, std::move(rows), 2);
}

std::string Kind(TokenModel kind) {
  switch (kind) {
    case TokenModel::kBpe:
      return "byte-pair encoding (BPE): bytes are joined, pair by pair, in the order in which the "
             "training text made the pairs frequent";
    case TokenModel::kSpmBpe:
      return "SentencePiece: pieces are joined by score, spaces are part of the text";
    case TokenModel::kUnigram:
      return "unigram: of all ways to cut the text, the likeliest";
    case TokenModel::kWordPiece:
      return "WordPiece: the longest known beginning of what is left of a word";
  }
  return "";
}

}  // namespace

Status Tokens(Subject& subject, Page& page) {
  page.Text(
      "A model does not read characters. A tokenizer cuts the text into pieces that were frequent "
      "in its training text, and looks up a number for each: the token id. A frequent word is one "
      "token, a rare one several, and an emoji may be cut in the middle of its bytes. Everything "
      "after that counts tokens: the length of a prompt, the positions, the cache, the price.");
  page.Formula("compression = characters / tokens",
               {{"characters", "Unicode code points of the text"},
                {"tokens", "ids that the tokenizer makes of it"}});
  const Tokenizer* tokenizer = subject.tokenizer();
  if (tokenizer == nullptr) {
    page.Text(
        "This model comes without a tokenizer: it can be given ids only, so there is nothing "
        "to count here. `lucid pull smollm2` gets one that has a tokenizer.");
    return {};
  }
  page.Heading("With this model's tokenizer");
  page.Facts({{"vocabulary", fmt::format("{} entries; the embedding has {} rows",
                                         units::Thousands(tokenizer->n_tokens()),
                                         units::Thousands(subject.config().vocab_size))},
              {"kind", Kind(tokenizer->spec().model)}});
  SampleTable(*tokenizer, subject.prompt(), page);
  page.Text(
      "One Chinese character is not one token, and one English word is not either: compare "
      "the columns. Code has many short tokens; emoji take several bytes each, and often a "
      "token for some of them.");
  page.Heading("The prompt, token by token");
  page.Text(
      "A space is shown as `_`. Bytes are those that the token stands for; a token that is "
      "only a part of a character shows them as `\\x..`. Streaming output waits until a "
      "character is whole (`Detokenizer`).");
  PromptTokens(subject, page);
  return {};
}

Status Embedding(Subject& subject, Page& page) {
  const ModelConfig& c = subject.config();
  page.Text(
      "A token id is only a number; nothing can be learned from its size. So the first thing that "
      "a model does is a lookup: row `id` of a matrix with one row for each entry of the "
      "vocabulary. That row is a vector of H numbers, and from here to the last norm the token is "
      "a vector of that length. Nothing is multiplied: the table is not read, one row of it is.");
  page.Formula("x[i] = E[token_id[i]]",
               {{"E", "embedding table, V rows of H numbers"},
                {"x[i]", "the vector of position i: row i of the residual stream"}});
  const Op* embed = FirstOp(subject.plan(), OpKind::kEmbed);
  const ValueInfo& table = subject.plan().Info(embed->inputs[0]);
  const DType type = subject.model().weights.dtypes()[static_cast<size_t>(embed->inputs[0].id)];
  const int64_t row_bytes = RowBytes(type, c.dim);
  const auto tokens = static_cast<int64_t>(subject.ids().size());
  page.Facts({{"table", fmt::format("`{}`: {} rows of {} numbers, {}", table.name,
                                    units::Thousands(c.vocab_size), c.dim, Name(type))},
              {"its size", fmt::format("{} parameters, {} ({} of all parameters)",
                                       units::Thousands(c.vocab_size * c.dim),
                                       units::Bytes(static_cast<double>(c.vocab_size * row_bytes)),
                                       Percent(static_cast<double>(c.vocab_size * c.dim) /
                                               static_cast<double>(subject.params())))},
              {"read for a token",
               fmt::format("one row: {}", units::Bytes(static_cast<double>(row_bytes)))},
              {"the prompt",
               fmt::format("[{}] ids -> {}", tokens, OutputShape(subject.plan(), *embed, tokens))},
              {"scale", c.embed_scale == 1
                            ? "none"
                            : fmt::format("the row is multiplied by {:g}", c.embed_scale)}});
  page.Text(c.tied_embeddings
                ? "This model uses the same matrix again at the end, to score the vocabulary "
                  "(tied embeddings): it is stored once, looked up in a step's beginning and "
                  "multiplied at its end."
                : "This model has another matrix, `output`, for the scores at the end: the two "
                  "ends of the model are not tied.");
  page.Text(c.tied_embeddings
                ? "The lookup reads one row; the scores at the end read the whole matrix, so it "
                  "does count in the bytes that a generated token reads (see `bandwidth`)."
                : "Because a row is looked up and not streamed, the table does not count in the "
                  "bytes that a generated token reads from memory: see `bandwidth`.");
  return {};
}

Status Logits(Subject& subject, Page& page) {
  const ModelConfig& c = subject.config();
  page.Text(
      "After the last layer a position is still a vector of H numbers. One product with the "
      "output matrix gives a score for every entry of the vocabulary: the logits. They are no "
      "probabilities, only preferences; softmax makes probabilities of them. A prompt needs them "
      "for its last position only, so the others are dropped before this product (`gather_rows`).");
  page.Formula("logits = norm(x[last]) W_out^T        p = softmax(logits / T)",
               {{"W_out", "output matrix, V rows of H numbers; V scores for one vector"},
                {"T", "temperature, see `sampling`"}});
  const Op& head =
      subject.plan().ops[static_cast<size_t>(subject.plan().Info(subject.plan().logits).producer)];
  const auto tokens = static_cast<int64_t>(subject.ids().size());
  const Ledger one = MakeLedger(subject.plan(), DecodeWork(1, tokens + 1, subject.types()));
  const Cost& cost = one.parts[static_cast<size_t>(Part::kHead)];
  page.Facts(
      {{"shape", fmt::format("[1, {}] -> {}", c.dim, OutputShape(subject.plan(), head, tokens))},
       {"cost of one row",
        fmt::format("{}, {} of weights", units::Flops(static_cast<double>(cost.flops)),
                    units::Bytes(static_cast<double>(cost.weight_bytes)))},
       {"soft cap", c.logit_softcap == 0 ? "none" : fmt::format("cap {:g}", c.logit_softcap)},
       {"if all positions", fmt::format("{} logits for this prompt of {} tokens instead of {}",
                                        units::Thousands(tokens * c.vocab_size), tokens,
                                        units::Thousands(c.vocab_size))}});
  if (!subject.has_weights()) {
    page.Text(NoWeights(subject));
    return {};
  }
  LUCID_ASSIGN_OR_RETURN(const PromptRun* run, subject.run());
  const std::vector<double> p = Probabilities(run->logits.back());
  page.Heading("The likeliest next tokens after the prompt");
  Bars bars;
  std::vector<std::vector<std::string>> rows;
  for (const int32_t id : Largest(p, 10)) {
    const double value = p[static_cast<size_t>(id)];
    bars.bars.push_back({subject.Label(id), value, Percent(value, 2)});
    rows.push_back({subject.Label(id), std::to_string(id),
                    Fixed(static_cast<double>(run->logits.back()[static_cast<size_t>(id)]), 3),
                    Fixed(value, 5)});
  }
  page.Table({"token", "id", "logit", "probability"}, std::move(rows));
  page.Draw({"Probability of the next token, the ten largest of the whole vocabulary.", bars});
  return {};
}

}  // namespace lucid::topics
