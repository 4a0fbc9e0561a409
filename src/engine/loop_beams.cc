// Beam search in the loop: each beam is a sequence that waits for its siblings' rows; then the
// search decides which live on, and their caches are forked.
#include <utility>

#include "engine/loop.h"

namespace lucid {

void EngineLoop::AdvanceBeams(ActiveRequest& request) {
  if (request.ended) return;
  std::vector<BeamSearch::Beam> beams;
  const int64_t n_prompt = std::ssize(request.prompt());
  for (const auto& reply : request.replies) {
    if (reply->candidates.empty()) return;  // its row is still to come
    const std::span<const TokenId> tokens = scheduler_.Get(reply->sequence).tokens;
    beams.push_back({.tokens = tokens.subspan(static_cast<size_t>(n_prompt)),
                     .logprobs = reply->logprobs,
                     .logprob_sum = reply->logprob_sum,
                     .candidates = reply->candidates});
  }
  const bool last = n_prompt + request.replies[0]->generated + 1 >= request.max_length;
  if (request.replies[0]->generated == 0) request.replies[0]->first_token = Clock::now();
  const std::vector<BeamSearch::Next> living = request.beam->Step(beams, last);
  if (living.empty()) {
    TellHypotheses(request);
    return;
  }
  std::vector<std::unique_ptr<Reply>> parents = std::exchange(request.replies, {});
  std::vector<bool> goes_on(parents.size(), false);
  // Twins first: a parent's own sequence must not get its token before they have branched off.
  std::vector<SequenceId> sequences;
  for (const BeamSearch::Next& next : living) {
    const auto p = static_cast<size_t>(next.parent);
    sequences.push_back(goes_on[p] ? scheduler_.Fork(parents[p]->sequence) : parents[p]->sequence);
    goes_on[p] = true;
  }
  for (size_t i = 0; i < living.size(); ++i) {
    const BeamSearch::Next& next = living[i];
    const Reply& parent = *parents[static_cast<size_t>(next.parent)];
    auto reply = std::make_unique<Reply>();
    reply->sequence = sequences[i];
    reply->generated = parent.generated + 1;
    reply->first_token = parent.first_token;
    reply->logprob_sum = next.logprob_sum;
    if (request.request.n_logprobs >= 0) {
      reply->logprobs = parent.logprobs;
      std::vector<TokenProb> top = parent.candidates;
      top.resize(std::min(top.size(), static_cast<size_t>(request.request.n_logprobs)));
      reply->logprobs.push_back({next.token.logprob, std::move(top)});
    }
    scheduler_.Append(reply->sequence, next.token.id);
    scheduler_.SetBlocked(reply->sequence, false);
    roles_[reply->sequence] = {&request, reply.get()};
    request.replies.push_back(std::move(reply));
  }
  for (size_t p = 0; p < parents.size(); ++p) {
    if (goes_on[p]) continue;
    request.beam_preemptions += scheduler_.Get(parents[p]->sequence).preemptions;
    roles_.erase(parents[p]->sequence);
    scheduler_.Remove(parents[p]->sequence);
  }
}

// The best n hypotheses, token by token, best first.
void EngineLoop::TellHypotheses(ActiveRequest& request) {
  const std::span<const BeamHypothesis> finished = request.beam->finished();
  const RequestStats stats = StatsOf(request, *request.replies[0]);
  for (int32_t i = 0; i < request.request.n; ++i) {
    if (i >= std::ssize(finished)) {
      request.stream->Push(
          {.index = i,
           .cause = StopCause::kError,
           .error = Error{ErrorCode::kInvalidArgument,
                          fmt::format("beam search found only {} hypotheses", finished.size())},
           .stats = stats});
      continue;
    }
    const BeamHypothesis& h = finished[static_cast<size_t>(i)];
    std::optional<Detokenizer> detokenizer;
    if (parts_.tokenizer != nullptr) {
      detokenizer.emplace(*parts_.tokenizer, /*skip_special=*/true, /*at_start=*/false);
    }
    for (size_t t = 0; t < h.tokens.size(); ++t) {
      const bool last = t + 1 == h.tokens.size();
      TokenOutput out{.index = i, .id = h.tokens[t]};
      if (detokenizer && !EndsReply(request, out.id)) out.text = detokenizer->Add(out.id);
      if (detokenizer && last) out.text += detokenizer->Finish();
      if (request.request.n_logprobs >= 0) {
        out.logprobs = h.logprobs[t];
        std::vector<TokenProb>& top = out.logprobs->top;
        top.resize(std::min(top.size(), static_cast<size_t>(request.request.n_logprobs)));
      }
      if (last) {
        out.cause = h.ended ? StopCause::kEndOfGeneration : StopCause::kLength;
        out.score = h.score;
        out.stats = stats;
        out.stats.generated_tokens = std::ssize(h.tokens);
      }
      request.stream->Push(std::move(out));
    }
  }
  ForgetRequest(request);
}

}  // namespace lucid
