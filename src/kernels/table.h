// KernelTable: the kernels of each instruction set, and which one runs an op.
//
// A kernel is found by operation and weight dtype. Tables stack: amx over avx512bf16 over
// avx512vnni over avx512 over avx2 over generic over reference, on aarch64 neondot over neon over
// generic; the first that has an entry wins, and the reference table has an entry for everything.
// LUCID_ISA forces a ceiling.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kernels/args.h"

namespace lucid {

enum class KernelOp : int8_t {
  kEmbed,
  kRmsNorm,
  kLayerNorm,
  kAddRmsNorm,
  kLinear,
  kLinearGroup,
  kGlu,
  kActivate,
  kGluLinear,
  kRope,
  kNormRope,
  kKvStore,
  kAttention,
  kAdd,
  kScale,
  kClamp,
  kSoftcap,
  kGatherRows,
  kRoute,
  kExpertGlu,
  kExpertLinear,
  kMixExperts,
  kConcat,
  kMlaAttention,
  kByPhase,
};
std::string_view Name(KernelOp op);

// `args` points to the op's args struct (kLinear: LinearArgs, ...).
using KernelFn = void (*)(const void* args, const StepView& step, const ThreadSlot& thread);
using PrepareFn = bool (*)(const void* args, const StepView& step, const ThreadSlot& thread);
using WarmFn = void (*)(const void* args, const StepView& step, const ThreadSlot& thread);
// Bytes of private scratch one thread needs for these args and at most `max_rows` rows.
using ScratchFn = size_t (*)(const void* args, int64_t max_rows);

struct Kernel {
  KernelOp op;
  const char* name;  // "linear.q4_k.avx512": shown by trace and explain
  KernelFn fn = nullptr;
  ScratchFn scratch = nullptr;  // nullptr: none
  // Says in a few words why these args cannot run here (a dtype, an odd dimension), or nullptr if
  // they can.
  const char* (*refuse)(const void* args) = nullptr;
  ScratchFn shared = nullptr;  // bytes that all threads share (ThreadSlot::shared); nullptr: none
  // What comes before `fn`, where another thread's work of it is needed: every thread calls it, and
  // if it returns true (for all or for none) all meet before `fn`.
  PrepareFn prepare = nullptr;
  // Asks for what the thread reads first, before it waits for the others at the end of the op
  // ahead; nullptr: nothing.
  WarmFn warm = nullptr;
};

struct KernelTable {
  std::string_view isa;  // "amx", "neondot", "generic", "reference": a name of the list above
  std::span<const Kernel> kernels;  // in order of preference
};

// The tables this CPU can run, best first, ending with "reference". `isa` forces the ceiling ("" or
// "auto": the best the CPU has); kInvalidArgument names the choices if it is unknown or the CPU
// lacks it.
Result<std::vector<const KernelTable*>> SelectTables(std::string_view isa);

// What became of one table of the build.
struct TableStatus {
  std::string_view isa;
  std::string_view needs;  // capabilities of the CPU as /proc/cpuinfo names them; "" for none
  std::string refused;     // why its kernels do not run; empty if they do
};
// Every table of the build, best first, under that ceiling; errors as SelectTables.
Result<std::vector<TableStatus>> TableStatuses(std::string_view isa);

struct KernelChoice {
  const Kernel* kernel = nullptr;
  std::string_view isa;
  std::string refused;  // "avx512: linear.q4_k wants n_in % 256 == 0; ..." or empty
};

// The first kernel of the stacked tables that takes these args. The reference table takes all, so
// it never fails.
KernelChoice ChooseKernel(std::span<const KernelTable* const> tables, KernelOp op,
                          const void* args);

const KernelTable& ReferenceKernels();

}  // namespace lucid
