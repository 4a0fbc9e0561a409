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

// Of steps that nobody times.
struct NoMarks {
  void Begin() const {}
  void Prepared(size_t) const {}
  void Met(size_t) const {}
  void NotMet(size_t) const {}
  void Done(size_t) const {}
  void Released(size_t) const {}
};

}  // namespace

std::string_view Name(Numerics numerics) {
  constexpr std::string_view kNames[] = {"default", "fast", "float"};
  return kNames[static_cast<size_t>(numerics)];
}

// All that needs no memory of the size of the model: kernels, the plan as it runs, numbers of
// threads.
Status Runner::Prepare(const Model& model, const RunnerOptions& options) {
  options_ = options;
  plan_ = model.plan;
  tables_ = {&ReferenceKernels()};
  if (options.backend == BackendKind::kCpu) {
    LUCID_ASSIGN_OR_RETURN(tables_, SelectTables(options.isa));
    if (options.fuse) {
      plan_ = FusedPlan(model);
      LUCID_RETURN_IF_ERROR(VerifyPlan(plan_));
    }
  }
  isa_ = tables_.front()->isa;
  row_kernels_ = &RowKernelsOf(tables_);
  Sizes sizes;
  sizes.tokens = options.max_tokens;
  sizes.outputs = options.max_outputs;
  memory_ = PlanMemory(plan_, sizes);
  LUCID_ASSIGN_OR_RETURN(arena_, Buffer::Allocate(static_cast<size_t>(memory_.arena_bytes)));
  n_threads_ = options.n_threads > 0 ? options.n_threads : PhysicalCoreCount();
  n_threads_batch_ = options.n_threads_batch > 0 ? options.n_threads_batch : n_threads_;
  token_threads_ = ThreadGovernor(n_threads_);
  batch_threads_ = ThreadGovernor(n_threads_batch_);
  vocab_ = plan_.Info(plan_.logits).shape.Width();
  return {};
}

void Runner::BindOps(const Model& model) {
  bound_ = Bind({.plan = plan_,
                 .weights = model.weights,
                 .packed = packed_,
                 .error_budget = ErrorBudget(options_.numerics),
                 .exact = options_.numerics == Numerics::kFloat,
                 .kv = kv_,
                 .memory = memory_,
                 .arena = arena_.data(),
                 .max_rows = std::max(options_.max_tokens, options_.max_outputs),
                 .tables = tables_});
}

Result<std::unique_ptr<Runner>> Runner::Create(const Model& model, const RunnerOptions& options) {
  std::unique_ptr<Runner> runner(new Runner);
  LUCID_RETURN_IF_ERROR(runner->Prepare(model, options));
  LUCID_ASSIGN_OR_RETURN(const KvLayout layout,
                         KvLayout::Make(runner->plan_.kv_layers, options.kv));
  LUCID_ASSIGN_OR_RETURN(runner->kv_, KvStorage::Create(layout, options.kv_blocks));
  runner->pool_ =
      std::make_unique<ThreadPool>(std::max(runner->n_threads_, runner->n_threads_batch_));
  if (options.backend == BackendKind::kCpu) {
    LUCID_ASSIGN_OR_RETURN(
        runner->packed_,
        options.numerics == Numerics::kFloat
            ? PackedWeights::Pack(runner->plan_, model, *runner->pool_, /*with_quantised=*/false)
            : PackedWeights::Load(runner->plan_, model, *runner->pool_, options.pack_files));
  }
  runner->BindOps(model);
  for (int i = 0; i < runner->pool_->size(); ++i) {
    LUCID_ASSIGN_OR_RETURN(Buffer scratch, Buffer::Allocate(runner->bound_.scratch_bytes));
    runner->scratch_.push_back(std::move(scratch));
  }
  LUCID_ASSIGN_OR_RETURN(runner->shared_scratch_, Buffer::Allocate(runner->bound_.shared_bytes));
  return runner;
}

