// The checks of selftest.h that run a model: its logits against the reference executor's, its
// memory against what the headers foretell, and the same bits in any company.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/selftest.h"

namespace lucid {

inline constexpr int64_t kSelftestReply = 8;    // tokens of the replies of CheckInvariance
inline constexpr int32_t kSelftestCompany = 5;  // requests that it has at once

// The rows of logits of a text, the first half read as a prompt, the second as a forced reply: both
// ways of kernels. Row p predicts token p + 1.
struct ScoredText {
  std::string isa = {};
  std::vector<std::vector<float>> rows = {};
};
// Errors of Engine::Submit and of the request.
Result<ScoredText> ScoreAsBothPhases(Engine& engine, const std::vector<TokenId>& ids);

// The mean divergence of the rows is at most what `numerics` promise and two standard errors, and
// nine of ten rows have the same top token (one of few may have another).
SelfCheck CompareWithReference(const ScoredText& scored, const ScoredText& reference,
                               Numerics numerics);
// The perplexity of the text is within 0.1 %, but for what chance explains.
SelfCheck ComparePerplexity(const ScoredText& scored, const ScoredText& reference,
                            const std::vector<TokenId>& ids);

// `taken`: bytes that the engine's buffers and packed weights have.
SelfCheck CheckMemory(const Engine& engine, int64_t taken);

using RowHashes = std::map<int64_t, uint64_t>;  // by position
// The first position of `got` whose row is another or none in `want`; -1: none.
int64_t FirstDifference(const RowHashes& want, const RowHashes& got);

// Hashes of all rows of a greedy reply to `prompt`: alone, with the prompt in the cache, among
// others, and on an engine of its own in other chunks on one thread. `engine` must have room for
// kSelftestCompany requests. Errors of loading and of the requests.
Result<SelfCheck> CheckInvariance(Engine& engine, const std::vector<TokenId>& prompt);

}  // namespace lucid
