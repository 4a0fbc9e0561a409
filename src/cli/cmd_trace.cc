// lucid trace: every op of a prefill and of the decode step after it, with shapes, dtypes, kernels,
// costs and times.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/command.h"
#include "cli/model_flags.h"
#include "engine/trace.h"
#include "plan/print.h"

namespace lucid::cli {
namespace {

struct TraceFlags {
  ModelFlags model;
  std::string tokens;
  std::string prompt = "The capital of France is";
  CLI::Option* tokens_option = nullptr;
  bool json = false, plan = false;
};

Result<std::vector<TokenId>> InputIds(const TraceFlags& flags, const Engine& engine) {
  if (flags.tokens_option->count() > 0) return ParseTokenIds(flags.tokens);
  LUCID_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, engine.tokenizer());
  return tokenizer->Encode(flags.prompt);
}

Status Run(const TraceFlags& flags) {
  LUCID_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, LoadEngine(flags.model));
  if (flags.plan) {
    fmt::print("{}", PrintPlan(engine->runner().plan()));
    return {};
  }
  LUCID_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, InputIds(flags, *engine));
  TraceRecorder prefill(engine->model().weights, engine->kv_layout().options());
  TraceRecorder decode(engine->model().weights, engine->kv_layout().options());
  Request request;
  request.prompt = ids;
  request.sampling.temperature = 0;
  request.max_tokens = 2;
  request.ignore_eos = true;
  LUCID_ASSIGN_OR_RETURN(Stream stream, engine->Submit(std::move(request)));
  // The first step that gives a token ends the prefill; the next is a decode step.
  TraceRecorder* recorder = &prefill;
  while (engine->Step(recorder)) {
    while (const std::optional<TokenOutput> out = stream.TryNext()) {
      if (out->error) return tl::unexpected<Error>(*out->error);
      recorder = &decode;
    }
  }
  if (flags.json) {
    const nlohmann::ordered_json json = {
        {"model", engine->config().model},
        {"arch", engine->runner().plan().arch},
        {"threads", engine->runner().n_threads()},
        {"prompt_ids", ids},
        {"phases",
         {{{"phase", "prefill"}, {"tokens", ids.size()}, {"ops", TraceJson(prefill.ops())}},
          {{"phase", "decode"}, {"tokens", 1}, {"ops", TraceJson(decode.ops())}}}}};
    fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    return {};
  }
  fmt::print("# prefill: {} tokens\n{}\n# decode: 1 token at position {}\n{}", ids.size(),
             PrintTrace(prefill.ops()), ids.size(), PrintTrace(decode.ops()));
  return {};
}

}  // namespace

void AddTraceCommand(CLI::App& root, CommandContext& context) {
  CLI::App* command =
      root.add_subcommand("trace", "Show every op of a prefill and a decode step as it ran");
  auto flags = std::make_shared<TraceFlags>();
  AddModelFlags(*command, flags->model);
  CLI::Option* tokens = command->add_option("--tokens", flags->tokens,
                                            "token ids of the prompt, separated by commas");
  flags->tokens_option = tokens;
  command->add_option("-p,--prompt", flags->prompt, "text of the prompt")
      ->excludes(tokens)
      ->capture_default_str();
  CLI::Option* json = command->add_flag("--json", flags->json, "print JSON");
  command->add_flag("--plan", flags->plan, "print the plan, symbolic, as text, without running it")
      ->excludes(json);
  command->footer("--backend reference traces the plan as declared, before ops are fused.");
  command->callback([flags, &context] {
    if (const Status status = Run(*flags); !status) ReportError(status.error(), context);
  });
}

}  // namespace lucid::cli