Result<RunnerBytes> Runner::Foresee(const Model& model, const RunnerOptions& options) {
  Runner runner;
  LUCID_RETURN_IF_ERROR(runner.Prepare(model, options));
  LUCID_ASSIGN_OR_RETURN(const KvLayout layout, KvLayout::Make(runner.plan_.kv_layers, options.kv));
  LUCID_ASSIGN_OR_RETURN(runner.kv_, KvStorage::Create(layout, /*n_blocks=*/{}));
  if (options.backend == BackendKind::kCpu) {
    runner.packed_ =
        PackedWeights::Outline(runner.plan_, model,
                               /*with_quantised=*/options.numerics != Numerics::kFloat);
  }
  runner.BindOps(model);
  const size_t threads = static_cast<size_t>(std::max(runner.n_threads_, runner.n_threads_batch_));
  const size_t scratch = threads * runner.bound_.scratch_bytes + runner.bound_.shared_bytes;
  return RunnerBytes{.packed = static_cast<int64_t>(runner.packed_.bytes()),
                     .arena = runner.memory_.arena_bytes,
                     .kv = KvStorage::BytesOf(layout, options.kv_blocks),
                     .scratch = static_cast<int64_t>(scratch)};
}

RunnerBytes Runner::bytes() const {
  RunnerBytes bytes{.packed = static_cast<int64_t>(packed_.bytes()),
                    .arena = static_cast<int64_t>(arena_.size()),
                    .kv = kv_.bytes(),
                    .scratch = static_cast<int64_t>(shared_scratch_.size())};
  for (const Buffer& buffer : scratch_) bytes.scratch += static_cast<int64_t>(buffer.size());
  return bytes;
}

void Runner::Run(Batch& batch, Observer* observer, StepTimes* times) {
  LUCID_CHECK(batch.n_tokens() > 0 && batch.n_tokens() <= options_.max_tokens,
              "{} tokens in a step of {}", batch.n_tokens(), options_.max_tokens);
  LUCID_CHECK(batch.n_outputs() <= options_.max_outputs, "{} outputs in a step of {}",
              batch.n_outputs(), options_.max_outputs);
  LUCID_CHECK(batch.n_groups() == static_cast<int32_t>(kv_.layout().groups().size()),
              "block tables of {} groups for a cache of {}", batch.n_groups(),
              kv_.layout().groups().size());
  LUCID_CHECK(observer == nullptr || times == nullptr, "a step is observed or timed");
  last_step_ = batch.View();
  ThreadGovernor& governor = last_step_.n_tokens == 1 ? token_threads_ : batch_threads_;
  const int count = governor.threads();
  // The reference keeps what it needs within std::function's own memory.
  const auto walk = [&](int thread) {
    const ThreadSlot slot{thread, count, scratch_[static_cast<size_t>(thread)].data(),
                          shared_scratch_.data()};
    if (observer != nullptr) {
      WalkObserved(slot, last_step_, *observer);
    } else if (times != nullptr) {
      Walk(slot, last_step_, times->Of(thread));
    } else {
      Walk(slot, last_step_, NoMarks());
    }
  };
  if (times != nullptr) times->BeginStep(count, bound_.ops.size(), last_step_);
  const PoolUsage usage = pool_->Run(count, std::ref(walk));
  if (times != nullptr) times->EndStep(usage);
  governor.Note(usage, Clock::now());
}

template <typename Marks>
void Runner::Walk(ThreadSlot slot, const StepView& step, Marks marks) {
  marks.Begin();
  for (size_t i = 0; i < bound_.ops.size(); ++i) {
    const BoundOp& op = bound_.ops[i];
    const WarmFn warm_next = i + 1 < bound_.ops.size() ? bound_.ops[i + 1].warm : nullptr;
    if (op.prepare != nullptr && op.prepare(op.args, step, slot)) {
      marks.Prepared(i);
      pool_->Barrier();
      marks.Met(i);
    } else {
      marks.NotMet(i);
    }
    op.fn(op.args, step, slot);
    if (warm_next != nullptr) warm_next(bound_.ops[i + 1].args, step, slot);
    marks.Done(i);
    pool_->Barrier();
    marks.Released(i);
  }
}

void Runner::WalkObserved(ThreadSlot slot, const StepView& step, Observer& observer) {
  for (size_t i = 0; i < bound_.ops.size(); ++i) {
    const BoundOp& op = bound_.ops[i];
    const Clock::time_point start = Clock::now();
    if (op.prepare != nullptr && op.prepare(op.args, step, slot)) pool_->Barrier();
    op.fn(op.args, step, slot);
    pool_->Barrier();
    if (slot.index == 0) {
      const auto elapsed =
          std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start);
      observer.AfterOp({.plan = plan_,
                        .op = plan_.ops[i],
                        .kernel = op.kernel->name,
                        .step = step,
                        .args = op.args,
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
