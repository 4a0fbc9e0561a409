// The JSON and the CSV of `lucid account` (docs/accounting.md has the schema).
#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "cli/account_report.h"
#include "cli/account_rows.h"
#include "cli/account_tables.h"
#include "plan/op_table.h"

namespace lucid::cli {
namespace {

using Json = nlohmann::ordered_json;

Json CostJson(const Cost& cost, int64_t square_flops) {
  return {{"flops", cost.flops},
          {"flops_full_square", square_flops},
          {"macs", cost.macs},
          {"weight_bytes", cost.weight_bytes},
          {"kv_read_bytes", cost.kv_read_bytes},
          {"kv_write_bytes", cost.kv_write_bytes},
          {"activation_bytes", cost.activation_bytes}};
}

Json PhaseJson(const Study& study, const PhaseStudy& phase, bool prefill) {
  Json json = {{"sequences", study.batch},
               {"tokens", phase.tokens},
               {"context", prefill ? study.prompt : study.context},
               {"tokens_per_second", phase.tokens_per_second()},
               {"seconds", phase.step.seconds},
               {"memory_seconds", phase.step.memory},
               {"compute_seconds", phase.step.arithmetic},
               {"bound", phase.step.by_memory() ? "memory" : "compute"},
               {"flop_per_byte", phase.ledger.intensity()},
               {"total", CostJson(phase.ledger.total, phase.ledger.square_flops)}};
  Json& ops = json["ops"] = Json::array();
  for (size_t i = 0; i < phase.ledger.rows.size(); ++i) {
    const LedgerRow& row = phase.ledger.rows[i];
    Json op = {{"op", row.name},         {"kind", Info(row.kind).name},   {"layer", row.layer},
               {"part", Name(row.part)}, {"shape", row.shape.ToString()}, {"weights", row.weights}};
    op.update(CostJson(row.cost, row.square_flops));
    op["bound"] = Bound(phase.times[i]);
    op["seconds"] = phase.times[i].seconds();
    ops.push_back(std::move(op));
  }
  return json;
}

Json WeightsJson(const Study& study) {
  Json parts = Json::object();
  const std::array<PartSum, kParts> sums = PartSums(study);
  for (size_t i = 0; i < kParts; ++i) {
    const PartSum& sum = sums[i];
    if (sum.params == 0) continue;
    Json types = Json::object();
    for (const auto& [type, bytes] : sum.types) types[std::string(Name(type))] = bytes;
    parts[std::string(Name(static_cast<Part>(i)))] = {
        {"params", sum.params}, {"bytes", sum.bytes}, {"bytes_by_type", types}};
  }
  return {{"params", study.params},
          {"active_params", study.active_params},
          {"bytes", study.weight_bytes},
          {"bytes_per_token", study.token_bytes},
          {"parts", parts}};
}

Json KvJson(const Study& study) {
  Json variants = Json::array();
  for (const KvVariant& v : study.variants) {
    variants.push_back({{"type", Name(v.type)},
                        {"bytes_per_token", v.bytes_per_token},
                        {"sequence_bytes", v.sequence_bytes},
                        {"fit", v.fit < 0 ? Json(nullptr) : Json(v.fit)}});
  }
  const KvFacts& kv = study.kv;
  return {{"kind", kv.kind},
          {"layers", kv.layers},
          {"layers_with_window", kv.windowed_layers},
          {"type_k", Name(study.k_type)},
          {"type_v", Name(study.v_type)},
          {"bytes_per_token", kv.bytes_per_token},
          {"numbers_per_token", kv.numbers_per_token},
          {"numbers_per_token_mha", kv.mha_numbers_per_token},
          {"saving_against_mha", kv.saving()},
          {"sequence_bytes", kv.sequence_bytes},
          {"sequence_bytes_without_windows", kv.unwindowed_bytes},
          {"passes_weights_at_tokens", study.kv_passes_weights},
          {"variants", variants}};
}

}  // namespace

Json AccountJson(const Study& study) {
  const ModelConfig& c = study.model.config;
  const Footprint& m = study.memory;
  Json peaks = Json::object();
  for (const TypePeak& peak : study.hardware.peaks) peaks[peak.numbers] = peak.flops;
  Json json = {{"arch", c.arch},
               {"layers", c.n_layers},
               {"from", study.outline ? "config" : "weights"},
               {"context", study.context},
               {"batch", study.batch},
               {"prompt", study.prompt},
               {"weights", WeightsJson(study)},
               {"kv", KvJson(study)},
               {"memory",
                {{"packed_weights", m.runner.packed},
                 {"copied_weights", m.weight_copies},
                 {"kv_cache", m.runner.kv},
                 {"activations", m.runner.arena},
                 {"scratch", m.runner.scratch},
                 {"total", m.total()},
                 {"mapped_weights", m.in_place},
                 {"process", study.process_bytes},
                 {"resident", study.resident_bytes}}},
               {"hardware",
                {{"name", study.hardware.name},
                 {"source", study.hardware.source},
                 {"bytes_per_second", study.hardware.bytes_per_second},
                 {"memory_bytes", study.hardware.memory_bytes},
                 {"flops", peaks},
                 {"ridge_flop_per_byte", study.hardware.Ridge()},
                 {"kernels_measured", !study.hardware.kernels.empty()}}},
               {"fit", study.fit < 0 ? Json(nullptr) : Json(study.fit)},
               {"compute_bound_batch", study.compute_bound_batch}};
  if (study.prefill) json["prefill"] = PhaseJson(study, *study.prefill, true);
  if (study.decode) json["decode"] = PhaseJson(study, *study.decode, false);
  return json;
}

std::string AccountCsv(const Study& study) {
  std::string text =
      "phase,op,kind,layer,part,shape,weights,weight_bytes,kv_read_bytes,kv_write_bytes,"
      "activation_bytes,flops,flops_full_square,flop_per_byte,bound,seconds\n";
  const auto add = [&](const char* name, const PhaseStudy& phase) {
    for (size_t i = 0; i < phase.ledger.rows.size(); ++i) {
      const LedgerRow& row = phase.ledger.rows[i];
      const Cost& cost = row.cost;
      const int64_t bytes = row.memory_bytes();
      text += fmt::format("{},{},{},{},{},\"{}\",{},{},{},{},{},{},{},{},{},{:.9g}\n", name,
                          row.name, Info(row.kind).name, row.layer, Name(row.part),
                          row.shape.ToString(), row.weights, cost.weight_bytes, cost.kv_read_bytes,
                          cost.kv_write_bytes, cost.activation_bytes, cost.flops, row.square_flops,
                          bytes > 0 ? fmt::format("{:.6g}", static_cast<double>(cost.flops) /
                                                                static_cast<double>(bytes))
                                    : "",
                          Bound(phase.times[i]), phase.times[i].seconds());
    }
  };
  if (study.prefill) add("prefill", *study.prefill);
  if (study.decode) add("decode", *study.decode);
  return text;
}

}  // namespace lucid::cli
