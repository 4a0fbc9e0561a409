// What a machine allows: the ceiling of decoding, the roofline.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "account/predict.h"
#include "account/units.h"
#include "explain/topics/topics.h"

namespace lucid::topics {
namespace {

double Real(int64_t n) {
  return static_cast<double>(n);
}

std::string RateText(double flops) {
  return units::Flops(flops) + "/s";
}

// The embedding is read as a whole only where it is the output matrix too.
std::string EmbeddingNote(const Subject& subject, const char* otherwise) {
  return subject.config().tied_embeddings
             ? ": the same, as the embedding is the output matrix and streamed"
             : otherwise;
}

// A named machine with its peaks beside each other.
void HardwareTable(const Hardware& hardware, Page& page) {
  page.Facts({{"machine", fmt::format("{} ({})", hardware.name, hardware.source)},
              {"reads", units::Bytes(hardware.bytes_per_second) + "/s"},
              {"multiplies", RateText(hardware.FlopsFor(DType::kF16)) + ", 16-bit numbers"},
              {"ridge", fmt::format("{:.1f} FLOP per byte", hardware.Ridge())}});
}

// What is lost between the ceiling and what is measured.
Status Measured(Subject& subject, const Hardware& hardware, double ceiling, Page& page) {
  if (!subject.has_weights()) {
    page.Text(NoWeights(subject));
    return {};
  }
  LUCID_ASSIGN_OR_RETURN(const PromptRun* run, subject.run());
  const double measured = run->stats.decode_tokens_per_second();
  const double bytes = Real(subject.streamed_bytes());
  page.Facts({{"measured", fmt::format("{:.1f} tokens/s over {} tokens, just now on this machine",
                                       measured, run->stats.generated_tokens)},
              {"as bandwidth",
               fmt::format("{}/s = tokens/s x bytes a token", units::Bytes(measured * bytes))},
              {"counting all weights",
               fmt::format("{}/s{}", units::Bytes(measured * Real(subject.weight_bytes())),
                           EmbeddingNote(subject, ": too much, the embedding is not streamed"))},
              {"of the ceiling", hardware.source == "data sheet" ? "another machine: not comparable"
                                                                 : Percent(measured / ceiling)}});
  page.Text(
      "A few tokens with cold caches say little about the machine; `lucid bench` measures "
      "properly, and `lucid profile` shows op by op where the rest goes.");
  return {};
}

}  // namespace

Status Bandwidth(Subject& subject, Page& page) {
  page.Text(
      "A generated token needs every weight once, and a weight is used for one multiply-add only. "
      "Computing that takes next to no time; fetching it from memory takes nearly all. So the "
      "bytes that a token reads, over what the memory delivers a second, give a ceiling that no "
      "engine passes. Fewer bytes raise it: smaller types of weights and cache, fewer key heads, "
      "windows; several requests at once share the weights.");
  page.Formula("tokens/s <= bandwidth / (streamed weights + keys and values)",
               {{"streamed weights",
                 "all but the embedding table, of which a row is looked up; of "
                 "experts those that are used"},
                {"effective bandwidth", "tokens/s x bytes a token: what a measured speed proves"}});
  LUCID_ASSIGN_OR_RETURN(const Hardware* hardware, subject.hardware());
  const int64_t streamed = subject.streamed_bytes();
  const Ledger ledger =
      MakeLedger(subject.plan(), DecodeWork(1, subject.context(), subject.types()));
  const double kv = Real(ledger.total.kv_read_bytes + ledger.total.kv_write_bytes);
  const double ceiling = hardware->bytes_per_second / (Real(streamed) + kv);
  page.Heading(fmt::format("This model on {}", hardware->name));
  HardwareTable(*hardware, page);
  page.Facts(
      {{"weights", fmt::format("{} bytes", units::Thousands(subject.weight_bytes()))},
       {"streamed for a token", fmt::format("{} bytes", units::Thousands(streamed))},
       {fmt::format("keys and values at {}", units::Thousands(subject.context())),
        fmt::format("{} ({} of the weights)", units::Bytes(kv), Percent(kv / Real(streamed)))},
       {"ceiling, empty cache",
        fmt::format("{:.1f} tokens/s", hardware->bytes_per_second / Real(streamed))},
       {fmt::format("ceiling at {}", units::Thousands(subject.context())),
        fmt::format("{:.1f} tokens/s: {} a token", ceiling, units::Seconds(1 / ceiling))},
       {"by all weights",
        fmt::format("{:.1f} tokens/s{}", hardware->bytes_per_second / Real(subject.weight_bytes()),
                    EmbeddingNote(subject,
                                  ": too low, the embedding is not "
                                  "streamed"))}});
  page.Heading("Why decoding misses the ceiling");
  LUCID_RETURN_IF_ERROR(
      Measured(subject, *hardware, hardware->bytes_per_second / Real(streamed), page));
  page.List(
      {"The cache is read too, and grows with every token.",
       "Quantised weights must be unpacked: scales are read, codes become numbers. Where that "
       "takes longer than the bytes, arithmetic is the limit.",
       "Activations move through caches; small ops (norms, rotations, additions) do little "
       "work but take a turn of all threads each.",
       "Threads wait for each other after every op; other processes take cores and "
       "bandwidth away.",
       "Sampling and scheduling happen between two steps, while the memory idles."});
  page.Heading("Other types of weights");
  Bars bars;
  const double params = Real(subject.params());
  for (const DType type : {DType::kF32, DType::kF16, DType::kQ8_0, DType::kQ6_K, DType::kQ4_K}) {
    const double bits = 8.0 * Real(Info(type).block_bytes) / Real(Info(type).block_elems);
    bars.bars.push_back({std::string(Name(type)), hardware->bytes_per_second / (params * bits / 8),
                         fmt::format("{:.1f} tokens/s at {:.2f} bits",
                                     hardware->bytes_per_second / (params * bits / 8), bits)});
  }
  page.Draw({"About the ceiling if every parameter were stored and read in one type.", bars});
  return {};
}

Status Roofline(Subject& subject, Page& page) {
  page.Text(
      "An op must fetch its bytes and do its arithmetic, and can overlap the two at best. So it "
      "takes at least the longer of both times. Which one that is depends on a single number of "
      "the op, its FLOPs per byte, and a single number of the machine, the ridge, where both "
      "times are equal. Left of the ridge memory is the limit and faster arithmetic is of no "
      "use; right of it, arithmetic is.");
  page.Formula("time >= max(FLOPs / peak, bytes / bandwidth)          ridge = peak / bandwidth",
               {{"FLOPs / bytes",
                 "arithmetic intensity of the op; bytes are those that must come "
                 "from memory: weights, keys, values"}});
  LUCID_ASSIGN_OR_RETURN(const Hardware* hardware, subject.hardware());
  page.Heading(fmt::format("This model on {}", hardware->name));
  HardwareTable(*hardware, page);
  const Workload types = subject.types();
  const double peak = hardware->FlopsFor(DType::kF16);
  const double ridge = hardware->Ridge();
  std::vector<std::vector<std::string>> rows;
  Plot plot;
  plot.x_title = "FLOP per byte from memory";
  plot.log_x = plot.log_y = true;
  plot.x_label = [](double value) { return fmt::format("{:.4g}", value); };
  plot.y_label = RateText;
  const auto add = [&](const std::string& name, const Workload& work) {
    const Ledger ledger = MakeLedger(subject.plan(), work);
    const double intensity = ledger.intensity();
    const double rate = std::min(peak, intensity * hardware->bytes_per_second);
    rows.push_back({name, units::Flops(Real(ledger.total.flops)),
                    units::Bytes(Real(ledger.memory_bytes())), Fixed(intensity, 2),
                    intensity < ridge ? "memory" : "compute", RateText(rate),
                    Percent(rate / peak)});
    if (plot.marks.size() < 4) plot.marks.push_back({name, intensity, rate});
  };
  const int64_t context = subject.context();
  add("decode, 1 sequence", DecodeWork(1, context, types));
  add("decode, 32 sequences", DecodeWork(32, context, types));
  add(fmt::format("prefill, {} tokens", units::Thousands(context)), PromptWork(1, context, types));
  page.Table({"step", "FLOPs", "bytes", "FLOP/byte", "bound by", "at most", "of the peak"},
             std::move(rows));
  Plot::Line roof{"roof", {}};
  for (double at = ridge / 1000; at <= ridge * 100; at *= 1.25) {
    roof.points.emplace_back(at, std::min(peak, at * hardware->bytes_per_second));
  }
  plot.lines = {std::move(roof)};
  plot.rules = {{"ridge", ridge, true}};
  page.Draw({"The roof of this machine, and where steps of this model lie under it.", plot});
  const int64_t batch = ComputeBoundBatch(*hardware, subject.plan(), context, types);
  page.Text(batch == 0
                ? fmt::format("No batch makes decoding compute bound at {} tokens: each sequence "
                              "brings its own keys and values, which nobody shares.",
                              units::Thousands(context))
                : fmt::format("From {} sequences of {} tokens on, a decode step is bound by "
                              "arithmetic: the weights are read once for all of them.",
                              batch, units::Thousands(context)));
  page.Text(
      "A batch of 32 does not have 32 times the intensity: weights are shared, caches are "
      "not. The table shows how much is left of it.");
  return {};
}

}  // namespace lucid::topics
