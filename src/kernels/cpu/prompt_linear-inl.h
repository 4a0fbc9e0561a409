// Linear, LinearGroup and GluLinear by phase: rows of prompts go one way (tile_linear-inl.h,
// folded_linear-inl.h), rows of replies, and of logits, to the integer kernels of another table. A
// step may hold both; then each run of consecutive rows of one phase goes its way.
//
// What a method of prompts M has:
//   kUnit, kPanelStrips       strips that belong together; at most so many are a panel
//   M::Refuse(a)              why it does not take a matrix, or nullptr
//   M::RowBytes(n_in)         of a rounded row of activations: a multiple of 64
//   M::Round(a, run, thread)  this thread's part of rounding a run, to RoundedRows
//   M::ScratchBytes(rows), M::Up(thread, rows)   a thread's memory; in it [rows][kPanelStrips * 16]
//   m.Strips(a, step, thread, begin, end, to)    strips [begin, end) for all rows of prompts
// It must compute a row in one way only, however many rows and runs there are.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/args.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/packed.h"
#include "kernels/split.h"
#include "kernels/table.h"

namespace lucid::LUCID_ISA {
namespace {

// --- rows ---

// Consecutive rows of one phase.
struct RowRun {
  int64_t begin;
  int64_t rows;  // 0: the step is over
  bool prompt;
};
inline RowRun RunFrom(const StepView& step, int64_t begin) {
  RowRun run = {begin, 0, begin < step.n_tokens && step.phases[begin] == Phase::kPrompt};
  while (begin + run.rows < step.n_tokens &&
         (step.phases[begin + run.rows] == Phase::kPrompt) == run.prompt) {
    ++run.rows;
  }
  return run;
}
inline bool HasPrompts(const StepView& step, RowAxis axis) {
  if (axis == RowAxis::kOutputs || step.phases == nullptr) return false;
  const RowRun first = RunFrom(step, 0);
  return first.prompt || first.rows < step.n_tokens;
}
template <typename Body>
void ForPrompts(const StepView& step, Body&& body) {
  for (RowRun run = RunFrom(step, 0); run.rows > 0; run = RunFrom(step, run.begin + run.rows)) {
    if (run.prompt) body(run);
  }
}

// Rounded activations of a step, by row, in memory that the threads share.
struct RoundedPrompts {
  uint8_t* data;
  int64_t row_bytes;
  uint8_t* At(int64_t row) const { return data + row * row_bytes; }
};
template <typename M>
RoundedPrompts RoundedPromptsOf(const LinearArgs& a, const ThreadSlot& thread) {
  return {reinterpret_cast<uint8_t*>(thread.shared) + kSharedCounterBytes,
          M::RowBytes(a.w.shape[1])};
}

// Where results go: column n of row m is y[m * ldy + n].
struct PromptDestination {
  float* y;
  int64_t ldy;
};

// --- the ops ---

// What an op is here: its arguments, those of its rows from `begin` on, and its prompts.
template <typename M>
struct LinearByPhase {
  using Method = M;
  using Args = LinearArgs;
  static constexpr KernelOp kOp = KernelOp::kLinear;
  static const LinearArgs& First(const Args& a) { return a; }
  static Args From(Args a, int64_t begin) {
    a.x += begin * a.w.shape[1];
    if (a.y != nullptr) a.y += begin * a.w.shape[0];
    return a;
  }
  static const char* Refuse(const Args& a) {
    if (a.packed == nullptr) return "wants packed weights";
    return M::Refuse(a);
  }
  static int64_t Strips(const LinearArgs& a) {
    return (a.w.shape[0] + kStripRows - 1) / kStripRows;
  }
  static void Prompts(M& method, const Args& a, const StepView& step, const ThreadSlot& thread) {
    const Share share = ShareOf(Strips(a), M::kUnit, thread);
    method.Strips(a, step, thread, share.begin, share.end, {a.y, a.w.shape[0]});
  }
};

// The threads share the strips of all members laid end to end.
template <typename M>
struct GroupByPhase {
  using Method = M;
  using Args = LinearGroupArgs;
  using Member = LinearByPhase<M>;
  static constexpr KernelOp kOp = KernelOp::kLinearGroup;
  static const LinearArgs& First(const Args& a) { return a.linear[0]; }
  static Args From(Args a, int64_t begin) {
    for (int32_t i = 0; i < a.count; ++i) a.linear[i] = Member::From(a.linear[i], begin);
    return a;
  }
  static const char* Refuse(const Args& a) {
    for (int32_t i = 0; i < a.count; ++i) {
      if (const char* reason = Member::Refuse(a.linear[i])) return reason;
    }
    return nullptr;
  }
  static int64_t WholeUnits(const LinearArgs& a) {
    return (Member::Strips(a) + M::kUnit - 1) / M::kUnit * M::kUnit;
  }
  static void Prompts(M& method, const Args& a, const StepView& step, const ThreadSlot& thread) {
    int64_t total = 0;
    for (int32_t i = 0; i < a.count; ++i) total += WholeUnits(a.linear[i]);
    const Share share = ShareOf(total, M::kUnit, thread);
    int64_t first = 0;
    for (int32_t i = 0; i < a.count; ++i) {
      const LinearArgs& member = a.linear[i];
      const int64_t begin = share.begin > first ? share.begin - first : 0;
      method.Strips(member, step, thread, begin, Least(share.end - first, Member::Strips(member)),
                    {member.y, member.w.shape[0]});
      first += WholeUnits(member);
    }
  }
};

// Gate and up of a panel, then both combined while they are in cache.
template <typename M>
struct GluByPhase {
  using Method = M;
  using Args = GluLinearArgs;
  using Member = LinearByPhase<M>;
  static constexpr KernelOp kOp = KernelOp::kGluLinear;
  static const LinearArgs& First(const Args& a) { return a.gate; }
  static Args From(Args a, int64_t begin) {
    a.y += begin * a.gate.w.shape[0];
    a.gate = Member::From(a.gate, begin);
    a.up = Member::From(a.up, begin);
    return a;
  }
  static const char* Refuse(const Args& a) {
    const char* reason = Member::Refuse(a.gate);
    return reason != nullptr ? reason : Member::Refuse(a.up);
  }
  static void Prompts(M& method, const Args& a, const StepView& step, const ThreadSlot& thread) {
    constexpr int64_t kWidth = M::kPanelStrips * kStripRows;
    const int64_t n_out = a.gate.w.shape[0];
    float* const up = M::Up(thread, step.n_tokens);
    const Share share = ShareOf(Member::Strips(a.gate), M::kUnit, thread);
    for (int64_t s = share.begin; s < share.end; s += M::kPanelStrips) {
      const int64_t end = Least(s + M::kPanelStrips, share.end);
      const int64_t n = s * kStripRows;
      method.Strips(a.gate, step, thread, s, end, {a.y, n_out});
      method.Strips(a.up, step, thread, s, end, {up - n, kWidth});
      const int64_t count = Least(end * kStripRows, n_out) - n;
      ForPrompts(step, [&](const RowRun& run) {
        for (int64_t m = run.begin; m < run.begin + run.rows; ++m) {
          float* y = a.y + m * n_out + n;
          GluRange(a.act, y, up + m * kWidth, y, 0, count);
        }
      });
    }
  }
};

// The kernel of `table` that takes these packed weights.
inline const Kernel& KernelOfReplies(const KernelTable& table, KernelOp op, const void* args) {
  for (const Kernel& kernel : table.kernels) {
    if (kernel.op == op && kernel.refuse(args) == nullptr) return kernel;
  }
  __builtin_unreachable();  // Refuse has found one
}

// Calls body(args, step, thread) for every run of rows of replies, as if it were a step (of which
// kernels of linears read the number of tokens and their phases). Its part of the shared memory
// lies behind the rounded rows of prompts.
template <typename Op, typename Body>
void ForReplies(const Kernel& kernel, const typename Op::Args& a, const StepView& step,
                const ThreadSlot& thread, Body&& body) {
  const RoundedPrompts x = RoundedPromptsOf<typename Op::Method>(Op::First(a), thread);
  auto* shared = reinterpret_cast<std::byte*>(x.At(step.n_tokens));
  for (RowRun run = RunFrom(step, 0); run.rows > 0; run = RunFrom(step, run.begin + run.rows)) {
    if (run.prompt) continue;
    const typename Op::Args args = Op::From(a, run.begin);
    StepView part = step;
    part.n_tokens = static_cast<int32_t>(run.rows);
    part.phases += run.begin;
    body(args, part, ThreadSlot{thread.index, thread.count, thread.scratch, shared});
    shared += (kernel.shared(&args, run.rows) + 63) / 64 * 64;
  }
}

// `kReplies` is the table whose kernels run the rows of replies.
template <typename Op, const KernelTable& (*kReplies)()>
bool PrepareByPhase(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const typename Op::Args*>(args);
  const Kernel& replies = KernelOfReplies(kReplies(), Op::kOp, args);
  if (!HasPrompts(step, Op::First(a).rows)) {
    return replies.prepare != nullptr && replies.prepare(args, step, thread);
  }
  ForReplies<Op>(replies, a, step, thread,
                 [&](const auto& part, const StepView& rows, const ThreadSlot& own) {
                   if (own.index == 0) memset(own.shared, 0, kSharedCounterBytes);
                   if (replies.prepare != nullptr) replies.prepare(&part, rows, own);
                 });
  ForPrompts(step, [&](const RowRun& run) { Op::Method::Round(Op::First(a), run, thread); });
  return true;
}

template <typename Op, const KernelTable& (*kReplies)()>
void RunByPhase(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const typename Op::Args*>(args);
  const Kernel& replies = KernelOfReplies(kReplies(), Op::kOp, args);
  if (!HasPrompts(step, Op::First(a).rows)) return replies.fn(args, step, thread);
  ForReplies<Op>(replies, a, step, thread,
                 [&](const auto& part, const StepView& rows, const ThreadSlot& own) {
                   replies.fn(&part, rows, own);
                 });
  typename Op::Method method;
  Op::Prompts(method, a, step, thread);
}

template <typename Op, const KernelTable& (*kReplies)()>
void WarmByPhase(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const typename Op::Args*>(args);
  const Kernel& replies = KernelOfReplies(kReplies(), Op::kOp, args);
  if (replies.warm == nullptr || HasPrompts(step, Op::First(a).rows)) return;
  replies.warm(args, step, thread);
}

template <typename Op, const KernelTable& (*kReplies)()>
size_t ScratchByPhase(const void* args, int64_t max_rows) {
  const size_t own = Op::Method::ScratchBytes(max_rows < 1 ? 1 : max_rows);
  const size_t of_replies = KernelOfReplies(kReplies(), Op::kOp, args).scratch(args, max_rows);
  return own > of_replies ? own : of_replies;
}
// Enough for any mix of phases: in the worst, every second row is a run of a reply.
template <typename Op, const KernelTable& (*kReplies)()>
size_t SharedByPhase(const void* args, int64_t max_rows) {
  const auto rows = static_cast<size_t>(max_rows < 1 ? 1 : max_rows);
  const Kernel& replies = KernelOfReplies(kReplies(), Op::kOp, args);
  const LinearArgs& first = Op::First(*static_cast<const typename Op::Args*>(args));
  const auto one_row = static_cast<size_t>(Op::Method::RowBytes(first.w.shape[1]));
  const size_t run_of_one = (replies.shared(args, 1) + 63) / 64 * 64;
  return kSharedCounterBytes + rows * (one_row + run_of_one);
}
template <typename Op, const KernelTable& (*kReplies)()>
const char* RefuseByPhase(const void* args) {
  const auto& a = *static_cast<const typename Op::Args*>(args);
  if (const char* reason = Op::Refuse(a)) return reason;
  const char* reason = "wants kernels for rows of replies";
  for (const Kernel& kernel : kReplies().kernels) {
    if (kernel.op != Op::kOp) continue;
    reason = kernel.refuse(args);
    if (reason == nullptr) break;
  }
  return reason;
}

}  // namespace
}  // namespace lucid::LUCID_ISA

// Rows of a Kernel array; `name` and `isa` are string literals.
#define LUCID_BY_PHASE(name, isa, Op, replies)                                               \
  {                                                                                          \
    Op::kOp, name "." isa, RunByPhase<Op, replies>, ScratchByPhase<Op, replies>,             \
        RefuseByPhase<Op, replies>, SharedByPhase<Op, replies>, PrepareByPhase<Op, replies>, \
        WarmByPhase<Op, replies>                                                             \
  }
#define LUCID_LINEARS_BY_PHASE(name, isa, M, replies)                      \
  LUCID_BY_PHASE(name "_linear", isa, LinearByPhase<M>, replies),          \
      LUCID_BY_PHASE(name "_linear_group", isa, GroupByPhase<M>, replies), \
      LUCID_BY_PHASE(name "_glu_linear", isa, GluByPhase<M>, replies)
