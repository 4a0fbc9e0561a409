// lucid trace MODEL: how shapes go through a model, a prefill and a decode step side by side, drawn
// from the plan; and from a run: kernels and times, values, and whether the texts' invariants hold.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "cli/command.h"
#include "cli/layer_range.h"
#include "cli/model_flags.h"
#include "cli/trace_report.h"
#include "engine/describe.h"
#include "engine/tokenizer_loader.h"
#include "engine/trace.h"
#include "engine/traced_run.h"
#include "plan/print.h"
#include "store/model_store.h"

namespace lucid::cli {
namespace {

struct TraceFlags {
  ModelFlags model;
  int64_t sequences = 0;  // 0: 2, of a given prompt 1
  int64_t prompt_tokens = 10;
  int64_t cached = 0;
  std::string tokens, prompt;
  CLI::Option *tokens_option = nullptr, *prompt_option = nullptr;
  std::string format = "text", layers, type;
  bool full = false, fused = false;
  bool run = false, values = false, invariants = false;
  bool json = false, plan = false;

  bool given() const { return tokens_option->count() + prompt_option->count() > 0; }
  bool runs() const { return run || json || values || invariants; }
};

// Decode steps behind the prefill in which the cache must stay as it was.
constexpr int64_t kCheckedSteps = 3;

Result<std::vector<TokenId>> GivenPrompt(const TraceFlags& flags, const std::string& path) {
  if (flags.tokens_option->count() > 0) return ParseTokenIds(flags.tokens);
  LUCID_ASSIGN_OR_RETURN(const LoadedTokenizer text, LoadTokenizer(path));
  return text.tokenizer->Encode(flags.prompt);
}

// Sizes and layers; `prompt` of the given one, or empty.
Result<FlowOptions> OptionsOf(const TraceFlags& flags, const std::vector<TokenId>& prompt) {
  FlowOptions options;
  options.batch = flags.sequences > 0 ? flags.sequences : flags.given() ? 1 : 2;
  options.prompt = flags.given() ? std::ssize(prompt) : flags.prompt_tokens;
  options.cached = flags.cached;
  options.all_layers = flags.full;
  if (!flags.layers.empty()) {
    LUCID_ASSIGN_OR_RETURN(options.layers, ParseLayers(flags.layers));
  }
  return options;
}

void PrintJson(const nlohmann::ordered_json& json) {
  fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

void PrintReport(const TraceFlags& flags, const TraceReport& report) {
  if (flags.format == "json") {
    PrintJson(TraceFlowJson(report));
    return;
  }
  const bool only_invariants = flags.invariants && !flags.values && !flags.run;
  const std::string text = flags.format == "html" ? TraceFlowHtml(report)
                           : only_invariants      ? InvariantsText(report.invariants)
                                                  : TraceFlowText(report);
  std::fwrite(text.data(), 1, text.size(), stdout);
}

// The ops as they ran, for a terminal or as JSON: operands, kernels, times.
void PrintOps(const TraceFlags& flags, const Engine& engine, const FlowOptions& sizes,
              const std::vector<TokenId>& prompt, const TraceRecorder& prefill,
              const TraceRecorder& decode) {
  const int64_t tokens = sizes.batch * sizes.prompt;
  if (flags.json || flags.format == "json") {
    PrintJson(
        {{"model", engine.config().model},
         {"arch", engine.runner().plan().arch},
         {"threads", engine.runner().n_threads()},
         {"sequences", sizes.batch},
         {"prompt_ids", prompt},
         {"phases",
          {{{"phase", "prefill"}, {"tokens", tokens}, {"ops", TraceJson(prefill.ops())}},
           {{"phase", "decode"}, {"tokens", sizes.batch}, {"ops", TraceJson(decode.ops())}}}}});
    return;
  }
  fmt::print("# prefill: {} token{}\n{}\n# decode: {} token{} at position {}\n{}", tokens,
             tokens == 1 ? "" : "s", PrintTrace(prefill.ops()), sizes.batch,
             sizes.batch == 1 ? "" : "s", sizes.prompt, PrintTrace(decode.ops()));
}

// Runs that look at attention keep all of its weights.
Status CheckWeightsKept(const ModelConfig& config, const FlowOptions& sizes) {
  constexpr double kMost = 1 << 28;  // numbers: a GiB
  const auto tokens = static_cast<double>(sizes.prompt);
  const double weights = static_cast<double>(sizes.batch * config.n_layers * config.n_heads) *
                         (tokens * (tokens + 1) / 2);
  if (weights <= kMost) return {};
  return Err(ErrorCode::kCapacity,
             "prompts of {} x {} tokens have {:.0f} attention weights, more than {:.0f} are not "
             "kept; use shorter ones (--prompt-tokens) or fewer (-B)",
             sizes.batch, sizes.prompt, weights, kMost);
}

Status CheckVerdicts(const std::vector<InvariantResult>& invariants) {
  const auto failed = std::ranges::count(invariants, Verdict::kFail, &InvariantResult::verdict);
  if (failed == 0) return {};
  return Err(ErrorCode::kUnsupported, "{} of {} invariants do not hold", failed, invariants.size());
}

Status RunModel(const TraceFlags& flags, const std::vector<TokenId>& given,
                const FlowOptions& sizes) {
  LUCID_ASSIGN_OR_RETURN(EngineConfig config, ToEngineConfig(flags.model));
  PrepareForTrace(sizes.batch, sizes.prompt, config);
  LUCID_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Load(config));
  const Model& model = engine->model();
  if (flags.values || flags.invariants) {
    LUCID_RETURN_IF_ERROR(CheckWeightsKept(model.config, sizes));
  }
  std::vector<std::vector<TokenId>> prompts =
      flags.given() ? std::vector(static_cast<size_t>(sizes.batch), given)
                    : MadeUpPrompts(sizes.batch, sizes.prompt, model.config.vocab_size);
  const KvOptions kv = engine->kv_layout().options();
  ByPhase<TraceRecorder> ops = {TraceRecorder(model.weights, kv), TraceRecorder(model.weights, kv)};
  ByPhase<ValueRecorder> values;
  StepRecorder steps;
  RunObservers observers{.prefill = {&ops[0]}, .decode = {&ops[1]}};
  if (flags.values) {
    observers.prefill.push_back(&values[0]);
    observers.decode.push_back(&values[1]);
  }
  if (flags.invariants) observers.every.push_back(&steps);
  LUCID_RETURN_IF_ERROR(
      RunObserved(*engine, prompts, flags.invariants ? kCheckedSteps : 1, observers));
  if (flags.json || (flags.run && !flags.values && !flags.invariants && flags.format != "html")) {
    PrintOps(flags, *engine, sizes, prompts[0], ops[0], ops[1]);
    return {};
  }
  TraceReport report;
  report.model = flags.model.model;
  report.fused = config.backend == BackendKind::kCpu;
  FlowOptions options = sizes;
  options.kv = kv;
  LUCID_ASSIGN_OR_RETURN(report.flow, MakeShapeFlow(engine->runner().plan(), model.config,
                                                    model.weights.dtypes(), options));
  for (size_t phase = 0; phase < 2; ++phase) {
    if (flags.run) report.ran[phase] = ops[phase].ops();
    report.values[phase] = values[phase].values();
    report.attention[phase] = values[phase].attention();
  }
  if (flags.invariants) report.invariants = CheckInvariants(steps.steps(), model.config);
  PrintReport(flags, report);
  return CheckVerdicts(report.invariants);
}

Status Run(const TraceFlags& flags) {
  LUCID_ASSIGN_OR_RETURN(const std::string path, ResolveModel(flags.model.model));
  const bool fused = flags.fused || (flags.plan && flags.model.backend != "reference");
  if (flags.plan) {
    LUCID_ASSIGN_OR_RETURN(const PlanDescription described,
                           DescribePlan(path, flags.type, flags.model.rope, fused));
    fmt::print("{}", PrintPlan(described.plan));
    return {};
  }
  std::vector<TokenId> given;
  if (flags.given()) {
    LUCID_ASSIGN_OR_RETURN(given, GivenPrompt(flags, path));
    if (given.empty()) return Err(ErrorCode::kInvalidArgument, "the prompt has no tokens");
  }
  LUCID_ASSIGN_OR_RETURN(FlowOptions options, OptionsOf(flags, given));
  if (flags.runs()) return RunModel(flags, given, options);
  LUCID_ASSIGN_OR_RETURN(const EngineConfig config, ToEngineConfig(flags.model));
  options.kv = {.k_type = config.cache_type_k,
                .v_type = config.cache_type_v,
                .block_size = config.kv_block_size};
  TraceReport report;
  report.model = flags.model.model;
  report.fused = fused;
  LUCID_ASSIGN_OR_RETURN(report.flow,
                         DescribeFlow(path, flags.type, flags.model.rope, fused, options));
  PrintReport(flags, report);
  return {};
}

// Of the steps that are drawn.
void AddSizeFlags(CLI::App& command, TraceFlags& flags) {
  constexpr int64_t kMost = int64_t{1} << 24;
  command
      .add_option("-B,--batch", flags.sequences,
                  "sequences of a step; without it 2, of a given prompt 1")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}));
  CLI::Option* count =
      command.add_option("--prompt-tokens", flags.prompt_tokens, "tokens of each prompt")
          ->check(CLI::Range(int64_t{1}, kMost))
          ->capture_default_str();
  flags.tokens_option =
      command.add_option("--tokens", flags.tokens, "the prompt as token ids, separated by commas")
          ->excludes(count);
  flags.prompt_option = command.add_option("-p,--prompt", flags.prompt, "the prompt as text")
                            ->excludes(count)
                            ->excludes(flags.tokens_option);
  command
      .add_option("--cache", flags.cached,
                  "positions in the cache before the decode step; without it, the prompt's")
      ->check(CLI::Range(int64_t{1}, kMost));
}

