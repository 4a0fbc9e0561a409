#include "engine/selftest_model.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "engine/footprint.h"
#include "engine/kv_audit.h"
#include "engine/perplexity.h"

namespace lucid {
namespace {

// What mean KL divergence from the reference the numerics promise (docs/performance.md).
double DivergenceLimit(Numerics numerics) {
  switch (numerics) {
    case Numerics::kDefault:
      return 0.001;
    case Numerics::kFast:
      return 0.016;
    case Numerics::kFloat:
      return 1e-5;
  }
  return 0;
}

double NegativeLogLikelihood(std::span<const float> row, TokenId token) {
  const float max = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const float logit : row) sum += std::exp(static_cast<double>(logit) - max);
  return max + std::log(sum) - row[static_cast<size_t>(token)];
}

// A greedy reply's rows; `from` as Request::logits_from.
Result<Stream> SubmitHashed(Engine& engine, std::vector<TokenId> prompt, int64_t from,
                            RowHashes* hashes) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0;
  request.max_tokens = kSelftestReply;
  request.ignore_eos = true;
  request.logits_from = from;
  if (hashes != nullptr) {
    request.on_logits = [hashes](int64_t position, std::span<const float> row) {
      (*hashes)[position] = XXH3_64bits(row.data(), row.size_bytes());
    };
  }
  return engine.Submit(std::move(request));
}

Status Drain(Stream& stream) {
  while (const std::optional<TokenOutput> out = stream.Next()) {
    if (out->error) return tl::unexpected<Error>(*out->error);
  }
  return {};
}

// Alone; once more, with the prompt in the cache; among others that come before and after.
Status HashInCompany(Engine& engine, const std::vector<TokenId>& prompt, RowHashes* alone,
                     RowHashes* cached, RowHashes* among) {
  LUCID_ASSIGN_OR_RETURN(Stream first, SubmitHashed(engine, prompt, 0, alone));
  LUCID_RETURN_IF_ERROR(Drain(first));
  LUCID_ASSIGN_OR_RETURN(Stream second, SubmitHashed(engine, prompt, -1, cached));
  LUCID_RETURN_IF_ERROR(Drain(second));
  std::vector<Stream> streams;
  for (size_t i = 0; i < kSelftestCompany; ++i) {
    const bool subject = i == 2;
    std::vector<TokenId> text = prompt;
    if (!subject) {
      std::rotate(text.begin(), text.begin() + static_cast<std::ptrdiff_t>((i + 1) % text.size()),
                  text.end());
      text.resize(std::max<size_t>(text.size() / (i + 1), 1));
    }
    LUCID_ASSIGN_OR_RETURN(Stream stream, SubmitHashed(engine, std::move(text), subject ? 0 : -1,
                                                       subject ? among : nullptr));
    streams.push_back(std::move(stream));
    engine.Step();
  }
  for (Stream& stream : streams) LUCID_RETURN_IF_ERROR(Drain(stream));
  return {};
}

}  // namespace

Result<ScoredText> ScoreAsBothPhases(Engine& engine, const std::vector<TokenId>& ids) {
  const auto half = static_cast<std::ptrdiff_t>(ids.size() / 2);
  ScoredText scored = {.isa = std::string(engine.runner().isa())};
  Request request;
  request.prompt.assign(ids.begin(), ids.begin() + half);
  request.forced_reply.assign(ids.begin() + half, ids.end());
  request.max_tokens = std::ssize(ids) - half;
  request.ignore_eos = true;
  request.logits_from = 0;
  request.on_logits = [&](int64_t, std::span<const float> row) {
    scored.rows.emplace_back(row.begin(), row.end());
  };
  LUCID_ASSIGN_OR_RETURN(Stream stream, engine.Submit(std::move(request)));
  while (const std::optional<TokenOutput> out = stream.Next()) {
    if (out->error) return tl::unexpected<Error>(*out->error);
  }
  scored.rows.resize(std::min(scored.rows.size(), ids.size() - 1));
  return scored;
}

