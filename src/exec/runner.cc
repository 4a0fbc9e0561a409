#include "exec/runner.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "base/check.h"
#include "kernels/packed.h"
#include "plan/pass.h"

namespace lucid {

namespace {

float ErrorBudget(Numerics numerics) {
  return numerics == Numerics::kFast ? kAnyError : kDefaultErrorBudget;
}

}  // namespace

std::string_view Name(Numerics numerics) {
  constexpr std::string_view kNames[] = {"default", "fast", "float"};
  return kNames[static_cast<size_t>(numerics)];
}

Result<std::unique_ptr<Runner>> Runner::Create(const Model& model, const RunnerOptions& options) {
  std::unique_ptr<Runner> runner(new Runner);
  runner->options_ = options;
  runner->plan_ = model.plan;
  std::vector<const KernelTable*> tables = {&ReferenceKernels()};
  if (options.backend == BackendKind::kCpu) {
    LUCID_ASSIGN_OR_RETURN(tables, SelectTables(options.isa));
    if (options.fuse) {
      runner->plan_ = FusedPlan(model);
      LUCID_RETURN_IF_ERROR(VerifyPlan(runner->plan_));
    }
  }
  runner->isa_ = tables.front()->isa;
  runner->row_kernels_ = &RowKernelsOf(tables);
  Sizes sizes;
  sizes.tokens = options.max_tokens;
  sizes.outputs = options.max_outputs;
  runner->memory_ = PlanMemory(runner->plan_, sizes);
  LUCID_ASSIGN_OR_RETURN(const KvLayout layout,
                         KvLayout::Make(runner->plan_.kv_layers, options.kv));
  LUCID_ASSIGN_OR_RETURN(runner->kv_, KvStorage::Create(layout, options.kv_blocks));
  LUCID_ASSIGN_OR_RETURN(runner->arena_,
                         Buffer::Allocate(static_cast<size_t>(runner->memory_.arena_bytes)));
  runner->n_threads_ = options.n_threads > 0 ? options.n_threads : PhysicalCoreCount();
  runner->n_threads_batch_ =
      options.n_threads_batch > 0 ? options.n_threads_batch : runner->n_threads_;
  runner->token_threads_ = ThreadGovernor(runner->n_threads_);
  runner->batch_threads_ = ThreadGovernor(runner->n_threads_batch_);
  runner->pool_ =
      std::make_unique<ThreadPool>(std::max(runner->n_threads_, runner->n_threads_batch_));
  const bool exact = options.numerics == Numerics::kFloat;
  if (options.backend == BackendKind::kCpu) {
    LUCID_ASSIGN_OR_RETURN(
        runner->packed_,
        exact ? PackedWeights::Pack(runner->plan_, model, *runner->pool_, /*with_quantised=*/false)
              : PackedWeights::Load(runner->plan_, model, *runner->pool_, options.pack_files));
  }
  runner->bound_ = Bind({.plan = runner->plan_,
                         .weights = model.weights,
                         .packed = runner->packed_,
                         .error_budget = ErrorBudget(options.numerics),
                         .exact = exact,
                         .kv = runner->kv_,
                         .memory = runner->memory_,
                         .arena = runner->arena_.data(),
                         .max_rows = std::max(options.max_tokens, options.max_outputs),
                         .tables = tables});
  for (int i = 0; i < runner->pool_->size(); ++i) {
    LUCID_ASSIGN_OR_RETURN(Buffer scratch, Buffer::Allocate(runner->bound_.scratch_bytes));
    runner->scratch_.push_back(std::move(scratch));
  }
  LUCID_ASSIGN_OR_RETURN(runner->shared_scratch_, Buffer::Allocate(runner->bound_.shared_bytes));
  runner->vocab_ = runner->plan_.Info(runner->plan_.logits).shape.Width();
  return runner;
}

void Runner::Run(Batch& batch, Observer* observer) {
  LUCID_CHECK(batch.n_tokens() > 0 && batch.n_tokens() <= options_.max_tokens,
              "{} tokens in a step of {}", batch.n_tokens(), options_.max_tokens);
  LUCID_CHECK(batch.n_outputs() <= options_.max_outputs, "{} outputs in a step of {}",
              batch.n_outputs(), options_.max_outputs);
  LUCID_CHECK(batch.n_groups() == static_cast<int32_t>(kv_.layout().groups().size()),
              "block tables of {} groups for a cache of {}", batch.n_groups(),
              kv_.layout().groups().size());
  last_step_ = batch.View();
  ThreadGovernor& governor = last_step_.n_tokens == 1 ? token_threads_ : batch_threads_;
  const int count = governor.threads();
  // The reference keeps what it needs within std::function's own memory.
  const auto walk = [&](int thread) {
    Walk({thread, count, scratch_[static_cast<size_t>(thread)].data(), shared_scratch_.data()},
         last_step_, observer);
  };
  const PoolUsage usage = pool_->Run(count, std::ref(walk));
  governor.Note(usage, Clock::now());
}

void Runner::Walk(ThreadSlot slot, const StepView& step, Observer* observer) {
  for (size_t i = 0; i < bound_.ops.size(); ++i) {
    const BoundOp& op = bound_.ops[i];
    if (observer == nullptr) {
      const WarmFn warm_next = i + 1 < bound_.ops.size() ? bound_.ops[i + 1].warm : nullptr;
      if (op.prepare != nullptr && op.prepare(op.args, step, slot)) pool_->Barrier();
      op.fn(op.args, step, slot);
      if (warm_next != nullptr) warm_next(bound_.ops[i + 1].args, step, slot);
      pool_->Barrier();
      continue;
    }
    const Clock::time_point start = Clock::now();
    if (op.prepare != nullptr && op.prepare(op.args, step, slot)) pool_->Barrier();
    op.fn(op.args, step, slot);
    pool_->Barrier();
    if (slot.index == 0) {
      const auto elapsed =
          std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start);
      observer->AfterOp({.plan = plan_,
                         .op = plan_.ops[i],
                         .kernel = op.kernel->name,
                         .step = step,
                         .nanoseconds = elapsed.count(),
                         .read = [](const void* self,
                                    Value v) { return static_cast<const Runner*>(self)->Read(v); },
                         .runner = this});
    }
    pool_->Barrier();
  }
}

std::span<const float> Runner::Read(Value v) const {
  const ValueInfo& info = plan_.Info(v);
  LUCID_CHECK(info.kind == ValueKind::kActivation, "{} is no activation", info.name);
  Sizes sizes;
  sizes.tokens = last_step_.n_tokens;
  sizes.outputs = last_step_.n_outputs;
  const std::byte* data = arena_.data() + memory_.offsets[static_cast<size_t>(v.id)];
  return {reinterpret_cast<const float*>(data), static_cast<size_t>(info.shape.Elements(sizes))};
}

std::span<const float> Runner::Logits(int64_t i) const {
  LUCID_CHECK(i >= 0 && i < last_step_.n_outputs, "row {} of {} outputs", i, last_step_.n_outputs);
  return Read(plan_.logits).subspan(static_cast<size_t>(i * vocab_), static_cast<size_t>(vocab_));
}

}  // namespace lucid