void AddViewFlags(CLI::App& command, TraceFlags& flags) {
  command.add_option("--format", flags.format, "text, json, or html: one page that needs no other")
      ->check(CLI::IsMember({"text", "json", "html"}))
      ->capture_default_str();
  command.add_flag("--full", flags.full, "every layer by itself, not equal ones as one");
  command
      .add_option("--layers", flags.layers,
                  "a layer (3) or a range of them (3-7) to show each by itself")
      ->type_name("N|A-B");
  command.add_flag("--fused", flags.fused,
                   "the plan as it runs, neighbouring ops fused; without it, as declared");
  command.add_option("--type", flags.type,
                     "weights as of this type: f16, q8_0, q4_k_m, ...; without it, as the model "
                     "has them");
}

}  // namespace

void AddTraceCommand(CLI::App& root, CommandContext& context) {
  CLI::App* command = root.add_subcommand(
      "trace", "Show how shapes go through a model in prefill and decode, or what a run of it did");
  auto flags = std::make_shared<TraceFlags>();
  CLI::Option* model =
      command->add_option("model,-m,--model", flags->model.model,
                          "model: a file, a folder, a config.json or a name of 'lucid models'");
  AddSizeFlags(*command, *flags);
  AddViewFlags(*command, *flags);
  CLI::Option* run = command->add_flag(
      "--run", flags->run, "run the model, and show each op as it ran: operands, kernel, time");
  CLI::Option* values =
      command->add_flag("--values", flags->values,
                        "run the model, and show what the ops gave: range and some numbers");
  CLI::Option* invariants = command->add_flag(
      "--invariants", flags->invariants,
      "run the model, and say of each invariant whether it held; an error if one did not");
  CLI::Option* json = command->add_flag("--json", flags->json, "as --run --format json");
  CLI::Option* plan = command->add_flag("--plan", flags->plan,
                                        "print the plan, symbolic, as text, without running it");
  for (CLI::Option* running : {run, values, invariants, json}) {
    for (const char* drawn : {"--cache", "--type", "--fused"}) running->excludes(drawn);
    running->excludes(plan);
  }
  json->excludes(values)->excludes(invariants);
  AddRunFlags(*command, flags->model);
  command->footer(
      "Without --run, --values and --invariants the model's headers are enough. --backend "
      "reference "
      "runs the plan as declared, before ops are fused.");
  command->callback([flags, model, &context] {
    // Not required(): its message would name the flag alone.
    if (model->count() == 0) throw CLI::RequiredError("a model, as in 'lucid trace MODEL',");
    if (const Status status = Run(*flags); !status) ReportError(status.error(), context);
  });
}

}  // namespace lucid::cli
