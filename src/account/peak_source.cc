#include "account/peak_source.h"

#include <utility>

#include "account/cpu_time.h"
#include "account/kernel_speed.h"
#include "account/measure.h"
#include "base/check.h"

namespace lucid {

PeakSource PeakSource::Open(Say say) {
  const std::string path = MachinePath();
  Result<Machine> stored = LoadMachine(path);
  if (stored && IsThisMachine(*stored)) return {*std::move(stored), "", std::move(say)};
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

Result<KernelSpeed> PeakSource::Kernels(DType weights, Numerics numerics, int threads) {
  for (const KernelSpeed& known : machine_.kernels) {
    if (known.weights == Name(weights) && known.numerics == Name(numerics) &&
        known.threads == threads) {
      return known;
    }
  }
  Announce(fmt::format("kernels for {} weights with {}", Name(weights), ThreadsText(threads)));
  LUCID_ASSIGN_OR_RETURN(KernelSpeed speed, MeasureKernels(weights, numerics, threads));
  machine_.kernels.push_back(speed);
  return speed;
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
