// The loop's threads, its tasks and the way from the scheduler's plan to a batch. What happens to
// the rows of logits afterwards is in loop_output.cc, beams in loop_beams.cc.
#include "engine/loop.h"

#include <algorithm>
#include <future>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace lucid {

EngineLoop::EngineLoop(LoopParts parts, const SchedulerOptions& options)
    : parts_(std::move(parts)),
      scheduler_(options, *parts_.cache),
      batch_(static_cast<int32_t>(parts_.cache->layout().groups().size())) {
  PublishStats();
}

EngineLoop::~EngineLoop() {
  Stop();
  TakeTasks();
  const std::lock_guard lock(step_mutex_);
  for (auto& [id, request] : requests_) {
    EndRequest(*request, StopCause::kAborted, std::nullopt);
    request->stream->Abandon();
  }
}

void EngineLoop::Post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  wake_.notify_all();
}

RequestId EngineLoop::NewId() {
  static std::atomic<RequestId> last{0};
  return ++last;
}

Status EngineLoop::RunAndWait(const std::function<void()>& task) {
  if (step_thread_.load() == std::this_thread::get_id()) {
    return Err(ErrorCode::kInvalidArgument, "the cache cannot be saved or loaded within a step");
  }
  auto done = std::make_shared<std::promise<void>>();
  std::future<void> finished = done->get_future();
  Post([&task, done] {
    task();
    done->set_value();
  });
  // The worker may be stopped meanwhile; then nobody else would run the task.
  constexpr std::chrono::milliseconds kLook{20};
  do {
    if (!has_worker()) TakeTasksNow();
  } while (finished.wait_for(kLook) != std::future_status::ready);
  return {};
}

// On the caller's thread, between two steps.
void EngineLoop::TakeTasksNow() {
  const std::lock_guard lock(step_mutex_);
  if (!in_step_) TakeTasks();
}

void EngineLoop::Submit(std::unique_ptr<ActiveRequest> request) {
  active_.fetch_add(1);
  queued_.fetch_add(1);
  // std::function wants a copyable task.
  auto box = std::make_shared<std::unique_ptr<ActiveRequest>>(std::move(request));
  Post([this, box] { Begin(std::move(*box)); });
}

void EngineLoop::AbortRequest(RequestId id) {
  Post([this, id] {
    const auto found = requests_.find(id);
    if (found != requests_.end()) EndRequest(*found->second, StopCause::kAborted, std::nullopt);
  });
  if (!has_worker()) TakeTasksNow();
}

void EngineLoop::Start() {
  if (has_worker()) return;
  stop_ = false;
  running_.store(true);
  worker_ = std::thread([this] { Work(); });
}

void EngineLoop::Stop() {
  if (!has_worker()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  worker_.join();
  running_.store(false);
  const std::lock_guard lock(step_mutex_);
  TakeTasks();  // a request that the worker has not seen has a reader too
  for (const auto& [id, request] : requests_) request->stream->Wake();
}

void EngineLoop::Work() {
  bool more = true;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stop_ || more || !tasks_.empty(); });
      if (stop_) return;
    }
    more = Step(nullptr);
  }
}

void EngineLoop::TakeTasks() {
  std::deque<std::function<void()>> tasks;
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
  }
  for (const std::function<void()>& task : tasks) task();
  if (!in_step_) ForgetEnded();
}

void EngineLoop::ForgetEnded() {
  if (ended_.empty()) return;
  for (const RequestId id : ended_) {
    if (requests_.erase(id) == 0) continue;
    active_.fetch_sub(1);
    ++totals_.requests_ended;
  }
  ended_.clear();
  PublishStats();
}

void EngineLoop::EndLateRequests() {
  for (const auto& [id, request] : requests_) {
    const double deadline = request->request.deadline_seconds;
    if (deadline > 0 && SecondsSince(request->asked) > deadline) {
      EndRequest(*request, StopCause::kDeadline, std::nullopt);
    }
  }
}

// How the sequence of a request looks to the scheduler.
SequenceSpec EngineLoop::SpecOf(const ActiveRequest& request, const Evictor* evictor) const {
  SequenceSpec spec;
  spec.tokens = request.prompt();
  spec.n_prompt = std::ssize(spec.tokens);
  spec.max_length = request.max_length;
  spec.priority = request.request.priority;
  spec.client = request.request.client;
  // The policy's scores come from the queries of the whole prompt, and logits from computed rows.
  spec.share = evictor == nullptr && !request.wants_prompt_logits();
  if (evictor != nullptr) spec.max_places = evictor->MostPlaces(spec.max_length);
  // Keys stay in the cache as they were rotated: only sequences whose lengths count alike share.
  const RopeSpec* rope = parts_.length_rope;
  if (const int64_t length = RopeLength(spec, 0);
      rope != nullptr && static_cast<double>(length) > rope->original_context) {
    spec.root = rope->scaling == RopeSpec::Scaling::kLongRope ? 1 : static_cast<uint64_t>(length);
  }
  return spec;
}

