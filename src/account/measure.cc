#include "account/measure.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <ctime>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "account/cpu_time.h"
#include "base/buffer.h"
#include "base/check.h"
#include "base/huge_pages.h"
#include "base/memory_info.h"
#include "base/rng.h"
#include "base/thread_pool.h"
#include "base/timer.h"
#include "base/topology.h"
#include "kernels/probe.h"

namespace lucid {
namespace {

constexpr int64_t kPage = 4096;
constexpr int kReadPasses = 7;
constexpr int kLargePasses = 3;
// A pass over a small buffer is repeated until the clock and the barriers do not matter.
constexpr double kLeastPassSeconds = 2e-3;
constexpr double kLeastClockSeconds = 1e-7;
// Short passes, many of them: where something else takes a CPU now and then, some stay whole.
constexpr double kPeakPassSeconds = 2e-3;
constexpr int kPeakPasses = 25;

// What a timed pass left, so that no compiler drops it.
std::atomic<uint64_t> g_sink = 0;
void Keep(uint64_t result) {
  g_sink.store(result, std::memory_order_relaxed);
}

// Seconds of `passes` passes of work(thread) on all threads of the pool, sorted. A pass goes from
// the moment in which the first thread begins to that in which the last one ends: a thread that had
// no CPU when the barrier opened must not make the others look fast.
template <typename Work>
std::vector<double> TimePasses(ThreadPool& pool, int passes, const Work& work) {
  struct Span {
    Clock::time_point start, end;
  };
  const auto n_threads = static_cast<size_t>(pool.size());
  std::vector<Span> spans(static_cast<size_t>(passes) * n_threads);
  pool.Run([&](int thread) {
    for (int pass = 0; pass < passes; ++pass) {
      Span& span = spans[static_cast<size_t>(pass) * n_threads + static_cast<size_t>(thread)];
      pool.Barrier();
      span.start = Clock::now();
      work(thread);
      span.end = Clock::now();
    }
  });
  std::vector<double> seconds;
  for (auto at = spans.begin(); at != spans.end(); at += pool.size()) {
    Span whole = *at;
    for (auto span = at; span != at + pool.size(); ++span) {
      whole.start = std::min(whole.start, span->start);
      whole.end = std::max(whole.end, span->end);
    }
    seconds.push_back(std::chrono::duration<double>(whole.end - whole.start).count());
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds;
}

// Takes the pages of [begin, end): in one call, where the system has it.
void Touch(std::byte* begin, std::byte* end) {
#ifdef MADV_POPULATE_WRITE  // Linux 5.14
  if (madvise(begin, static_cast<size_t>(end - begin), MADV_POPULATE_WRITE) == 0) return;
#endif
  for (std::byte* at = begin; at < end; at += kPage) {
    *static_cast<volatile std::byte*>(at) = std::byte{1};
  }
}

// Memory of which every page has been taken, by the thread that will read it. `bytes`: whole pages.
Result<Buffer> TakeMemory(int64_t bytes, bool huge_pages, ThreadPool& pool) {
  LUCID_ASSIGN_OR_RETURN(Buffer buffer, Buffer::Allocate(static_cast<size_t>(bytes)));
  // Advice alone: a system without huge pages gives small ones, and the figures show it.
  madvise(buffer.data(), buffer.size(), huge_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  const int64_t pages = bytes / kPage;
  pool.Run([&](int thread) {
    Touch(buffer.data() + pages * thread / pool.size() * kPage,
          buffer.data() + pages * (thread + 1) / pool.size() * kPage);
  });
  return buffer;
}

// What there is time for.
class Budget {
 public:
  explicit Budget(double seconds) : seconds_(seconds) {}

  bool spent() const { return SecondsSince(start_) >= seconds_; }
  // Whether that figure may still be begun; if not, its name is kept for the note.
  bool Allows(std::string figure) {
    if (!spent()) return true;
    left_out_.push_back(std::move(figure));
    return false;
  }
  const std::vector<std::string>& left_out() const { return left_out_; }

 private:
  const Clock::time_point start_ = Clock::now();
  const double seconds_;
  std::vector<std::string> left_out_;
};
constexpr double kEndless = std::numeric_limits<double>::infinity();

struct ReadLoop {
  const ProbeTable* table = nullptr;
  const Probe* probe = nullptr;
  std::string Name() const {
    return std::string(table->isa) + (probe->how.empty() ? "" : ", " + std::string(probe->how));
  }
};

// The reading loops of the widest instruction set.
std::vector<ReadLoop> ReadLoops() {
  std::vector<ReadLoop> loops;
  for (const ProbeStatus& status : ProbeStatuses()) {
    if (!status.refused.empty()) continue;
    std::vector<ReadLoop> here;
    for (const Probe& probe : status.table->probes) {
      if (probe.kind == ProbeKind::kRead) here.push_back({status.table, &probe});
    }
    if (!here.empty()) loops = std::move(here);
  }
  return loops;
}

// Bytes per second of `passes` passes, ascending. A thread's part is a multiple of the loop's.
std::vector<double> ReadSpeeds(const ReadLoop& loop, const Buffer& buffer, ThreadPool& pool,
                               int passes) {
  const int64_t work = loop.probe->work;
  const int64_t iterations = static_cast<int64_t>(buffer.size()) / pool.size() / work;
  int64_t repeats = 1;
  const auto pass = [&](int thread) {
    for (int64_t i = 0; i < repeats; ++i) {
      Keep(loop.probe->fn(buffer.data() + iterations * work * thread, iterations));
    }
  };
  const double warm = std::max(TimePasses(pool, 1, pass)[0], kLeastClockSeconds);
  repeats = std::max<int64_t>(1, static_cast<int64_t>(kLeastPassSeconds / warm));
  std::vector<double> speeds;
  for (const double seconds : TimePasses(pool, passes, pass)) {
    speeds.push_back(static_cast<double>(repeats * iterations * work * pool.size()) / seconds);
  }
  std::reverse(speeds.begin(), speeds.end());
  return speeds;
}

// The fastest of the loops, or of those that there is time for. The order in which they came out is
// left in `loops`, fastest first.
ReadSpeed FastestRead(std::vector<ReadLoop>& loops, const Buffer& buffer, ThreadPool& pool,
                      bool huge_pages, int passes, const Budget& budget) {
  std::vector<std::pair<ReadSpeed, ReadLoop>> results;
  for (const ReadLoop& loop : loops) {
    if (!results.empty() && budget.spent()) break;
    const std::vector<double> speeds = ReadSpeeds(loop, buffer, pool, passes);
    results.push_back({ReadSpeed{.bytes = static_cast<int64_t>(buffer.size()),
                                 .threads = pool.size(),
                                 .huge_pages = huge_pages,
                                 .bytes_per_second = speeds[speeds.size() / 2],
                                 .fastest = speeds.back(),
                                 .how = loop.Name()},
                       loop});
  }
  std::stable_sort(results.begin(), results.end(), [](const auto& a, const auto& b) {
    return a.first.bytes_per_second > b.first.bytes_per_second;
  });
  loops.clear();
  for (const auto& [speed, loop] : results) loops.push_back(loop);
  return results.front().first;
}

// Operands for the multiplying probes: numbers between -1 and 1, or any bytes.
std::vector<Buffer> MakeOperands() {
  std::vector<Buffer> operands;
  for (const ProbeKind kind : {ProbeKind::kFloat, ProbeKind::kBfloat, ProbeKind::kInteger}) {
    Buffer buffer = Buffer::Allocate(kProbeOperandBytes).value();
    auto* floats = reinterpret_cast<float*>(buffer.data());
    auto* halves = reinterpret_cast<uint16_t*>(buffer.data());
    auto* bytes = reinterpret_cast<uint8_t*>(buffer.data());
    for (uint64_t i = 0; i < kProbeOperandBytes; ++i) {
      const double draw = UniformDraw(1, i, 0, static_cast<uint32_t>(kind));
      const auto value = static_cast<float>(2 * draw - 1);
      uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof(bits));
      if (kind == ProbeKind::kFloat && i < kProbeOperandBytes / 4) floats[i] = value;
      if (kind == ProbeKind::kBfloat && i < kProbeOperandBytes / 2) {
        halves[i] = static_cast<uint16_t>(bits >> 16);
      }
      if (kind == ProbeKind::kInteger) bytes[i] = static_cast<uint8_t>(draw * 256);
    }
    operands.push_back(std::move(buffer));
  }
  return operands;
}

// Work per second of a probe on all threads, at its fastest.
double ProbeRate(const Probe& probe, const void* operands, ThreadPool& pool) {
  int64_t iterations = 64;
  const auto pass = [&](int) { Keep(probe.fn(operands, iterations)); };
  while (TimePasses(pool, 3, pass).front() < kPeakPassSeconds) iterations *= 2;
  const double seconds = TimePasses(pool, kPeakPasses, pass).front();
  return static_cast<double>(iterations * probe.work * pool.size()) / seconds;
}

std::vector<ComputePeak> PeaksOn(ThreadPool& pool, Budget& budget) {
  const std::vector<Buffer> operands = MakeOperands();
  std::vector<ComputePeak> peaks;
  for (const ProbeStatus& status : ProbeStatuses()) {
    if (!status.refused.empty()) continue;
    for (const Probe& probe : status.table->probes) {
      if (probe.kind == ProbeKind::kRead || probe.kind == ProbeKind::kClock) continue;
      if (!budget.Allows(fmt::format("{} {} with {}", Name(probe.kind), status.table->isa,
                                     ThreadsText(pool.size())))) {
        continue;
      }
      const auto operand =
          static_cast<size_t>(static_cast<int>(probe.kind) - static_cast<int>(ProbeKind::kFloat));
      peaks.push_back({.numbers = std::string(Name(probe.kind)),
                       .isa = std::string(status.table->isa),
                       .threads = pool.size(),
                       .macs_per_second = ProbeRate(probe, operands[operand].data(), pool)});
    }
  }
  return peaks;
}

double ClockHertz(ThreadPool& pool) {
  for (const ProbeStatus& status : ProbeStatuses()) {
    for (const Probe& probe : status.table->probes) {
      if (probe.kind == ProbeKind::kClock && status.refused.empty()) {
        return ProbeRate(probe, nullptr, pool) / pool.size();
      }
    }
  }
  LUCID_CHECK(false, "the base instruction set has no clock probe");
  return 0;
}

double BarrierSeconds(ThreadPool& pool) {
  constexpr int kBarriers = 200;
  const std::vector<double> seconds = TimePasses(pool, 20, [&pool](int) {
    for (int i = 0; i < kBarriers; ++i) pool.Barrier();
  });
  return seconds.front() / kBarriers;
}

// 1, 2 (which shows whether two CPUs share a core), powers of 4 and all cores.
std::vector<int> DefaultThreads() {
  const int cores = PhysicalCoreCount();
  std::vector<int> threads = {1};
  if (AllowedCpuCount() >= 2) threads.push_back(2);
  for (int n = 8; n < cores; n *= 4) threads.push_back(n);
  if (cores > 2) threads.push_back(cores);
  return threads;
}

// The size of a level-3 cache, or 0. Source: Linux
// Documentation/ABI/testing/sysfs-devices-system-cpu.
int64_t L3Bytes() {
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index3/size");
  int64_t number = 0;
  char unit = 0;
  if (!(file >> number)) return 0;
  file >> unit;
  return unit == 'M' ? number << 20 : unit == 'K' ? number << 10 : number;
}

// Reads of the model-sized and of the large buffer with each of the pools. The loops that did best
// on the first are tried on the second, which takes ten times as long.
Status MeasureReads(std::vector<std::unique_ptr<ThreadPool>>& pools, int64_t model_bytes,
                    int64_t large_bytes, std::vector<ReadSpeed>& reads, Budget& budget) {
  constexpr size_t kTriedOnLarge = 2;
  for (const bool huge_pages : {true, false}) {
    const auto allowed = [&](int64_t bytes, const ThreadPool& pool) {
      return budget.Allows(fmt::format("reading {} bytes in {} pages with {}", bytes,
                                       huge_pages ? "huge" : "4 KB", ThreadsText(pool.size())));
    };
    Buffer model, large;  // taken with the first reading of them that there is time for
    for (const std::unique_ptr<ThreadPool>& pool : pools) {
      std::vector<ReadLoop> loops = ReadLoops();
      if (allowed(model_bytes, *pool)) {
        if (model.size() == 0) {
          LUCID_ASSIGN_OR_RETURN(model, TakeMemory(model_bytes, huge_pages, *pools.back()));
        }
        reads.push_back(FastestRead(loops, model, *pool, huge_pages, kReadPasses, budget));
      }
      if (large_bytes <= model_bytes || !allowed(large_bytes, *pool)) continue;
      if (large.size() == 0) {
        LUCID_ASSIGN_OR_RETURN(large, TakeMemory(large_bytes, huge_pages, *pools.back()));
      }
      loops.resize(std::min(loops.size(), kTriedOnLarge));
      reads.push_back(FastestRead(loops, large, *pool, huge_pages, kLargePasses, budget));
    }
  }
  return {};
}

int64_t AffordableWithNote(int64_t bytes, int threads, const char* what,
                           std::vector<std::string>& notes) {
  const int64_t affordable = BufferBytes(bytes, threads, AvailableMemory());
  if (affordable < bytes / kPage * kPage) {
    notes.push_back(fmt::format("memory is short: the {} buffer has {} bytes instead of {}", what,
                                affordable, bytes));
  }
  return affordable;
}

}  // namespace

int64_t BufferBytes(int64_t wanted, int threads, int64_t available) {
  if (available > 0) wanted = std::min(wanted, available / 2);
  return std::max(kPage * threads, wanted / kPage * kPage);
}

Result<ReadSpeed> MeasureRead(int64_t bytes, int threads, bool huge_pages) {
  ThreadPool pool(threads);
  std::vector<ReadLoop> loops = ReadLoops();
  bytes = BufferBytes(bytes, threads, AvailableMemory());
  LUCID_ASSIGN_OR_RETURN(const Buffer buffer, TakeMemory(bytes, huge_pages, pool));
  return FastestRead(loops, buffer, pool, huge_pages,
                     bytes > kDefaultModelBytes ? kLargePasses : kReadPasses, Budget(kEndless));
}

std::vector<ComputePeak> MeasurePeaks(int threads) {
  ThreadPool pool(threads);
  Budget budget(kEndless);
  return PeaksOn(pool, budget);
}

Result<Machine> MeasureMachine(const MeasureOptions& options) {
  const Clock::time_point start = Clock::now();
  const CpuTimeWatch watch;
  Budget budget(options.most_seconds);
  Machine machine;
  machine.cpu = CpuModelName();
  machine.cpus = AllowedCpuCount();
  machine.cores = PhysicalCoreCount();
  machine.l3_bytes = L3Bytes();
  machine.memory_bytes = AvailableMemory();
  machine.huge_pages = HugePageSetting();
  machine.measured_at = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  const auto say = [&options](const std::string& part) {
    if (options.progress) options.progress(part);
  };
  std::vector<std::unique_ptr<ThreadPool>> pools;
  for (const int threads : options.threads.empty() ? DefaultThreads() : options.threads) {
    say("arithmetic with " + ThreadsText(threads));
    pools.push_back(std::make_unique<ThreadPool>(threads));
    machine.clocks.push_back({threads, ClockHertz(*pools.back())});
    if (threads > 1) machine.barriers.push_back({threads, BarrierSeconds(*pools.back())});
    for (ComputePeak& peak : PeaksOn(*pools.back(), budget))
      machine.peaks.push_back(std::move(peak));
  }
  say("reading memory");
  const int most = pools.back()->size();
  const int64_t model_bytes =
      AffordableWithNote(options.model_bytes, most, "model-sized", machine.notes);
  const int64_t large_bytes = AffordableWithNote(options.large_bytes, most, "large", machine.notes);
  LUCID_RETURN_IF_ERROR(MeasureReads(pools, model_bytes, large_bytes, machine.reads, budget));
  if (!budget.left_out().empty()) {
    machine.notes.push_back(
        fmt::format("not measured for want of time: {}", fmt::join(budget.left_out(), ", ")));
  }
  for (const ProbeStatus& status : ProbeStatuses()) {
    if (status.refused.empty()) continue;
    machine.refused.push_back({std::string(status.table->isa), status.refused});
  }
  const CpuTimeWatch::Shares shares = watch.Stop();
  machine.steal = shares.steal;
  machine.other_load = shares.others;
  machine.seconds = SecondsSince(start);
  return machine;
}

}  // namespace lucid
