// ScoresFromMerges: a list of merges as the scores of SentencePiece, whose files have no merges.
#pragma once

#include <vector>

#include "base/result.h"
#include "text/vocab_spec.h"

namespace lucid {

// By id, higher is merged earlier: minus the rank of the first merge that makes the piece.
// SentencePiece merges any two neighbours that spell a piece, so every such pair must be among the
// merges: kUnsupported names one that is not.
Result<std::vector<float>> ScoresFromMerges(const VocabSpec& spec);

}  // namespace lucid
