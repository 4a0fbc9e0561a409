// Machine: what this machine can do at most, measured, as plain numbers. measure.h makes one,
// limit.h derives from it how fast a model could run; machine.json in Lucid's folder keeps it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lucid {

// Reading memory from front to back, each thread a part of its own, again and again.
struct ReadSpeed {
  int64_t bytes = 0;  // of the buffer
  int threads = 0;
  bool huge_pages = false;      // asked for; the system may not have given them
  double bytes_per_second = 0;  // the median pass of the fastest loop
  double fastest = 0;           // its fastest pass: some machines allow more than they can keep up
  std::string how;              // that loop: "avx512, prefetch 4 KB ahead"
};

// Multiply-adds of operands in registers, all threads together.
struct ComputePeak {
  std::string numbers;   // "float32", "bfloat16", "int8": of the factors
  std::string isa = {};  // "avx512vnni"
  int threads = 0;
  double macs_per_second = 0;
};

// What the kernels reach with weights of one type (kernel_speed.h).
struct KernelSpeed {
  std::string weights;   // "Q4_K"
  std::string numerics;  // "default"
  int threads = 0;
  std::string isa = {};                        // the best that their step had
  std::string build = {};                      // KernelBuild() of what was measured
  double stream_bytes_per_second = 0;          // products of one row: weights of the file
  double cached_bytes_per_second = 0;          // the same where no memory is in the way
  double macs_per_second = 0;                  // products of many rows
  double attention_macs_per_second = 0;        // of a prompt
  double token_attention_macs_per_second = 0;  // of a generated token, with its cache in caches
  double activation_bytes_per_second = 0;      // ops that are no products, with many rows
  double op_seconds = 0;                       // that any op takes at least
};

struct ThreadCost {
  int threads = 0;
  double value = 0;
};

struct Refusal {
  std::string isa;
  std::string reason;  // "the CPU lacks amx_tile"
};

struct Machine {
  std::string cpu;           // model name
  int cpus = 0;              // hardware threads that this process may use
  int cores = 0;             // and physical cores, as far as the system says
  int64_t l3_bytes = 0;      // of one level-3 cache; 0: unknown
  int64_t memory_bytes = 0;  // available when it was measured
  std::string huge_pages;    // the system's setting: "always", "madvise", "never", or ""
  std::string measured_at;   // UTC, 2026-01-31T12:00:00Z
  double seconds = 0;        // that measuring took
  double steal = 0;          // fraction of all CPU time meanwhile that a hypervisor took
  double other_load = 0;     // and that other processes had
  std::vector<std::string> notes;

  std::vector<ReadSpeed> reads;
  std::vector<ComputePeak> peaks;
  std::vector<KernelSpeed> kernels;  // as far as they have been asked for
  std::vector<ThreadCost> clocks;    // hertz, of each of so many threads that compute
  std::vector<ThreadCost> barriers;  // seconds of a ThreadPool::Barrier
  std::vector<Refusal> refused;      // instruction sets whose peaks could not be measured
};

nlohmann::ordered_json ToJson(const Machine& machine);
// kInvalidFile names what is missing or of the wrong type; `what` begins the sentence.
Result<Machine> MachineFromJson(std::string_view text, std::string_view what);

// "$LUCID_HOME/machine.json".
std::string MachinePath();
// kNotFound if there is none.
Result<Machine> LoadMachine(const std::string& path);
Status SaveMachine(const Machine& machine, const std::string& path);

// The model name that the system gives, or "unknown".
std::string CpuModelName();
// Whether it was measured on a machine like this one: same CPU model, as many CPUs and cores that
// this process may use.
bool IsThisMachine(const Machine& machine);

// The fraction of all CPU time that a hypervisor and other processes took while it was measured.
// Above kMostDisturbance its figures say little about the machine.
double Disturbance(const Machine& machine);
inline constexpr double kMostDisturbance = 0.05;

// "1 thread", "2 threads".
std::string ThreadsText(int threads);

// The fastest reading with so many threads from a buffer that caches treat like one of `bytes`
// bytes: of about that size, or, like it, at least eight times the level-3 cache. nullptr if there
// is none.
const ReadSpeed* FindRead(const Machine& machine, int64_t bytes, int threads);

// What two threads do over what one does, the least of all kinds of peaks; 0 if not measured. Two
// that share a core stay below kSharedCoreRatio.
double TwoThreadsOverOne(const Machine& machine);
inline constexpr double kSharedCoreRatio = 1.3;

}  // namespace lucid