// The length by which a token is rotated, 0 where it does not matter. LongRoPE has two tables: a
// sequence takes one for its whole life, by the length that it may come to, since a switch on the
// way would leave keys of the other in the cache. Dynamic scaling goes by the whole prompt for its
// tokens, then by each new token's own place, as Hugging Face transformers does with a cache.
int64_t EngineLoop::RopeLength(const SequenceSpec& spec, int64_t position) const {
  if (parts_.length_rope == nullptr) return 0;
  if (parts_.length_rope->scaling == RopeSpec::Scaling::kLongRope) return spec.max_length;
  return position < spec.n_prompt ? spec.n_prompt : position + 1;
}

// What an evictor would say is not known before it is made, in the loop.
Status EngineLoop::CheckFits(const ActiveRequest& request) const {
  if (request.request.eviction.policy != KvPolicy::kFull && request.auditor == nullptr) return {};
  return scheduler_.CheckFits(SpecOf(request, nullptr));
}

Status EngineLoop::AddSequences(ActiveRequest& request) {
  auto reply = std::make_unique<Reply>();
  LUCID_ASSIGN_OR_RETURN(reply->stop, StopMatcher::Create(request.request.stop));
  if (parts_.tokenizer != nullptr) {
    reply->detokenizer.emplace(*parts_.tokenizer, /*skip_special=*/true, /*at_start=*/false);
  }
  if (request.request.eviction.policy != KvPolicy::kFull) {
    LUCID_ASSIGN_OR_RETURN(reply->evictor,
                           Evictor::Create(request.request.eviction, parts_.runner->kv(),
                                           parts_.rotations, std::ssize(request.prompt())));
  }
  LUCID_ASSIGN_OR_RETURN(reply->sequence, scheduler_.Add(SpecOf(request, reply->evictor.get())));
  if (request.auditor != nullptr) {
    SequenceSpec spec = SpecOf(request, nullptr);
    spec.share = false;  // a row that the cache had would be one that is not audited
    spec.companion = true;
    Result<SequenceId> shadow = scheduler_.Add(std::move(spec));
    if (!shadow) {
      scheduler_.Remove(reply->sequence);
      return tl::unexpected<Error>(shadow.error());
    }
    request.shadow = *shadow;
    request.next_audit = std::ssize(request.prompt()) - 1;
    roles_[request.shadow] = {&request, nullptr};
  }
  roles_[reply->sequence] = {&request, reply.get()};
  request.next_logits = std::max<int64_t>(0, request.request.logits_from);
  LimitChunk(request, *reply);
  request.replies.push_back(std::move(reply));
  return {};
}

void EngineLoop::Begin(std::unique_ptr<ActiveRequest> owned) {
  ActiveRequest& request = *owned;
  requests_[request.id] = std::move(owned);
  ++totals_.requests;
  if (request.request.max_tokens == 0 && !request.wants_prompt_logits()) {
    EndRequest(request, StopCause::kLength, std::nullopt);  // nothing wanted: no work
    return;
  }
  if (const Status added = AddSequences(request); !added) {
    EndRequest(request, StopCause::kError, added.error());
  }
}

void EngineLoop::Accept(std::unique_ptr<ActiveRequest> request, SequenceHandover handover) {
  active_.fetch_add(1);
  request->stream->SetOwner(*this, request->id);
  struct Box {
    std::unique_ptr<ActiveRequest> request;
    SequenceHandover handover;
  };
  auto box = std::make_shared<Box>(std::move(request), std::move(handover));
  Post([this, box] {
    ActiveRequest& active = *box->request;
    requests_[active.id] = std::move(box->request);
    ++totals_.requests;
    active.first_step = Clock::now();
    if (active.stream->abort_requested()) {
      EndRequest(active, StopCause::kAborted, std::nullopt);
    } else if (const Status adopted = Adopt(active, box->handover); !adopted) {
      EndRequest(active, StopCause::kError, adopted.error());
    }
  });
}

