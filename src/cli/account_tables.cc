#include "cli/account_tables.h"

#include <fmt/format.h>

#include <cmath>

#include "cli/account_rows.h"

namespace lucid::cli {
namespace {

// Tokens a second.
std::string Rate(double rate) {
  return rate < 100 ? fmt::format("{:.1f}", rate) : Thousands(std::llround(rate));
}

// Of sequences, where the memory is known.
std::string FitText(int64_t fit) {
  return fit < 0 ? "?" : Thousands(fit);
}

std::string KvName(const Study& study) {
  return study.k_type == study.v_type
             ? std::string(Name(study.k_type))
             : fmt::format("{}/{}", Name(study.k_type), Name(study.v_type));
}

}  // namespace

std::array<PartSum, kParts> PartSums(const Study& study) {
  std::array<PartSum, kParts> sums;
  for (const LedgerWeight& weight : study.weights) {
    PartSum& sum = sums[static_cast<size_t>(weight.part)];
    sum.params += weight.params;
    sum.bytes += weight.bytes;
    sum.types[weight.dtype] += weight.bytes;
  }
  return sums;
}

ReportTable WeightTable(const Study& study) {
  const std::array<PartSum, kParts> sums = PartSums(study);
  const Ledger* step = study.decode ? &study.decode->ledger : nullptr;
  ReportTable table{
      {"weights", "parameters", "bytes", "", "share", "read in a decode step", "types"}};
  for (size_t i = 0; i < kParts; ++i) {
    if (sums[i].params == 0 && (step == nullptr || step->parts[i].weight_bytes == 0)) continue;
    std::string types;
    for (const auto& [type, bytes] : sums[i].types) {
      types += fmt::format("{}{} {}", types.empty() ? "" : ", ", Name(type),
                           Bytes(static_cast<double>(bytes)));
    }
    table.rows.push_back(
        {std::string(Name(static_cast<Part>(i))), Thousands(sums[i].params),
         Thousands(sums[i].bytes), Bytes(static_cast<double>(sums[i].bytes)),
         PercentText(static_cast<double>(sums[i].bytes), static_cast<double>(study.weight_bytes)),
         step == nullptr ? "-" : Thousands(step->parts[i].weight_bytes), types});
  }
  table.rows.push_back({"all", Thousands(study.params), Thousands(study.weight_bytes),
                        Bytes(static_cast<double>(study.weight_bytes)), "",
                        step == nullptr ? "-" : Thousands(step->total.weight_bytes), ""});
  return table;
}

ReportTable PhaseTable(const PhaseStudy& phase, bool full, bool with_square) {
  std::vector<std::string> head = {"op",           "shape",    "weights",     "layers",
                                   "weight bytes", "KV bytes", "activations", "FLOPs"};
  if (with_square) head.emplace_back("full square");
  for (const char* name : {"FLOP/byte", "bound by", "time", "share"}) head.emplace_back(name);
  ReportTable table{.head = std::move(head), .rows = {}, .left = 3};
  double all = 0;
  for (const OpTime& time : phase.times) all += time.seconds();
  const auto cells = [&](const std::string& name, const AccountRow& row) {
    const auto bytes = static_cast<double>(row.memory_bytes());
    std::vector<std::string> line = {
        name,
        row.shape,
        row.weights,
        fmt::format("{}", row.count),
        Bytes(static_cast<double>(row.cost.weight_bytes)),
        Bytes(static_cast<double>(row.cost.kv_read_bytes + row.cost.kv_write_bytes)),
        Bytes(static_cast<double>(row.cost.activation_bytes)),
        Flops(static_cast<double>(row.cost.flops))};
    if (with_square) line.push_back(Flops(static_cast<double>(row.square_flops)));
    line.push_back(bytes > 0 ? fmt::format("{:.1f}", static_cast<double>(row.cost.flops) / bytes)
                             : "-");
    line.emplace_back(Bound(row.time));
    line.push_back(Seconds(row.time.seconds()));
    line.push_back(PercentText(row.time.seconds(), all));
    table.rows.push_back(std::move(line));
  };
  AccountRow sum;
  sum.count = 0;
  for (const AccountRow& row : AccountRows(phase, full)) {
    cells(row.name, row);
    sum.cost += row.cost;
    sum.square_flops += row.square_flops;
    sum.count += row.count;
    sum.time.memory += row.time.memory;
    sum.time.arithmetic += row.time.arithmetic;
  }
  sum.time.other = all - sum.time.seconds();
  cells("all ops", sum);
  return table;
}

// "4 sequences" -- or nothing where the memory is unknown.
ReportTable KvTable(const Study& study) {
  ReportTable table{
      {"KV type", "bytes a token", "one sequence", "", "all sequences", "fit in memory"}};
  for (const KvVariant& v : study.variants) {
    table.rows.push_back({std::string(Name(v.type)), Thousands(v.bytes_per_token),
                          Thousands(v.sequence_bytes), Bytes(static_cast<double>(v.sequence_bytes)),
                          Bytes(static_cast<double>(v.sequence_bytes * study.batch)),
                          FitText(v.fit)});
  }
  return table;
}

ReportTable MemoryTable(const Study& study) {
  const Footprint& m = study.memory;
  ReportTable table{{"memory that lucid takes", "bytes", ""}};
  const auto add = [&](const std::string& name, int64_t bytes) {
    table.rows.push_back({name, Thousands(bytes), Bytes(static_cast<double>(bytes))});
  };
  add("packed weights", m.runner.packed);
  add("copied weights (vectors, transposed matrices)", m.weight_copies);
  add(fmt::format("KV cache, {} + 1 sequences of {} tokens", study.batch, Thousands(study.context)),
      m.runner.kv);
  add("activations and logits", m.runner.arena);
  add("scratch of all threads", m.runner.scratch);
  add("together", m.total());
  if (m.in_place > 0) add("and weights read where the file is mapped", m.in_place);
  add("process in memory, all sequences at full context", study.resident_bytes);
  return table;
}

std::string PhaseHeading(const Study& study, const PhaseStudy& phase, bool prefill) {
  const StepTime& step = phase.step;
  const std::string what =
      prefill ? fmt::format("prefill: {} prompt{} of {} tokens", study.batch,
                            study.batch == 1 ? "" : "s", Thousands(study.prompt))
              : fmt::format("decode: a token of {} sequence{}, {} keys each", study.batch,
                            study.batch == 1 ? "" : "s", Thousands(study.context));
  return fmt::format(
      "{}\n{} {} tokens/s ({}), bound by {}; {:.1f} FLOP/byte, the ridge is at {:.0f}", what,
      study.hardware.kernels.empty() ? "at most" : "predicted", Rate(phase.tokens_per_second()),
      Seconds(step.seconds), step.by_memory() ? "memory" : "compute", phase.ledger.intensity(),
      study.hardware.Ridge());
}

std::string AccountTitle(const Study& study) {
  const ModelConfig& c = study.model.config;
  const std::string active =
      study.active_params < study.params
          ? fmt::format(" ({} that a token meets)", Thousands(study.active_params))
          : "";
  return fmt::format("{}, {} layers, width {}, {} parameters{}", c.arch, c.n_layers, c.dim,
                     Thousands(study.params), active);
}

std::string HardwareText(const Study& study) {
  const Hardware& hardware = study.hardware;
  return fmt::format(
      "hardware: {} ({}): reads {}/s, {}/s with 16-bit numbers{}\n"
      "B, kB, MB, GB are powers of 1000 (1 GB = 0.931 GiB); a multiply-add is 2 FLOPs",
      hardware.name, hardware.source, Bytes(hardware.bytes_per_second),
      Flops(hardware.FlopsFor(DType::kF16)),
      hardware.memory_bytes > 0 ? ", " + Bytes(static_cast<double>(hardware.memory_bytes)) : "");
}

std::vector<std::string> AccountFindings(const Study& study) {
  std::vector<std::string> list;
  const KvFacts& kv = study.kv;
  list.push_back(fmt::format(
      "KV cache ({}): {} bytes a token of {} layers, {} a sequence of {} tokens; {} of {} numbers "
      "that a head of its own for every query would keep: {:.3g} times less",
      KvName(study), Thousands(kv.bytes_per_token), kv.layers,
      Bytes(static_cast<double>(kv.sequence_bytes)), Thousands(study.context),
      kv.kind + " keeps " + Thousands(kv.numbers_per_token), Thousands(kv.mha_numbers_per_token),
      kv.saving()));
  if (kv.windowed_layers > 0) {
    list.push_back(
        fmt::format("{} of {} layers have a sliding window: a sequence takes {} instead of {}",
                    kv.windowed_layers, kv.layers, Bytes(static_cast<double>(kv.sequence_bytes)),
                    Bytes(static_cast<double>(kv.unwindowed_bytes))));
  }
  if (study.fit >= 0) {
    const std::string memory = Bytes(static_cast<double>(study.hardware.memory_bytes));
    list.push_back(
        study.weight_bytes > study.hardware.memory_bytes
            ? fmt::format("{} of memory do not hold the weights, {}", memory,
                          Bytes(static_cast<double>(study.weight_bytes)))
            : fmt::format("{} of memory: {} sequences of {} tokens fit beside the weights", memory,
                          Thousands(study.fit), Thousands(study.context)));
  }
  list.push_back(
      study.kv_passes_weights > 0
          ? fmt::format("from {} tokens on, decoding one sequence reads more bytes of keys and "
                        "values than of weights",
                        Thousands(study.kv_passes_weights))
          : "decoding one sequence never reads more bytes of keys and values than of weights");
  list.push_back(
      study.compute_bound_batch > 0
          ? fmt::format("at {} tokens each, decoding turns compute bound with {} sequences",
                        Thousands(study.context), Thousands(study.compute_bound_batch))
          : fmt::format("at {} tokens each, decoding stays memory bound with any number of "
                        "sequences: each brings keys and values of its own",
                        Thousands(study.context)));
  list.push_back(fmt::format(
      "one sequence streams {} bytes of weights a token: {} at {} would be {:.1f} tokens/s",
      Thousands(study.token_bytes), Bytes(static_cast<double>(study.token_bytes)),
      Bytes(study.hardware.bytes_per_second) + "/s",
      study.hardware.bytes_per_second / static_cast<double>(study.token_bytes)));
  return list;
}

}  // namespace lucid::cli
