// Runner: a loaded model made ready to run: passes done, memory taken, kernels bound. Batch in,
// logits out.
//
// Everything a step needs is allocated here, at load; Run() only walks the bound ops on the thread
// pool.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "base/result.h"
#include "base/thread_governor.h"
#include "base/thread_pool.h"
#include "exec/batch.h"
#include "exec/bind.h"
#include "exec/observer.h"
#include "exec/step_times.h"
#include "kernels/rows.h"
#include "kv/kv_storage.h"
#include "models/load.h"

namespace lucid {

// How the products of quantised weights are computed on the CPU (docs/adr/0010).
enum class Numerics : int8_t {
  kDefault,  // exact sums of activations, rounded within an error budget
  kFast,     // activations of single bytes, for prompts weights too where docs/adr/0016 says so
  kFloat,    // float32 activations and weights; quantised ones are not packed
};

std::string_view Name(Numerics numerics);

enum class BackendKind : int8_t {
  kCpu,        // fused plan, fastest kernels of this machine
  kReference,  // plan as declared, naive float32 kernels: the definition every other result is
               // compared with
};

struct RunnerOptions {
  BackendKind backend = BackendKind::kCpu;
  std::string isa;           // "" or "auto": the best this CPU has; see SelectTables
  int n_threads = 0;         // of a step of one token; 0: one per physical core
  int n_threads_batch = 0;   // of any other step; 0: as n_threads
  int64_t max_tokens = 512;  // most tokens in a step
  int64_t max_outputs = 1;   // most rows of logits in a step
  bool fuse = true;          // kCpu: run the fuse pass
  Numerics numerics = Numerics::kDefault;
  std::vector<std::string> pack_files;  // where packed weights may lie (packed_weights.h)
  KvOptions kv;
  PoolCounts kv_blocks{};  // by pool of the layout that `kv` and the plan's layers give
};

// What a runner takes in memory, in bytes, all of it at Create (pages count once they are touched).
struct RunnerBytes {
  int64_t packed = 0;   // weights as kernels read them
  int64_t arena = 0;    // activations and logits
  int64_t kv = 0;       // all blocks of the cache
  int64_t scratch = 0;  // of all threads, their own and shared
  int64_t total() const { return packed + arena + kv + scratch; }
};

class Runner {
 public:
  // The model must outlive the runner.
  static Result<std::unique_ptr<Runner>> Create(const Model& model, const RunnerOptions& options);
  // What Create would take, worked out in the same way; reads no weights, and an outline of a model
  // will do. Errors as Create.
  static Result<RunnerBytes> Foresee(const Model& model, const RunnerOptions& options);
  // What this one took.
  RunnerBytes bytes() const;

  // Runs one step: at most max_tokens tokens and max_outputs outputs. Both may be null; a step that
  // is observed is not timed.
  void Run(Batch& batch, Observer* observer = nullptr, StepTimes* times = nullptr);

  // Row `i` of the last step's logits, [vocab].
  std::span<const float> Logits(int64_t i) const;

  const Plan& plan() const { return plan_; }  // as it runs: fused where asked
  const BoundPlan& bound() const { return bound_; }
  const KvStorage& kv() const { return kv_; }
  KvStorage& kv() { return kv_; }
  // The threads of a step. Idle between two steps, and then free for other work; not during Run().
  ThreadPool& pool() { return *pool_; }
  // The most threads of a step of `n_tokens` tokens: fewer run beside processes that want the CPUs
  // too (base/thread_governor.h).
  int n_threads(int64_t n_tokens = 1) const {
    return n_tokens == 1 ? n_threads_ : n_threads_batch_;
  }
  // How many of the pool's threads are of use just now.
  int threads_now() const { return Governor(last_step_.n_tokens).threads(); }
  Numerics numerics() const { return options_.numerics; }
  // The best instruction set of the kernels; "reference" for that backend.
  std::string_view isa() const { return isa_; }
  // For the samplers, under the same ceiling.
  const RowKernels& row_kernels() const { return *row_kernels_; }
  const PackedWeights& packed() const { return packed_; }
  int64_t arena_bytes() const { return memory_.arena_bytes; }

 private:
  Runner() = default;
  Status Prepare(const Model& model, const RunnerOptions& options);
  void BindOps(const Model& model);
  std::span<const float> Read(Value v) const;
  template <typename Marks>
  void Walk(ThreadSlot slot, const StepView& step, Marks marks);
  void WalkObserved(ThreadSlot slot, const StepView& step, Observer& observer);
  const ThreadGovernor& Governor(int64_t n_tokens) const {
    return n_tokens == 1 ? token_threads_ : batch_threads_;
  }

  Plan plan_;
  MemoryPlan memory_;
  PackedWeights packed_;
  KvStorage kv_;
  Buffer arena_;
  std::vector<Buffer> scratch_;  // one per thread
  Buffer shared_scratch_;        // of all threads
  BoundPlan bound_;
  std::unique_ptr<ThreadPool> pool_;
  int n_threads_ = 1;
  int n_threads_batch_ = 1;
  ThreadGovernor token_threads_{1};  // of steps of one token
  ThreadGovernor batch_threads_{1};
  RunnerOptions options_;
  std::vector<const KernelTable*> tables_;
  std::string_view isa_;
  const RowKernels* row_kernels_ = nullptr;
  int64_t vocab_ = 0;
  StepView last_step_;
};

}  // namespace lucid
