#include "text/metaspace_cuts.h"

#include <cstdint>

namespace lucid {
namespace {

constexpr std::string_view kMetaspace = "\xE2\x96\x81";  // "▁"

// Words of a text can be encoded apart only if the model merges neighbours and nothing else.
bool MergesOnly(const VocabSpec& spec) {
  const bool merging =
      spec.model == TokenModel::kSpmBpe || (spec.model == TokenModel::kBpe && !spec.byte_level);
  return merging && spec.pre_tokenizer.empty() && !spec.ignore_merges &&
         spec.continuing_subword_prefix.empty() && spec.end_of_word_suffix.empty();
}

}  // namespace

MetaspaceCuts::MetaspaceCuts(const ModelVocab& vocab) {
  const VocabSpec& spec = vocab.spec();
  // The "▁" on the right of a cut must be a piece: unknown characters on both sides might be fused.
  if (!MergesOnly(spec) || vocab.FindOrdinary(kMetaspace) < 0) return;
  any_ = true;
  if (spec.model == TokenModel::kBpe) {
    for (size_t i = 0; i < spec.merges.size(); ++i) {
      const auto [left, right] = spec.merges[i];
      const bool crosses =
          right.starts_with(kMetaspace) && !left.empty() && !left.ends_with(kMetaspace);
      if (crosses) glued_[static_cast<unsigned char>(left.back())] = true;
    }
    return;
  }
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (vocab.IsOrdinary(static_cast<TokenId>(id))) GlueInside(spec.tokens[id]);
  }
}

void MetaspaceCuts::GlueInside(std::string_view piece) {
  for (size_t at = piece.find(kMetaspace); at != std::string_view::npos;
       at = piece.find(kMetaspace, at + kMetaspace.size())) {
    if (at > 0 && !piece.substr(0, at).ends_with(kMetaspace))
      glued_[static_cast<unsigned char>(piece[at - 1])] = true;
  }
}

void MetaspaceCuts::Split(PreTokenized& text) const {
  const std::string_view view = text.text();
  text.pieces.clear();
  const auto add = [&](size_t begin, size_t end) {
    if (begin < end)
      text.pieces.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
  };
  size_t begin = 0;
  for (size_t at = view.find(kMetaspace); at != std::string_view::npos;
       at = view.find(kMetaspace, at)) {
    if (at > 0 && !glued_[static_cast<unsigned char>(view[at - 1])]) {
      add(begin, at);
      begin = at;
    }
    while (view.substr(at).starts_with(kMetaspace)) at += kMetaspace.size();
  }
  add(begin, view.size());
}

}  // namespace lucid
