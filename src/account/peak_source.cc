#include "account/peak_source.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "account/cpu_time.h"
#include "account/kernel_speed.h"
#include "account/measure.h"
#include "base/check.h"
#include "kernels/table.h"

namespace lucid {
namespace {

// The types of the matrices, those with most bytes first.
std::vector<DType> MatrixTypes(std::span<const LedgerWeight> weights) {
  constexpr double kLeastPart = 0.02;  // types with less than that change no prediction
  std::map<DType, int64_t> bytes;
  int64_t all = 0;
  // Without a matrix of its own the output has the embedding's.
  const bool tied = std::ranges::none_of(
      weights, [](const LedgerWeight& weight) { return weight.part == Part::kHead; });
  for (const LedgerWeight& weight : weights) {
    if (weight.part == Part::kNorm || (weight.part == Part::kEmbedding && !tied)) continue;
    bytes[weight.dtype] += weight.bytes;
    all += weight.bytes;
  }
  std::vector<DType> types;
  for (const auto& [type, n] : bytes) {
    if (static_cast<double>(n) >= kLeastPart * static_cast<double>(all)) types.push_back(type);
  }
  std::sort(types.begin(), types.end(), [&](DType a, DType b) { return bytes[a] > bytes[b]; });
  return types;
}

// Of the same kernels, whatever they reached.
bool SameKernels(const KernelSpeed& a, const KernelSpeed& b) {
  return a.weights == b.weights && a.numerics == b.numerics && a.isa == b.isa &&
         a.threads == b.threads;
}

}  // namespace

PeakSource PeakSource::Open(Say say) {
  const std::string path = MachinePath();
  Result<Machine> stored = LoadMachine(path);
  if (stored && IsThisMachine(*stored)) return {*std::move(stored), "", std::move(say), path};
  std::string why = stored ? path + " is of another machine, or of other CPUs of this one"
                    : stored.error().code == ErrorCode::kNotFound ? "there is no " + path
                                                                  : stored.error().message;
  return {Machine{}, std::move(why), std::move(say)};
}

void PeakSource::Announce(const std::string& measurement) {
  if (!say_) return;
  if (!why_.empty()) say_(why_ + "; 'lucid limits' stores the figures that follow");
  why_.clear();
  say_("measuring " + measurement);
}

void PeakSource::NoteDisturbance(double steal, double others) {
  if (steal + others <= Disturbance(machine_)) return;
  machine_.steal = steal;
  machine_.other_load = others;
}

Result<ReadSpeed> PeakSource::Read(int64_t bytes, int threads) {
  if (const ReadSpeed* known = FindRead(machine_, bytes, threads)) return *known;
  Announce(fmt::format("how fast {} read{} {:.1f} MB", ThreadsText(threads),
                       threads == 1 ? "s" : "", static_cast<double>(bytes) / 1e6));
  const CpuTimeWatch watch;
  LUCID_ASSIGN_OR_RETURN(ReadSpeed read, MeasureRead(bytes, threads, /*huge_pages=*/true));
  const CpuTimeWatch::Shares shares = watch.Stop();
  NoteDisturbance(shares.steal, shares.others);
  machine_.reads.push_back(read);
  // Found for the asked size too where memory was short.
  if (FindRead(machine_, bytes, threads) == nullptr) {
    machine_.reads.push_back(read);
    machine_.reads.back().bytes = bytes;
  }
  return read;
}

Result<Hardware> PeakSource::ThisMachine(int threads, int64_t bytes, bool eight_bits) {
  LUCID_RETURN_IF_ERROR(Read(bytes, threads));
  Arithmetic(threads, eight_bits ? Factors::kInt8 : Factors::kInt8Pairs);
  if (machine_.cpu.empty()) machine_.cpu = CpuModelName();
  if (machine_.measured_at.empty()) machine_.measured_at = "now";
  LUCID_ASSIGN_OR_RETURN(Hardware hardware, HardwareOf(machine_, threads, bytes, eight_bits));
  hardware.kernels.clear();
  return hardware;
}

Result<Hardware> PeakSource::MachineFor(std::span<const LedgerWeight> weights, int64_t token_bytes,
                                        Numerics numerics, const std::string& isa, int threads) {
  LUCID_ASSIGN_OR_RETURN(Hardware hardware,
                         ThisMachine(threads, token_bytes, numerics == Numerics::kFast));
  for (const DType type : MatrixTypes(weights)) {
    LUCID_ASSIGN_OR_RETURN(KernelSpeed speed, Kernels(type, numerics, isa, threads));
    hardware.kernels.push_back(std::move(speed));
  }
  return hardware;
}

double PeakSource::BarrierSeconds(int threads) const {
  for (const ThreadCost& cost : machine_.barriers) {
    if (cost.threads == threads) return cost.value;
  }
  return 0;
}

Result<KernelSpeed> PeakSource::Kernels(DType weights, Numerics numerics, const std::string& isa,
                                        int threads) {
  LUCID_ASSIGN_OR_RETURN(const std::vector<const KernelTable*> tables, SelectTables(isa));
  const KernelSpeed wanted{.weights = std::string(Name(weights)),
                           .numerics = std::string(Name(numerics)),
                           .threads = threads,
                           .isa = std::string(tables.front()->isa),
                           .build = std::string(KernelBuild())};
  for (const KernelSpeed& known : machine_.kernels) {
    if (SameKernels(known, wanted) && known.build == wanted.build) return known;
  }
  Announce(fmt::format("kernels for {} weights with {}", Name(weights), ThreadsText(threads)));
  const CpuTimeWatch watch;
  LUCID_ASSIGN_OR_RETURN(KernelSpeed speed, MeasureKernels(weights, numerics, isa, threads));
  const CpuTimeWatch::Shares shares = watch.Stop();
  NoteDisturbance(shares.steal, shares.others);
  machine_.kernels.push_back(speed);
  if (shares.steal + shares.others <= kMostDisturbance) StoreKernels(speed);
  return speed;
}

// Others may have written the file meanwhile: what it holds now gets the one entry.
void PeakSource::StoreKernels(const KernelSpeed& speed) {
  if (path_.empty()) return;
  Result<Machine> stored = LoadMachine(path_);
  if (!stored || !IsThisMachine(*stored)) return;
  std::erase_if(stored->kernels, [&](const KernelSpeed& old) { return SameKernels(old, speed); });
  stored->kernels.push_back(speed);
  const Status saved = SaveMachine(*stored, path_);
  if (!saved && say_) say_("not stored: " + saved.error().message);
}

ArithmeticPeak PeakSource::Arithmetic(int threads, Factors least) {
  if (const auto known = BestArithmetic(machine_.peaks, threads, least)) return *known;
  Announce("the arithmetic of " + ThreadsText(threads));
  const CpuTimeWatch watch;
  for (ComputePeak& peak : MeasurePeaks(threads)) machine_.peaks.push_back(std::move(peak));
  const CpuTimeWatch::Shares shares = watch.Stop();
  NoteDisturbance(shares.steal, shares.others);
  const auto peak = BestArithmetic(machine_.peaks, threads, least);
  LUCID_CHECK(peak.has_value(), "the base instruction set has no multiplying probe");
  return *peak;
}

}  // namespace lucid