SelfCheck CompareWithReference(const ScoredText& scored, const ScoredText& reference,
                               Numerics numerics) {
  SelfCheck check = {.name = "kernels " + scored.isa};
  if (scored.rows.size() != reference.rows.size()) {
    check.state = CheckState::kFailed;
    check.detail = fmt::format("{} rows of logits, {} by the reference", scored.rows.size(),
                               reference.rows.size());
    return check;
  }
  RunningMean kld;
  int64_t same = 0;
  double largest = 0;
  for (size_t p = 0; p < reference.rows.size(); ++p) {
    const std::vector<float>& got = scored.rows[p];
    const std::vector<float>& want = reference.rows[p];
    kld.Add(KlDivergence(want, got));
    const auto top = [](const std::vector<float>& row) {
      return std::max_element(row.begin(), row.end()) - row.begin();
    };
    if (top(got) == top(want)) ++same;
    for (size_t i = 0; i < want.size(); ++i) {
      largest = std::max(largest, std::fabs(static_cast<double>(got[i]) - want[i]));
    }
  }
  const double limit = DivergenceLimit(numerics);
  // What may be chance, with so few tokens, is none of the kernels' fault; nor is it that a router
  // whose scores are nearly equal chooses another expert, which turns a row over. Many such rows
  // are.
  constexpr double kSameTop = 0.9;
  const auto rows = static_cast<double>(reference.rows.size());
  const bool good = kld.mean() - 2 * kld.stderr_of_mean() <= limit &&
                    static_cast<double>(same) >= std::min(kSameTop * rows, rows - 1);
  check.state = good ? CheckState::kPassed : CheckState::kFailed;
  check.detail = fmt::format(
      "{} rows of logits, mean divergence from the reference {:.2g} +/- {:.1g} (fails beyond "
      "{:.2g} "
      "and two errors), the same top token in {} (fails below 90 %), largest difference {:.2g}",
      reference.rows.size(), kld.mean(), kld.stderr_of_mean(), limit, same, largest);
  return check;
}

SelfCheck ComparePerplexity(const ScoredText& scored, const ScoredText& reference,
                            const std::vector<TokenId>& ids) {
  RunningMean got;
  RunningMean off;  // of the same tokens, so that its error is small
  for (size_t p = 0; p < reference.rows.size(); ++p) {
    const double nll = NegativeLogLikelihood(scored.rows[p], ids[p + 1]);
    got.Add(nll);
    off.Add(nll - NegativeLogLikelihood(reference.rows[p], ids[p + 1]));
  }
  constexpr double kPromised = 0.001;
  const bool good = std::fabs(off.mean()) <= kPromised + 3 * off.stderr_of_mean();
  return {"perplexity", good ? CheckState::kPassed : CheckState::kFailed,
          fmt::format("{:.4f} over {} tokens, {:.4f} by the reference: {:+.2f} +/- {:.2f} %",
                      std::exp(got.mean()), got.count(), std::exp(got.mean() - off.mean()),
                      100 * std::expm1(off.mean()), 100 * off.stderr_of_mean())};
}

SelfCheck CheckMemory(const Engine& engine, int64_t buffers) {
  const Result<Footprint> foreseen =
      ForeseeEngine(engine.model(), engine.config(), /*available=*/0);
  if (!foreseen) return {"memory", CheckState::kFailed, foreseen.error().message};
  const bool equal = foreseen->total() == buffers;
  return {
      "memory", equal ? CheckState::kPassed : CheckState::kFailed,
      fmt::format("{} bytes foreseen from the headers, {} allocated", foreseen->total(), buffers)};
}

int64_t FirstDifference(const RowHashes& want, const RowHashes& got) {
  for (const auto& [position, hash] : got) {
    const auto found = want.find(position);
    if (found == want.end() || found->second != hash) return position;
  }
  return -1;
}

Result<SelfCheck> CheckInvariance(Engine& engine, const std::vector<TokenId>& prompt) {
  RowHashes alone;
  RowHashes cached;
  RowHashes among;
  RowHashes in_pieces;
  LUCID_RETURN_IF_ERROR(HashInCompany(engine, prompt, &alone, &cached, &among));
  EngineConfig other = engine.config();
  other.n_threads = other.n_threads_batch = 1;
  other.chunk = 5;
  {
    LUCID_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> single, Engine::Load(other));
    LUCID_ASSIGN_OR_RETURN(Stream stream, SubmitHashed(*single, prompt, 0, &in_pieces));
    LUCID_RETURN_IF_ERROR(Drain(stream));
  }
  const std::pair<const char*, const RowHashes*> ways[] = {
      {"with its prompt in the cache", &cached},
      {"among four others", &among},
      {"in chunks of 5 on one thread", &in_pieces}};
  for (const auto& [way, hashes] : ways) {
    const int64_t position = FirstDifference(alone, *hashes);
    if (position < 0 && !hashes->empty()) continue;
    return SelfCheck{"invariance", CheckState::kFailed,
                     fmt::format("the logits at position {} have other bits {}", position, way)};
  }
  return SelfCheck{"invariance", CheckState::kPassed,
                   fmt::format("{} rows of logits have the same bits alone, {}, {} and {}",
                               alone.size(), ways[0].first, ways[1].first, ways[2].first)};
}

}  // namespace lucid
