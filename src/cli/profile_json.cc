// The JSON of `lucid profile` (docs/accounting.md has the schema).
#include <nlohmann/json.hpp>

#include "cli/profile_report.h"
#include "cli/profile_tables.h"
#include "plan/op_table.h"

namespace lucid::cli {
namespace {

using Json = nlohmann::ordered_json;

Json CausesJson(const CauseTimes& causes) {
  Json json = Json::object();
  for (size_t i = 0; i < kCauses; ++i) {
    json[std::string(Name(static_cast<Cause>(i)))] = causes.seconds[i];
  }
  return json;
}

Json OpJson(const ProfiledOp& op) {
  const Cost& cost = op.row.cost;
  return {{"op", op.row.name},
          {"kind", Info(op.row.kind).name},
          {"layer", op.row.layer},
          {"part", Name(op.row.part)},
          {"shape", op.row.shape.ToString()},
          {"weights", op.row.weights},
          {"kernel", op.kernel},
          {"flops", cost.flops},
          {"macs", cost.macs},
          {"weight_bytes", cost.weight_bytes},
          {"kv_read_bytes", cost.kv_read_bytes},
          {"kv_write_bytes", cost.kv_write_bytes},
          {"activation_bytes", cost.activation_bytes},
          {"predicted_seconds", op.predicted_seconds},
          {"measured_seconds", op.measured.total()},
          {"waiting_seconds", op.measured.wait},
          {"reading_seconds", op.least.reading},
          {"computing_seconds", op.least.computing},
          {"residual_seconds", op.residual_seconds()},
          {"cause", Name(op.residual.largest())},
          {"causes", CausesJson(op.residual)}};
}

Json RowJson(const ProfileRow& row) {
  return {{"kind", row.name},
          {"ops", row.count},
          {"flops", row.cost.flops},
          {"bytes", row.memory_bytes()},
          {"predicted_seconds", row.predicted},
          {"measured_seconds", row.measured.total()},
          {"waiting_seconds", row.measured.wait},
          {"residual_seconds", row.residual_seconds()},
          {"cause", Name(row.residual.largest())}};
}

Json PhaseJson(const Profile& profile, const ProfiledPhase& phase) {
  Json json = {{"phase", PhaseName(phase)},
               {"tokens", phase.tokens},
               {"steps", phase.steps},
               {"passes", phase.passes},
               {"threads", phase.threads},
               {"tokens_per_second", phase.tokens_per_second()},
               {"predicted_tokens_per_second", phase.predicted_tokens_per_second()},
               {"seconds", phase.seconds},
               {"mean_seconds", phase.mean_seconds},
               {"predicted_seconds", phase.predicted_seconds()},
               {"ops_seconds", phase.ops_seconds},
               {"threads_seconds", phase.threads_seconds},
               {"before_seconds", phase.before},
               {"after_seconds", phase.after},
               {"cpus", phase.cpus},
               {"timing_cost", phase.timing_cost ? Json(*phase.timing_cost) : Json(nullptr)},
               {"residual_causes", CausesJson(phase.Residual())}};
  if (!phase.prefill) {
    Json& bars = json["waterfall"] = Json::array();
    for (const WaterfallBar& bar : Waterfall(profile, phase)) {
      bars.push_back({{"what", bar.label}, {"seconds", bar.seconds}, {"sum", bar.sum}});
    }
  }
  Json& kinds = json["kinds"] = Json::array();
  for (const ProfileRow& row : KindRows(phase)) kinds.push_back(RowJson(row));
  Json& ops = json["ops"] = Json::array();
  for (const ProfiledOp& op : phase.ops) ops.push_back(OpJson(op));
  return json;
}

}  // namespace

Json ProfileJson(const Engine& engine, const Profile& profile) {
  const KvOptions& kv = engine.kv_layout().options();
  Json kernels = Json::array();
  for (const KernelSpeed& k : profile.hardware.kernels) {
    kernels.push_back({{"weights", k.weights},
                       {"isa", k.isa},
                       {"stream_bytes_per_second", k.stream_bytes_per_second},
                       {"cached_bytes_per_second", k.cached_bytes_per_second},
                       {"macs_per_second", k.macs_per_second}});
  }
  Json phases = Json::array();
  for (const ProfiledPhase& phase : profile.phases) phases.push_back(PhaseJson(profile, phase));
  return {{"model", engine.config().model},
          {"arch", engine.model().config.arch},
          {"layers", engine.model().config.n_layers},
          {"threads", engine.runner().n_threads()},
          {"numerics", Name(engine.runner().numerics())},
          {"isa", engine.runner().isa()},
          {"type_k", Name(kv.k_type)},
          {"type_v", Name(kv.v_type)},
          {"hardware",
           {{"name", profile.hardware.name},
            {"source", profile.hardware.source},
            {"bytes_per_second", profile.hardware.bytes_per_second},
            {"flops_16_bit", profile.hardware.FlopsFor(DType::kF16)},
            {"barrier_seconds", profile.barrier_seconds},
            {"kernels", kernels}}},
          {"phases", phases}};
}

}  // namespace lucid::cli
