#include "text/merge_scores.h"

#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace lucid {
namespace {

bool StartsCharacter(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
}

}  // namespace

Result<std::vector<float>> ScoresFromMerges(const VocabSpec& spec) {
  std::unordered_map<std::string_view, size_t> id;
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    if (spec.kinds[i] == TokenKind::kNormal) id.emplace(spec.tokens[i], i);
  }
  // Pieces that no merge makes are never compared.
  std::vector<float> scores(spec.tokens.size(), 0.0f);
  std::vector<bool> made(spec.tokens.size(), false);
  std::unordered_map<size_t, std::unordered_set<size_t>> cuts;  // by id, lengths of left halves
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const auto [left, right] = spec.merges[rank];
    const auto found = id.find(std::string(left).append(right));
    if (found == id.end()) continue;
    cuts[found->second].insert(left.size());
    if (made[found->second]) continue;
    made[found->second] = true;
    scores[found->second] = -static_cast<float>(rank);
  }
  for (const auto& [piece, at] : id) {
    for (size_t cut = 1; cut < piece.size(); ++cut) {
      if (!StartsCharacter(piece[cut])) continue;
      if (!id.contains(piece.substr(0, cut)) || !id.contains(piece.substr(cut))) continue;
      const auto known = cuts.find(at);
      if (known != cuts.end() && known->second.contains(cut)) continue;
      return Err(ErrorCode::kUnsupported,
                 "the merges do not follow from scores of pieces: \"{}\" and \"{}\" spell a piece, "
                 "but are not merged",
                 piece.substr(0, cut), piece.substr(cut));
    }
  }
  return scores;
}

}  // namespace lucid