Status EngineLoop::Adopt(ActiveRequest& request, const SequenceHandover& handover) {
  auto reply = std::make_unique<Reply>();
  LUCID_ASSIGN_OR_RETURN(reply->stop, StopMatcher::Create(request.request.stop));
  if (parts_.tokenizer != nullptr) {
    reply->detokenizer.emplace(*parts_.tokenizer, /*skip_special=*/true, /*at_start=*/false);
    // The first engine has told the text of these tokens.
    for (const TokenId id : handover.reply) {
      std::ignore = reply->stop.Add(reply->detokenizer->Add(id));
    }
  }
  reply->generated = std::ssize(handover.reply);
  reply->first_token = Clock::now();
  SequenceSpec spec = SpecOf(request, nullptr);
  spec.tokens.insert(spec.tokens.end(), handover.reply.begin(), handover.reply.end());
  LUCID_ASSIGN_OR_RETURN(reply->sequence, AdoptSequence(std::move(spec), handover.cache));
  roles_[reply->sequence] = {&request, reply.get()};
  request.replies.push_back(std::move(reply));
  return {};
}

Result<SequenceId> EngineLoop::AdoptSequence(SequenceSpec spec, const KvSnapshot& snapshot) {
  KvCache& cache = *parts_.cache;
  const SequenceHandle kv = cache.Open(spec.share, spec.root);
  const Status restored = RestoreSnapshot(cache, kv, snapshot, parts_.fingerprint);
  if (restored) {
    Result<SequenceId> id = scheduler_.Adopt(spec, kv, std::ssize(snapshot.tokens));
    if (id) return id;
  }
  cache.Close(kv);
  if (!restored && restored.error().code != ErrorCode::kCapacity) {
    return tl::unexpected<Error>(restored.error());
  }
  return scheduler_.Add(std::move(spec));  // no room now: recomputed when there is
}

// How many of its tokens may be computed in one step.
void EngineLoop::LimitChunk(const ActiveRequest& request, const Reply& reply) {
  const Sequence& sequence = scheduler_.Get(reply.sequence);
  int64_t most = 0;
  if (request.wants_prompt_logits()) {
    // Those before the first row that is wanted have none.
    const int64_t without = std::max<int64_t>(0, request.next_logits - sequence.n_computed);
    most = without + parts_.config->logit_rows;
  }
  if (reply.evictor != nullptr) {
    const int64_t room = reply.evictor->Room(sequence.n_computed);
    most = most > 0 ? std::min(most, room) : room;
  }
  scheduler_.SetMaxChunk(reply.sequence, most);
}

// A sequence that starts over starts its eviction over too.
void EngineLoop::NotePreempted(const StepPlan& plan) {
  for (const SequenceId id : plan.preempt) {
    const Role& role = roles_.at(id);
    if (role.reply == nullptr || role.reply->evictor == nullptr) continue;
    if (scheduler_.Get(id).status != SequenceStatus::kWaiting) continue;  // swapped out as it is
    role.reply->evictor->Reset();
    LimitChunk(*role.request, *role.reply);
  }
}

// The plan's chunks as one batch. Prompt logits are limited per step, so a chunk that wants more is
// cut.
void EngineLoop::Pack(StepPlan& plan) {
  batch_.Clear();
  rows_.clear();
  logit_rows_ = 0;
  for (Chunk& chunk : plan.chunks) AddChunk(chunk);
  std::erase_if(plan.chunks, [](const Chunk& chunk) { return chunk.count == 0; });
}

