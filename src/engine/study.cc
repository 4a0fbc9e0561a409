#include "engine/study.h"

#include <algorithm>
#include <utility>

#include "base/memory_info.h"
#include "base/topology.h"
#include "engine/tokenizer_loader.h"
#include "models/outline.h"

namespace lucid {
namespace {

// Where nothing is said.
constexpr int64_t kUsualContext = 4096, kUsualPrompt = 512;

Result<Hardware> ChooseHardware(const StudyOptions& options, const Study& study) {
  const EngineConfig& engine = options.engine;
  const int threads = engine.n_threads > 0 ? engine.n_threads : PhysicalCoreCount();
  if (options.hardware != "this") {
    return FindHardware(options.hardware, threads, study.token_bytes,
                        engine.numerics == Numerics::kFast);
  }
  PeakSource source = PeakSource::Open(options.say);
  LUCID_ASSIGN_OR_RETURN(
      Hardware hardware,
      source.MachineFor(study.weights, study.token_bytes, engine.numerics, engine.isa, threads));
  if (const int64_t available = AvailableMemory(); available > 0) {
    hardware.memory_bytes = available;
  }
  return hardware;
}

PhaseStudy StudyPhase(const Study& study, const Workload& work, const StepTime& step) {
  PhaseStudy phase;
  phase.ledger = MakeLedger(study.model.plan, work);
  for (size_t i = 0; i < phase.ledger.rows.size(); ++i) {
    phase.times.push_back(TimeOf(study.hardware, study.model.plan, study.model.plan.ops[i], work,
                                 phase.ledger.rows[i].cost));
  }
  phase.step = step;
  phase.tokens = work.sizes().tokens;
  return phase;
}

// Sequences that fit beside weights and what a step needs; -1 where the memory is unknown.
int64_t FitIn(const Hardware& hardware, const Footprint& memory, int64_t weight_bytes,
              int64_t sequence_bytes) {
  if (hardware.memory_bytes == 0) return -1;
  const int64_t left =
      hardware.memory_bytes - weight_bytes - memory.runner.arena - memory.runner.scratch;
  return std::max<int64_t>(0, left / sequence_bytes);
}

std::vector<KvVariant> VariantsOf(const Study& study, int64_t block_size) {
  std::vector<KvVariant> variants;
  for (const KvType type : AllKvTypes()) {
    const KvOptions options{.k_type = type, .v_type = type, .block_size = block_size};
    const Result<KvFacts> facts = KvFactsOf(study.model.plan, options, study.context);
    if (!facts) continue;
    variants.push_back(
        {.type = type,
         .bytes_per_token = facts->bytes_per_token,
         .sequence_bytes = facts->sequence_bytes,
         .fit = FitIn(study.hardware, study.memory, study.weight_bytes, facts->sequence_bytes)});
  }
  return variants;
}

// What a process has that runs the model, before weights: this one with the model's tokenizer.
int64_t ProcessBytes(const Model& model) {
  Result<LoadedTokenizer> text = Err(ErrorCode::kNotFound, "an outline has none");
  if (model.checkpoint != nullptr) text = LoadTokenizerOf(*model.checkpoint);
  return ResidentMemory();
}

Status CheckSizes(const Study& study) {
  if (study.batch < 1) {
    return Err(ErrorCode::kInvalidArgument, "a batch of {} sequences: choose at least 1",
               study.batch);
  }
  if (study.prompt < 1 || study.prompt > study.context) {
    return Err(ErrorCode::kInvalidArgument,
               "a prompt of {} tokens does not fit a context of {}; choose 1 to {}", study.prompt,
               study.context, study.context);
  }
  return {};
}

}  // namespace

Result<Study> MakeStudy(const StudyOptions& options) {
  Study study;
  LUCID_ASSIGN_OR_RETURN(study.model,
                         LoadHeaders(options.engine.model, options.type, options.engine.rope));
  study.outline = study.model.checkpoint == nullptr;
  EngineConfig config = options.engine;
  if (config.context == 0) {
    config.context = std::min(kUsualContext, study.model.config.context_length);
  }
  const Plan& plan = study.model.plan;
  study.batch = config.n_parallel;
  study.k_type = config.cache_type_k;
  study.v_type = config.cache_type_v;
  LUCID_ASSIGN_OR_RETURN(study.context, ContextOf(study.model.config, config));
  study.prompt = options.prompt > 0 ? options.prompt : std::min(kUsualPrompt, study.context);
  LUCID_RETURN_IF_ERROR(CheckSizes(study));
  study.weights = ListWeights(plan, study.model.weights.dtypes());
  double active = 0;
  for (const LedgerWeight& weight : study.weights) {
    study.params += weight.params;
    study.weight_bytes += weight.bytes;
    active += static_cast<double>(weight.params) * weight.used;
  }
  study.active_params = static_cast<int64_t>(active + 0.5);
  const KvOptions kv{.k_type = config.cache_type_k,
                     .v_type = config.cache_type_v,
                     .block_size = config.kv_block_size};
  LUCID_ASSIGN_OR_RETURN(study.kv, KvFactsOf(plan, kv, study.context));
  LUCID_ASSIGN_OR_RETURN(study.memory, ForeseeEngine(study.model, config, /*available=*/0));
  study.process_bytes = ProcessBytes(study.model);
  study.resident_bytes =
      study.process_bytes + TouchedBytes(study.model, config, study.memory, study.prompt);

  Workload types;
  types.k_type = config.cache_type_k;
  types.v_type = config.cache_type_v;
  types.kv_block_size = config.kv_block_size;
  types.weight_dtypes = study.model.weights.dtypes();
  study.token_bytes = StreamedBytes(plan, study.model.weights.dtypes());
  LUCID_ASSIGN_OR_RETURN(study.hardware, ChooseHardware(options, study));
  const Plan fused = FusedPlan(study.model);
  if (options.prefill) {
    const bool in_steps = !study.hardware.kernels.empty();
    const int64_t step_tokens = in_steps ? config.batch : study.batch * study.prompt;
    study.prefill = StudyPhase(
        study, PromptWork(study.batch, study.prompt, types),
        PredictPrompts(study.hardware, fused, study.batch, study.prompt, step_tokens, types));
  }
  if (options.decode) {
    const Workload work = DecodeWork(study.batch, study.context, types);
    study.decode = StudyPhase(study, work, PredictStep(study.hardware, fused, work));
  }
  study.kv_passes_weights = KvPassesWeights(plan, types);
  study.compute_bound_batch = ComputeBoundBatch(study.hardware, fused, study.context, types);
  study.fit = FitIn(study.hardware, study.memory, study.weight_bytes, study.kv.sequence_bytes);
  study.variants = VariantsOf(study, config.kv_block_size);
  return study;
}

}  // namespace lucid
