// EngineLoop: the one loop that serves every request. A step takes what came in, lets the scheduler
// decide, runs the model over the packed batch, and turns rows of logits into tokens.
//
// Threads: what is declared in the first part of EngineLoop may be called from any thread, except
// Start and Stop, which belong to one. Everything else happens in a step, and steps exclude each
// other: they are the worker's after Start(), and the callers' of Step() otherwise.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "engine/fault_finder.h"
#include "engine/handover.h"
#include "engine/reply.h"
#include "exec/batch.h"
#include "sched/scheduler.h"

namespace lucid {

// What the loop works with; all of it outlives the loop.
struct LoopParts {
  const EngineConfig* config = nullptr;
  const Tokenizer* tokenizer = nullptr;  // nullptr: ids only
  Runner* runner = nullptr;
  KvCache* cache = nullptr;
  std::vector<KeyRotation> rotations;     // by KV layer
  const RopeSpec* length_rope = nullptr;  // see LengthDependentRope
  uint64_t fingerprint = 0;
};

class EngineLoop final : public StreamOwner {
 public:
  EngineLoop(LoopParts parts, const SchedulerOptions& options);
  ~EngineLoop() override;

  // Runs `task` in the loop before its next step.
  void Post(std::function<void()> task);
  // Post() and wait for it. kInvalidArgument from within a step (on_logits), which would wait for
  // itself.
  Status RunAndWait(const std::function<void()>& task);
  // A request that was checked. Counts as queued from here on.
  void Submit(std::unique_ptr<ActiveRequest> request);
  // Goes on with another engine's sequence.
  void Accept(std::unique_ptr<ActiveRequest> request, SequenceHandover handover);
  // kCapacity with both numbers if the request could never run.
  Status CheckFits(const ActiveRequest& request) const;
  void SetHandover(std::shared_ptr<SequenceSender> sender) { sender_ = std::move(sender); }

  void Start();
  void Stop();
  bool Step(Observer* observer, StepTimes* times = nullptr);
  bool busy() const { return active_.load() > 0; }
  int64_t queued() const { return queued_.load(); }
  EngineStats Stats() const;

  void AbortRequest(RequestId id) override;
  bool has_worker() const override { return running_.load(); }
  bool PullStep() override { return Step(nullptr); }

  Scheduler& scheduler() { return scheduler_; }
  // Unlike any other of this process: a request keeps its id when another engine goes on with it.
  static RequestId NewId();

 private:
  // One row of logits of a step and what is to be done with it.
  struct Row {
    ActiveRequest* request = nullptr;
    Reply* reply = nullptr;  // nullptr: of the shadow sequence
    SequenceId sequence = 0;
    int64_t position = 0;
    int32_t index = 0;     // of the step's outputs
    int32_t in_batch = 0;  // which of the step's sequences
    bool newest = false;   // of the sequence's last token: gives the next one
    std::optional<Fault> fault = {};
  };
  // One token to be picked from a row.
  struct Pick {
    ActiveRequest* request = nullptr;
    Reply* reply = nullptr;
    Row row;
    Result<TokenOutput> output = TokenOutput{};
  };
  struct Role {
    ActiveRequest* request = nullptr;
    Reply* reply = nullptr;  // nullptr: the shadow
  };

  void Work();
  void TakeTasks();
  void TakeTasksNow();
  void EndLateRequests();
  void ForgetEnded();
  void Begin(std::unique_ptr<ActiveRequest> request);
  int64_t RopeLength(const SequenceSpec& spec, int64_t position) const;
  SequenceSpec SpecOf(const ActiveRequest& request, const Evictor* evictor) const;
  Status AddSequences(ActiveRequest& request);
  Status Adopt(ActiveRequest& request, const SequenceHandover& handover);
  Result<SequenceId> AdoptSequence(SequenceSpec spec, const KvSnapshot& snapshot);
  void NotePreempted(const StepPlan& plan);
  void Pack(StepPlan& plan);
  void AddChunk(Chunk& chunk);
  void LimitChunk(const ActiveRequest& request, const Reply& reply);
  void LocateFaults();
  Status CheckRow(const Row& row) const;
  bool MayUse(const Row& row);
  void EndFaulty();
  void AfterCompute(const StepPlan& plan);
  void EndStalled();
  void CheckIdle() const;
  void PickTokens();
  std::span<const float> LogitsOf(const Row& row) const;
  void PickOne(Pick& pick) const;
  void ForkReplies(ActiveRequest& request);
  void Deliver(Pick& pick);
  void Audit(const Row& row);
  void HandOver(ActiveRequest& request, Reply& reply);
  void AdvanceBeams(ActiveRequest& request);
  void TellHypotheses(ActiveRequest& request);
  bool EndsReply(const ActiveRequest& request, TokenId id) const;
  StopCause FindCause(const ActiveRequest& request, const Reply& reply, TokenId id) const;
  int64_t PreemptionsOf(const ActiveRequest& request, const Reply& reply) const;
  RequestStats StatsOf(const ActiveRequest& request, const Reply& reply) const;
  void EndReply(ActiveRequest& request, Reply& reply, TokenOutput output);
  void EndRequest(ActiveRequest& request, StopCause cause, std::optional<Error> error);
  void ForgetRequest(ActiveRequest& request);
  void PublishStats();

  LoopParts parts_;
  Scheduler scheduler_;
  std::unordered_map<RequestId, std::unique_ptr<ActiveRequest>> requests_;
  std::unordered_map<SequenceId, Role> roles_;
  std::shared_ptr<SequenceSender> sender_;

  // Reused from step to step.
  Batch batch_;
  std::vector<Row> rows_;
  std::vector<Pick> picks_;
  std::vector<std::span<const int32_t>> tables_;
  std::vector<int32_t> dropped_;
  int empty_steps_ = 0;                        // in a row
  int64_t logit_rows_ = 0;                     // of this step, for on_logits only
  std::vector<ActiveRequest*> beam_requests_;  // with a new row in this step
  std::vector<RequestId> ended_;               // forgotten at the end of the step
  bool in_step_ = false;

  EngineStats totals_;
  std::atomic<int64_t> active_{0}, queued_{0};

  // Held in a step. Recursive, since on_logits may abort a request.
  std::recursive_mutex step_mutex_;
  std::atomic<std::thread::id> step_thread_{};

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  EngineStats published_;
  bool stop_ = false;
  std::atomic<bool> running_{false};
  std::thread worker_;
};

}  // namespace lucid