void EngineLoop::AddChunk(Chunk& chunk) {
  const Role& role = roles_.at(chunk.id);
  ActiveRequest& request = *role.request;
  const Sequence& sequence = scheduler_.Get(chunk.id);
  const auto wants_logits = [&](int64_t position) {
    return role.reply != nullptr && request.wants_prompt_logits() &&
           position >= request.next_logits && position < sequence.length() - 1;
  };
  if (logit_rows_ == parts_.config->logit_rows && wants_logits(chunk.first)) {
    chunk.count = 0;
    return;
  }
  if (!request.first_step) {
    request.first_step = Clock::now();
    request.stats.cached_tokens = sequence.cached_tokens;
    queued_.fetch_sub(1);
  }
  const KvCache& cache = *parts_.cache;
  const std::span<const KvGroup> groups = cache.layout().groups();
  tables_.clear();
  dropped_.clear();
  const auto evicted = static_cast<int32_t>(cache.dropped(sequence.kv));
  for (size_t g = 0; g < groups.size(); ++g) {
    tables_.push_back(cache.Table(sequence.kv, g));
    dropped_.push_back(groups[g].kind == KvGroupKind::kFull ? evicted : 0);
  }
  KeyScores scores;
  if (role.reply != nullptr && role.reply->evictor != nullptr) {
    scores = role.reply->evictor->scores();
  }
  batch_.AddSequence(tables_, dropped_, scores);
  for (int64_t i = 0; i < chunk.count; ++i) {
    const int64_t position = chunk.first + i;
    const bool newest = position == sequence.length() - 1;
    const bool logits = !newest && wants_logits(position);
    // The shadow may lag: the reply has its token, so this row is not of the newest.
    const bool audited = role.reply == nullptr && position == request.next_audit;
    const bool output = role.reply == nullptr ? audited : newest || logits;
    if (logits && logit_rows_ == parts_.config->logit_rows) {
      chunk.count = i;
      break;
    }
    if (logits) ++logit_rows_;
    if (output) {
      rows_.push_back({.request = &request,
                       .reply = role.reply,
                       .sequence = chunk.id,
                       .position = position,
                       .index = batch_.n_outputs(),
                       .in_batch = batch_.n_sequences() - 1,
                       .newest = newest});
    }
    const Phase phase = position < sequence.spec.n_prompt ? Phase::kPrompt : Phase::kGenerated;
    batch_.AddToken(sequence.tokens[static_cast<size_t>(position)], position, phase, output,
                    RopeLength(sequence.spec, position));
    if (audited) {  // one row of a sequence in a step
      chunk.count = i + 1;
      break;
    }
  }
}

bool EngineLoop::Step(Observer* observer, StepTimes* times) {
  const std::lock_guard lock(step_mutex_);
  const Clock::time_point start = Clock::now();
  step_thread_.store(std::this_thread::get_id());
  TakeTasks();
  in_step_ = true;
  EndLateRequests();
  StepPlan plan;
  const bool has_sequences = !scheduler_.idle();
  if (has_sequences) {
    plan = scheduler_.Decide();
    scheduler_.Apply(plan);
    NotePreempted(plan);
    Pack(plan);
    if (plan.chunks.empty()) {
      scheduler_.Commit(plan, 0);
      EndStalled();
    }
  }
  if (!plan.chunks.empty()) {
    empty_steps_ = 0;
    const Clock::time_point run = Clock::now();
    parts_.runner->Run(batch_, observer, times);
    const double run_seconds = SecondsSince(run);
    LocateFaults();
    // An observed step is slower than others and would teach the cost model wrong figures.
    scheduler_.Commit(plan, observer == nullptr ? run_seconds : 0);
    AfterCompute(plan);
    const Clock::time_point sampling = Clock::now();
    PickTokens();
    const double sampling_seconds = SecondsSince(sampling);
    const double total = SecondsSince(start);
    totals_.busy_seconds += total;
    totals_.step_sizes.Add(batch_.n_tokens());
    totals_.sampling_seconds += sampling_seconds;
    totals_.scheduling_seconds += total - run_seconds - sampling_seconds;
  }
  in_step_ = false;
  step_thread_.store({});
  const bool worked = has_sequences || !ended_.empty();
  ForgetEnded();
  if (has_sequences && scheduler_.idle()) CheckIdle();
  PublishStats();
  return worked;
}

// Nothing ran although there are sequences. A plan may come to nothing once, when what it counted
// on was not there after all; the scheduler promises that this does not go on (its simulation
// checks it). Should it, one request pays for it, not the server.
void EngineLoop::EndStalled() {
  constexpr int kPatience = 100;
  if (++empty_steps_ < kPatience || requests_.empty()) return;
  empty_steps_ = 0;
  const auto oldest =
      std::min_element(requests_.begin(), requests_.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
  LogWarn("request {} cannot go on: the scheduler found no step for it", oldest->first);
  EndRequest(*oldest->second, StopCause::kError,
             Error{ErrorCode::kCapacity, "the scheduler found no step for this request"});
}

// The last sequence has gone: nobody waits, so there is time to look whether every block is
// accounted for.
void EngineLoop::CheckIdle() const {
  const Status sound = scheduler_.CheckInvariants();
  LUCID_CHECK(sound.has_value(), "the cache at rest: {}", sound.error().message);
}

void EngineLoop::PublishStats() {
  totals_.scheduler = scheduler_.stats();
  totals_.cache = parts_.cache->stats();
  const std::lock_guard lock(mutex_);
  published_ = totals_;
}

EngineStats EngineLoop::Stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats stats = published_;
  stats.queued = queued_.load();
  return stats;
}

}  // namespace lucid
