#include "text/unigram.h"

#include <algorithm>

#include "text/unicode.h"

namespace lucid {
namespace {

// An unknown character costs this much more than the worst piece.
constexpr double kUnknownPenalty = 10.0;

struct Best {
  double score = 0;    // of the best path that ends here
  TokenId id = -1;     // its last piece; -1: an unknown character
  int64_t begin = -1;  // where that piece begins; -1: nothing ends here yet
};

}  // namespace

UnigramModel::UnigramModel(const ModelVocab& vocab) : vocab_(vocab) {
  const VocabSpec& spec = vocab.spec();
  size_t bytes = 0;
  double lowest = 0;
  bool any = false;
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    bytes += spec.tokens[id].size();
    if (id >= spec.outside_model.size() || spec.outside_model[id] == 0) {
      lowest = any ? std::min<double>(lowest, spec.scores[id]) : spec.scores[id];
      any = true;
    }
  }
  unknown_score_ = lowest - kUnknownPenalty;
  trie_.Reserve(std::min<size_t>(bytes, spec.tokens.size() * 4));
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (vocab.IsOrdinary(static_cast<TokenId>(id)))
      trie_.Insert(spec.tokens[id], static_cast<int32_t>(id));
  }
}

void UnigramModel::Encode(std::string_view word, std::vector<TokenId>& out) const {
  const size_t n = word.size();
  std::vector<Best> best(n + 1);
  const auto offer = [&](size_t begin, size_t end, TokenId id, double score) {
    if (best[end].begin < 0 || score > best[end].score)
      best[end] = {score, id, static_cast<int64_t>(begin)};
  };
  for (size_t at = 0; at < n;) {
    const Utf8Char c = DecodeUtf8(word, at);
    const double so_far = best[at].score;
    bool has_single = false;
    int32_t node = trie_.root();
    for (size_t end = at; end < n;) {
      node = trie_.Child(node, static_cast<unsigned char>(word[end++]));
      if (node == Trie::kNone) break;
      const int32_t id = trie_.Value(node);
      if (id == Trie::kNone) continue;
      offer(at, end, id,
            so_far + static_cast<double>(vocab_.spec().scores[static_cast<size_t>(id)]));
      has_single = has_single || end - at == c.length;
    }
    if (!has_single) offer(at, at + c.length, -1, so_far + unknown_score_);
    at += c.length;
  }

  std::vector<std::pair<size_t, TokenId>> path;  // begin and id, from the end
  for (size_t end = n; end > 0;) {
    const Best& step = best[end];
    path.emplace_back(static_cast<size_t>(step.begin), step.id);
    end = static_cast<size_t>(step.begin);
  }
  for (size_t i = path.size(); i-- > 0;) {
    if (path[i].second >= 0 && path[i].second != vocab_.spec().unk_id) {
      out.push_back(path[i].second);
      continue;
    }
    // A run of unknown characters is one unknown token.
    const size_t begin = path[i].first;
    while (i > 0 && (path[i - 1].second < 0 || path[i - 1].second == vocab_.spec().unk_id)) --i;
    const size_t end = i > 0 ? path[i - 1].first : n;
    AppendUnknown(word.substr(begin, end - begin), out);
  }
}

void UnigramModel::AppendUnknown(std::string_view text, std::vector<TokenId>& out) const {
  if (const TokenId whole = vocab_.FindOrdinary(text); whole >= 0) {
    out.push_back(whole);
  } else if (vocab_.has_byte_tokens()) {
    for (const char c : text) out.push_back(vocab_.ByteToken(static_cast<unsigned char>(c)));
  } else if (vocab_.spec().unk_id >= 0) {
    out.push_back(vocab_.spec().unk_id);
  }
}

}  // namespace lucid
