// lucid batch: every row of a JSONL file through one engine, to another JSONL file.
//
//   lucid batch in.jsonl -m MODEL -o out.jsonl
//
// This file declares the flags; batch_run.h does the work.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cli/batch_run.h"
#include "cli/command.h"
#include "cli/engine_flags.h"
#include "cli/model_flags.h"
#include "cli/sampling_flags.h"

namespace lucid::cli {
namespace {

struct BatchFlags {
  ModelFlags model;
  EngineFlags engine;
  SamplingFlags sampling;
  RequestCacheFlags cache;
  std::string input, output, chat_template_file;
  int64_t n_predict = -1;
  bool as_finished = false, overwrite = false;
};

void PrintSummary(const BatchRun& run, int64_t done_before) {
  const BatchTotals& t = run.totals();
  const double seconds = run.seconds();
  std::string line = fmt::format("{} lines answered", t.answered);
  if (t.failed > 0) line += fmt::format(", {} refused with an error row", t.failed);
  if (t.no_capacity > 0) {
    line +=
        fmt::format(" ({} for lack of capacity, which the next run tries again)", t.no_capacity);
  }
  if (done_before > 0) line += fmt::format(", {} done before", done_before);
  line += fmt::format(" in {:.2f} s", seconds);
  if (t.prompt_tokens > 0) {
    line +=
        fmt::format(" | prompt {} tokens ({} cached) {:.1f} tok/s | reply {} tokens {:.1f} tok/s",
                    t.prompt_tokens, t.cached_tokens,
                    static_cast<double>(t.prompt_tokens - t.cached_tokens) / seconds,
                    t.reply_tokens, static_cast<double>(t.reply_tokens) / seconds);
  }
  if (t.interrupted) line += " | interrupted, the same command goes on from here";
  fmt::print(stderr, "{}\n", line);
}

Status Run(const BatchFlags& flags, CommandContext& context) {
  // What is wrong with the files or the flags is told before a model is loaded for them.
  LUCID_ASSIGN_OR_RETURN(const SamplerParams sampling, ToSamplerParams(flags.sampling));
  LUCID_RETURN_IF_ERROR(SamplerChain::Create(sampling));
  LUCID_RETURN_IF_ERROR(CheckCacheFlags(flags.cache, flags.engine));
  LUCID_ASSIGN_OR_RETURN(const BatchIndex index, BatchIndex::Make(flags.input));
  LUCID_ASSIGN_OR_RETURN(LineReader reader, LineReader::Open(flags.input));
  LUCID_ASSIGN_OR_RETURN(BatchOutput output,
                         BatchOutput::Open(flags.output, flags.overwrite, flags.input, index));
  const int64_t done_before = output.n_done();
  LUCID_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                         LoadEngine(flags.model, flags.engine));
  LUCID_RETURN_IF_ERROR(CheckCacheFlags(flags.cache, *engine));
  std::optional<ChatTemplate> own;
  BatchOptions options{
      .as_finished = flags.as_finished,
      .model_name = flags.model.model,
      .api = {.tokenizer = engine->tokenizer(),
              .chat_template = FindChatTemplate(flags.chat_template_file, *engine, own)}};
  if (!flags.chat_template_file.empty()) LUCID_RETURN_IF_ERROR(options.api.chat_template);
  options.api.defaults.sampling = sampling;
  options.api.defaults.max_tokens = flags.n_predict;
  ApplyCacheFlags(flags.cache, options.api.defaults);
  LUCID_RETURN_IF_ERROR(output.Begin(index));
  BatchRun run(*engine, index, std::move(reader), output, options);
  LUCID_RETURN_IF_ERROR(run.Run());
  PrintSummary(run, done_before);
  const BatchTotals& totals = run.totals();
  if (totals.no_capacity > 0 || (totals.failed > 0 && totals.answered + done_before == 0))
    context.exit_code = 1;
  if (totals.interrupted) context.exit_code = 130;  // as the shell reports Ctrl-C
  return {};
}

}  // namespace

void AddBatchCommand(CLI::App& root, CommandContext& context) {
  CLI::App* command = root.add_subcommand("batch", "Answer every line of a JSONL file");
  auto flags = std::make_shared<BatchFlags>();
  flags->engine.parallel = 64;
  flags->engine.max_queue = 64;
  command->add_option("input", flags->input, "the file to read: one JSON object a line")
      ->required();
  AddModelFlags(*command, flags->model);
  command->add_option("-o,--output", flags->output, "the file to write")->required();
  command->add_flag("--overwrite", flags->overwrite,
                    "begin anew, instead of going on after the lines that the output has");
  command->add_flag(
      "--as-finished", flags->as_finished,
      "leave lines in the order in which they were finished, instead of bringing them "
      "into the order of the input when the run ends");
  command
      ->add_option(
          "-n,--n-predict", flags->n_predict,
          "most tokens of a reply where a line says no max_tokens; -1: until the model ends")
      ->check(CLI::Range(int64_t{-1}, int64_t{1} << 30))
      ->capture_default_str();
  command->add_option("--chat-template", flags->chat_template_file,
                      "a file with the template to use");
  AddSamplingFlags(*command, flags->sampling);
  AddParallelFlags(*command, flags->engine)->capture_default_str();
  AddChunkFlag(*command, flags->engine);
  AddQueueFlags(*command, flags->engine);
  AddCacheFlags(*command, flags->engine);
  AddReuseFlags(*command, flags->engine);
  AddRequestCacheFlags(*command, flags->cache);
  command->footer(
      "A line is a row of OpenAI's batch format,\n"
      "  {\"custom_id\": \"a\", \"method\": \"POST\", \"url\": \"/v1/chat/completions\", \"body\": "
      "{...}}\n"
      "or plain, with the members of such a body beside the id,\n"
      "  {\"custom_id\": \"a\", \"prompt\": \"Once upon a time\", \"max_tokens\": 64}\n"
      "The output has a line {\"id\", \"custom_id\", \"response\": {\"status_code\", "
      "\"request_id\", \"body\"},\n"
      "\"error\"} for each. Lines without a custom_id are told by \"line\", their number. Unknown "
      "members,\n"
      "wrong values and what cannot be served are error lines; the run goes on. Sampling flags are "
      "the\n"
      "defaults of lines that say nothing else. Run again after an interruption, it goes on where "
      "it was.");
  command->callback([flags, &context] {
    if (const Status status = Run(*flags, context); !status) ReportError(status.error(), context);
  });
}

}  // namespace lucid::cli
