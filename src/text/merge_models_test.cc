// SentencePiece BPE and BPE on random small vocabularies, against merging by the definition: look
// at all pairs, join the best one, begin again.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "text/pair_memo.h"
#include "text/piece_table.h"
#include "text/tokenizer.h"

namespace lucid {
namespace {

const std::vector<std::string> kCharacters = {"▁", "a", "b", ">", "<", "é", "\n"};

// Joins the pair with the lowest rank, the leftmost of equals, until rank(left, right) is negative
// for all.
template <typename Rank>
void MergeByDefinition(std::vector<std::string>& parts, const Rank& rank) {
  while (true) {
    int best = -1, best_rank = 0;
    for (int i = 0; i + 1 < static_cast<int>(parts.size()); ++i) {
      const auto at = static_cast<size_t>(i);
      const int r = rank(parts[at], parts[at + 1]);
      if (r < 0 || (best >= 0 && r >= best_rank)) continue;
      best = i;
      best_rank = r;
    }
    if (best < 0) return;
    const auto at = static_cast<size_t>(best);
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + best + 1);
  }
}

// Characters of kCharacters, spaces as "▁".
std::vector<std::string> RandomCharacters(std::mt19937& random, size_t n) {
  std::vector<std::string> text(n);
  for (std::string& c : text) c = kCharacters[random() % kCharacters.size()];
  return text;
}

std::string Join(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += part;
  return text;
}

struct Vocabulary {
  VocabSpec spec;
  std::map<std::string, TokenId> ids;
  void Add(const std::string& piece, float score) {
    if (!ids.emplace(piece, static_cast<TokenId>(spec.tokens.size())).second) return;
    spec.tokens.push_back(piece);
    spec.scores.push_back(score);
    spec.kinds.push_back(TokenKind::kNormal);
  }
};

// Every character but "é", then pieces put together from earlier ones, with scores that repeat.
Vocabulary RandomSpm(std::mt19937& random) {
  Vocabulary v;
  v.spec.model = TokenModel::kSpmBpe;
  v.Add("<unk>", 0);
  v.spec.kinds[0] = TokenKind::kUnknown;
  v.spec.unk_id = 0;
  v.spec.fuse_unk = true;
  for (const std::string& c : kCharacters) {
    if (c != "é") v.Add(c, 0);
  }
  for (int i = 0; i < 40; ++i) {
    const auto any = [&] { return v.spec.tokens[1 + random() % (v.spec.tokens.size() - 1)]; };
    v.Add(any() + any(), -static_cast<float>(random() % 20));
  }
  return v;
}

std::vector<TokenId> SpmByDefinition(const Vocabulary& v, std::vector<std::string> parts) {
  MergeByDefinition(parts, [&](const std::string& left, const std::string& right) {
    const auto found = v.ids.find(left + right);
    if (found == v.ids.end()) return -1;
    return static_cast<int>(-v.spec.scores[static_cast<size_t>(found->second)]);
  });
  std::vector<TokenId> ids;
  for (const std::string& part : parts) {
    const auto found = v.ids.find(part);
    if (found != v.ids.end()) {
      ids.push_back(found->second);
    } else if (ids.empty() || ids.back() != v.spec.unk_id) {
      ids.push_back(v.spec.unk_id);
    }
  }
  return ids;
}

TEST(MergeModels, SpmEqualsItsDefinition) {
  std::mt19937 random(5);
  for (int i = 0; i < 60; ++i) {
    const Vocabulary v = RandomSpm(random);
    const auto tokenizer = Tokenizer::Create(v.spec);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    for (int k = 0; k < 20; ++k) {
      // Short and long lists of symbols go different ways; so do few and many words.
      const auto text = RandomCharacters(random, k < 18 ? random() % 30 : 700);
      EXPECT_EQ((*tokenizer)->Encode(Join(text)), SpmByDefinition(v, text)) << Join(text);
    }
    if (HasFailure()) break;
  }
}

// Merges of earlier pieces in random order; the ids have another order than the merges.
TEST(MergeModels, BpeEqualsItsDefinition) {
  std::mt19937 random(6);
  for (int i = 0; i < 60; ++i) {
    Vocabulary v;
    v.spec.model = TokenModel::kBpe;
    std::vector<std::string> made = kCharacters;
    std::map<std::pair<std::string, std::string>, int> ranks;
    for (int rank = 0; rank < 100; ++rank) {
      const std::string left = made[random() % made.size()], right = made[random() % made.size()];
      if (left.size() + right.size() > 40) continue;
      ranks[{left, right}] = static_cast<int>(v.spec.merges.size());
      v.spec.merges.emplace_back(left, right);
      made.push_back(left + right);
    }
    if (i % 2 == 0) std::shuffle(made.begin(), made.end(), random);
    for (const std::string& piece : made) v.Add(piece, 0);
    if (i % 3 == 0) {  // a second entry of the same spelling is never made
      v.spec.tokens.push_back(made[random() % made.size()]);
      v.spec.kinds.push_back(TokenKind::kNormal);
    }
    v.spec.scores.clear();
    const auto tokenizer = Tokenizer::Create(v.spec);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    for (int k = 0; k < 20; ++k) {
      auto parts = RandomCharacters(random, k < 18 ? random() % 30 : 700);
      const std::string text = Join(parts);
      MergeByDefinition(parts, [&](const std::string& left, const std::string& right) {
        const auto found = ranks.find({left, right});
        return found == ranks.end() ? -1 : found->second;
      });
      std::vector<TokenId> wanted;
      for (const std::string& part : parts) wanted.push_back(v.ids.at(part));
      EXPECT_EQ((*tokenizer)->Encode(text), wanted) << text;
    }
    if (HasFailure()) break;
  }
}

TEST(PieceTable, LowestIdOfTwinsAndNothingThatIsSkipped) {
  std::vector<std::string> pieces;
  for (int i = 0; i < 1000; ++i) pieces.push_back(std::to_string(i));
  EXPECT_FALSE(PieceTable(pieces).has_twins());
  pieces.emplace_back("7");
  const PieceTable table(pieces);
  EXPECT_TRUE(table.has_twins());
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(table.Find(std::to_string(i)), i);
  EXPECT_EQ(table.Find("1000"), -1);
  EXPECT_EQ(table.Find(""), -1);
  std::vector<uint8_t> skip(pieces.size());
  skip[7] = skip[8] = 1;
  const PieceTable some(pieces, skip);
  EXPECT_EQ(some.Find("7"), 1000);
  EXPECT_EQ(some.Find("8"), -1);
  EXPECT_FALSE(some.has_twins());
  EXPECT_EQ(PieceTable().Find(""), -1);
}

TEST(PairMemo, RemembersWhatWasPutLastOrNothing) {
  PairMemo memo(1 << 20);
  EXPECT_FALSE(memo.Get(0, 0));
  memo.Put(0, 0, -1);
  EXPECT_EQ(memo.Get(0, 0), -1);
  for (TokenId i = 0; i < 3000; ++i) memo.Put(i, (1 << 20) - 1 - i, i);
  int known = 0;
  for (TokenId i = 0; i < 3000; ++i) {
    const auto id = memo.Get(i, (1 << 20) - 1 - i);
    if (!id) continue;
    EXPECT_EQ(*id, i);
    ++known;
  }
  EXPECT_GT(known, 2500);
  PairMemo too_many(1 << 22);
  too_many.Put(1, 2, 3);
  EXPECT_FALSE(too_many.Get(1, 2));
}

}  // namespace
}  // namespace lucid
