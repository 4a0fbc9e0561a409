// From rows of logits to tokens, text and the end of replies.
#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "base/check.h"
#include "base/finite.h"
#include "engine/loop.h"

namespace lucid {

// Before anything of the step is kept: where rows of logits are not finite, the step is run once
// more to see why. Nearly always all of such a row is not, so one number is looked at here;
// CheckRow looks at all of them when the row is used.
void EngineLoop::LocateFaults() {
  std::vector<int32_t> sequences;
  for (const Row& row : rows_) {
    if (!std::isfinite(LogitsOf(row)[0])) sequences.push_back(row.in_batch);
  }
  if (sequences.empty()) return;
  FaultFinder finder(sequences);
  batch_.ForgetScores();
  parts_.runner->Run(batch_, &finder);  // writes what is there already: the same bits
  for (Row& row : rows_) {
    if (!std::isfinite(LogitsOf(row)[0])) row.fault = finder.Of(row.in_batch);
  }
}

// kInvalidFile unless the row may be sampled from or shown.
Status EngineLoop::CheckRow(const Row& row) const {
  const std::span<const float> logits = LogitsOf(row);
  if (AllFinite(logits)) return {};
  if (row.fault) {
    return Err(ErrorCode::kInvalidFile,
               "the model's numbers for this request are not finite: {} gave infinity or NaN at "
               "position {}, so there are no logits to choose a token from",
               row.fault->value, row.fault->position);
  }
  const auto bad =
      std::find_if(logits.begin(), logits.end(), [](float logit) { return !std::isfinite(logit); });
  return Err(ErrorCode::kInvalidFile,
             "the model's numbers for this request are not finite: at position {} the logit of "
             "token {} is {}",
             row.position, bad - logits.begin(), *bad);
}

// False if the row is not finite: then its request ends with this step.
bool EngineLoop::MayUse(const Row& row) {
  ActiveRequest& request = *row.request;
  if (request.fault || request.ended) return false;
  if (const Status good = CheckRow(row); !good) request.fault = good.error();
  return !request.fault.has_value();
}

void EngineLoop::EndFaulty() {
  for (const Row& row : rows_) {
    ActiveRequest& request = *row.request;
    if (request.fault) EndRequest(request, StopCause::kError, request.fault);
  }
}

// Evictions that are due, and the logits that requests asked for.
void EngineLoop::AfterCompute(const StepPlan& plan) {
  for (const Chunk& chunk : plan.chunks) {
    const Role& role = roles_.at(chunk.id);
    if (role.reply == nullptr || role.reply->evictor == nullptr) continue;
    const Sequence& sequence = scheduler_.Get(chunk.id);
    role.reply->evictor->AfterStep(*parts_.cache, sequence.kv, sequence.n_computed);
    LimitChunk(*role.request, *role.reply);
  }
  for (const Row& row : rows_) {
    ActiveRequest& request = *row.request;
    if (row.reply == nullptr || !request.request.on_logits) continue;
    const int64_t from = request.wants_prompt_logits() ? request.request.logits_from
                                                       : std::ssize(request.prompt()) - 1;
    if (row.position < std::max(from, request.next_logits) || !MayUse(row)) continue;
    request.next_logits = row.position + 1;
    request.request.on_logits(row.position, parts_.runner->Logits(row.index));
  }
}

// Some output matrices are padded beyond the vocabulary; an id without a piece must not be drawn.
std::span<const float> EngineLoop::LogitsOf(const Row& row) const {
  const std::span<const float> logits = parts_.runner->Logits(row.index);
  if (parts_.tokenizer == nullptr) return logits;
  return logits.first(std::min(logits.size(), static_cast<size_t>(parts_.tokenizer->n_tokens())));
}

void EngineLoop::PickTokens() {
  picks_.clear();
  for (size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    ActiveRequest& request = *row.request;
    if (request.fault) continue;
    if (row.reply == nullptr) {
      Audit(row);
      continue;
    }
    if (!row.newest) continue;
    if (request.auditor != nullptr) Audit(row);
    if (row.reply->done) continue;
    if (request.beam) {
      if (!MayUse(row)) continue;
      const int n_candidates = std::max(2 * request.beam->width(), request.request.n_logprobs);
      row.reply->candidates =
          RawLogprobs(LogitsOf(row), 0, n_candidates, parts_.runner->row_kernels()).top;
      scheduler_.SetBlocked(row.sequence, true);
      beam_requests_.push_back(&request);
      continue;
    }
    if (request.request.max_tokens == 0) {
      EndReply(request, *row.reply, {.cause = StopCause::kLength});
      continue;
    }
    if (row.reply->generated == 0 && request.replies.size() == 1) ForkReplies(request);
    if (row.reply->generated == 0) {  // every reply draws its first token from the prompt's row
      for (const auto& reply : request.replies) {
        picks_.push_back({.request = &request, .reply = reply.get(), .row = row});
      }
    } else {
      picks_.push_back({.request = &request, .reply = row.reply, .row = row});
    }
  }
  if (picks_.size() == 1) {
    PickOne(picks_[0]);
  } else if (!picks_.empty()) {
    ThreadPool& pool = parts_.runner->pool();
    const auto threads = std::min(picks_.size(), static_cast<size_t>(parts_.runner->threads_now()));
    const auto pick = [&](int thread) {
      for (size_t i = static_cast<size_t>(thread); i < picks_.size(); i += threads) {
        PickOne(picks_[i]);
      }
    };
    pool.Run(static_cast<int>(threads), std::ref(pick));
  }
  for (Pick& pick : picks_) Deliver(pick);
  for (ActiveRequest* request : beam_requests_) AdvanceBeams(*request);
  beam_requests_.clear();
  EndFaulty();
}

// On any thread of the pool: reads what the loop owns, writes only the pick.
void EngineLoop::PickOne(Pick& pick) const {
  const ActiveRequest& request = *pick.request;
  const Request& asked = request.request;
  const Reply& reply = *pick.reply;
  const Sequence& sequence = scheduler_.Get(reply.sequence);
  const std::span<const float> logits = LogitsOf(pick.row);
  const std::span<const TokenId> tokens = sequence.tokens;
  const size_t n_prompt = request.prompt().size();
  if (const Status good = CheckRow(pick.row); !good) {
    pick.output = tl::unexpected<Error>(good.error());
    return;
  }
  TokenOutput out;
  out.index = reply.index;
  if (!asked.forced_reply.empty()) {
    out.id = asked.forced_reply[static_cast<size_t>(reply.generated)];
  } else {
    SampleReport report;
    Result<TokenId> id =
        request.sampler.Sample(logits, tokens.first(n_prompt), tokens.subspan(n_prompt),
                               asked.rng_stream + static_cast<uint64_t>(reply.index), tokens.size(),
                               asked.explain ? &report : nullptr);
    if (!id) {
      pick.output = tl::unexpected<Error>(id.error());
      return;
    }
    out.id = *id;
    if (asked.explain) out.explain = std::move(report);
  }
  if (asked.n_logprobs >= 0)
    out.logprobs = RawLogprobs(logits, out.id, asked.n_logprobs, parts_.runner->row_kernels());
  pick.output = std::move(out);
}

// The other n - 1 replies; they share the prompt's blocks.
void EngineLoop::ForkReplies(ActiveRequest& request) {
  const Reply& first = *request.replies[0];
  for (int32_t i = 1; i < request.request.n; ++i) {
    auto twin = std::make_unique<Reply>();
    twin->index = i;
    twin->stop = first.stop;
    if (parts_.tokenizer != nullptr) {
      twin->detokenizer.emplace(*parts_.tokenizer, /*skip_special=*/true, /*at_start=*/false);
    }
    twin->sequence = scheduler_.Fork(first.sequence);
    roles_[twin->sequence] = {&request, twin.get()};
    request.replies.push_back(std::move(twin));
  }
}

bool EngineLoop::EndsReply(const ActiveRequest& request, TokenId id) const {
  return !request.request.ignore_eos && request.request.forced_reply.empty() &&
         parts_.tokenizer != nullptr && parts_.tokenizer->IsEndOfGeneration(id);
}

StopCause EngineLoop::FindCause(const ActiveRequest& request, const Reply& reply,
                                TokenId id) const {
  if (EndsReply(request, id)) return StopCause::kEndOfGeneration;
  if (reply.stop.stopped()) return StopCause::kStopString;
  // The newest token needs a place too before another can follow.
  if (std::ssize(request.prompt()) + reply.generated >= request.max_length) {
    return StopCause::kLength;
  }
  return StopCause::kNone;
}

void EngineLoop::Deliver(Pick& pick) {
  ActiveRequest& request = *pick.request;
  Reply& reply = *pick.reply;
  if (!pick.output) {
    EndReply(request, reply, {.cause = StopCause::kError, .error = pick.output.error()});
    return;
  }
  TokenOutput out = *std::move(pick.output);
  if (reply.generated == 0) reply.first_token = Clock::now();
  ++reply.generated;
  if (reply.detokenizer && !EndsReply(request, out.id)) {
    out.text = reply.stop.Add(reply.detokenizer->Add(out.id));
  }
  out.cause = FindCause(request, reply, out.id);
  if (out.cause != StopCause::kNone) {
    EndReply(request, reply, std::move(out));
    return;
  }
  scheduler_.Append(reply.sequence, out.id);
  if (request.shadow != 0) scheduler_.Append(request.shadow, out.id);
  request.stream->Push(std::move(out));
  if (sender_ != nullptr && reply.generated == 1) HandOver(request, reply);
}

// Rows of the bounded and the full cache for one position; the faster sequence waits.
void EngineLoop::Audit(const Row& row) {
  ActiveRequest& request = *row.request;
  if (!MayUse(row)) return;
  KvAuditor& auditor = *request.auditor;
  const std::span<const float> logits = LogitsOf(row);
  Reply& reply = *request.replies[0];
  if (row.reply != nullptr) {
    const bool both = auditor.AddBounded(logits);
    if (!both) scheduler_.SetBlocked(reply.sequence, true);
    return;
  }
  request.next_audit = row.position + 1;
  if (!auditor.AddFull(logits)) return;  // it has no further token until the reply has one
  if (reply.done) {
    if (reply.last_output != nullptr) {
      const std::unique_ptr<TokenOutput> last = std::move(reply.last_output);
      EndReply(request, reply, std::move(*last));
    }
  } else {
    scheduler_.SetBlocked(reply.sequence, false);
  }
}

// Beams: of all of them, those that died too.
int64_t EngineLoop::PreemptionsOf(const ActiveRequest& request, const Reply& reply) const {
  const auto of = [this](const Reply& r) {
    return r.sequence != 0 && roles_.contains(r.sequence) ? scheduler_.Get(r.sequence).preemptions
                                                          : int64_t{0};
  };
  if (!request.beam) return of(reply);
  int64_t sum = request.beam_preemptions;
  for (const auto& beam : request.replies) sum += of(*beam);
  return sum;
}

RequestStats EngineLoop::StatsOf(const ActiveRequest& request, const Reply& reply) const {
  RequestStats stats = request.stats;
  stats.prompt_tokens = std::ssize(request.prompt());
  stats.generated_tokens = reply.generated;
  if (request.first_step) {
    const Clock::time_point end = reply.generated > 0 ? reply.first_token : Clock::now();
    stats.queue_seconds +=
        std::chrono::duration<double>(*request.first_step - request.submitted).count();
    stats.prefill_seconds += std::chrono::duration<double>(end - *request.first_step).count();
  } else {
    stats.queue_seconds += SecondsSince(request.submitted);
  }
  if (reply.generated > 0) stats.decode_seconds += SecondsSince(reply.first_token);
  if (reply.sequence != 0 && roles_.contains(reply.sequence)) {
    const Sequence& sequence = scheduler_.Get(reply.sequence);
    // What it held, or would hold had it not been preempted just now.
    stats.kv_bytes = sequence.status == SequenceStatus::kRunning
                         ? parts_.cache->bytes(sequence.kv)
                         : parts_.cache->layout().BytesFor(sequence.length());
  }
  stats.preemptions += PreemptionsOf(request, reply);
  if (reply.evictor != nullptr) stats.eviction = reply.evictor->bill();
  if (request.auditor != nullptr) stats.audit = request.auditor->result();
  return stats;
}

// `output` is the reply's last one; its text is completed here.
void EngineLoop::EndReply(ActiveRequest& request, Reply& reply, TokenOutput output) {
  if (!reply.done) {
    reply.done = true;
    output.index = reply.index;
    const bool whole = output.cause != StopCause::kError && !reply.stop.stopped();
    if (reply.detokenizer && whole) {
      output.text += reply.stop.Add(reply.detokenizer->Finish());
      if (!reply.stop.stopped()) output.text += reply.stop.Finish();
    }
    output.stats = StatsOf(request, reply);
    roles_.erase(reply.sequence);
    scheduler_.Remove(reply.sequence);
  }
  const bool ended_early = output.cause == StopCause::kAborted ||
                           output.cause == StopCause::kError ||
                           output.cause == StopCause::kDeadline;
  if (request.auditor != nullptr && request.auditor->waiting() && !ended_early) {
    reply.last_output = std::make_unique<TokenOutput>(
        std::move(output));  // the full cache's row of its token is still to come
    return;
  }
  if (request.auditor != nullptr) output.stats.audit = request.auditor->result();
  request.stream->Push(std::move(output));
  const bool all_done = std::ssize(request.replies) >= request.request.n &&
                        std::all_of(request.replies.begin(), request.replies.end(),
                                    [](const auto& r) { return r->done; });
  if (all_done) ForgetRequest(request);
}

// Ends what is left of a request, in whatever state it is.
void EngineLoop::EndRequest(ActiveRequest& request, StopCause cause, std::optional<Error> error) {
  if (request.ended) return;
  for (int32_t i = 0; i < request.request.n; ++i) {
    TokenOutput output{.index = i, .cause = cause, .error = error};
    const bool began = i < std::ssize(request.replies) && !request.beam;
    if (began) {
      Reply& reply = *request.replies[static_cast<size_t>(i)];
      if (reply.done && reply.last_output == nullptr) continue;
      reply.last_output.reset();
      EndReply(request, reply, std::move(output));
    } else {
      Reply none;
      output.stats = StatsOf(request, none);
      request.stream->Push(std::move(output));
    }
  }
  ForgetRequest(request);
}

// Takes its sequences out of the scheduler; the request itself goes at the end of the step.
void EngineLoop::ForgetRequest(ActiveRequest& request) {
  if (request.ended) return;
  request.ended = true;
  for (const auto& reply : request.replies) {
    if (roles_.erase(reply->sequence) > 0) scheduler_.Remove(reply->sequence);
    reply->done = true;
  }
  if (request.shadow != 0 && roles_.erase(request.shadow) > 0) scheduler_.Remove(request.shadow);
  if (!request.first_step) queued_.fetch_sub(1);
  ended_.push_back(request.id);
}

// Another engine goes on with the reply. Where it does not want to, this one does.
void EngineLoop::HandOver(ActiveRequest& request, Reply& reply) {
  const Request& asked = request.request;
  if (asked.n > 1 || request.auditor != nullptr || reply.evictor != nullptr || asked.on_logits) {
    return;  // state that a snapshot does not carry
  }
  const Sequence& sequence = scheduler_.Get(reply.sequence);
  SequenceHandover handover;
  handover.request = asked;
  const auto reply_begin = sequence.tokens.begin() + std::ssize(request.prompt());
  handover.reply.assign(reply_begin, sequence.tokens.end());
  handover.stats = StatsOf(request, reply);
  handover.max_length = request.max_length;
  handover.age_seconds = SecondsSince(request.asked);
  handover.cache =
      TakeSnapshot(*parts_.cache, sequence.kv,
                   std::span(sequence.tokens).first(static_cast<size_t>(sequence.n_computed)),
                   parts_.fingerprint);
  handover.stream = request.stream;
  if (sender_->Send(handover)) ForgetRequest(request);
}

}  // namespace lucid
