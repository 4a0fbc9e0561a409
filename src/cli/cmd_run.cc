// lucid run: one prompt, one streamed reply. Chat templates apply unless --raw; figures go to
// stderr.
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/command.h"
#include "cli/generate.h"
#include "cli/model_flags.h"
#include "cli/sampling_flags.h"
#include "engine/chat_prompt.h"

namespace lucid::cli {
namespace {

using Json = nlohmann::ordered_json;

struct RunFlags {
  ModelFlags model;
  SamplingFlags sampling;
  std::string prompt, file, system, chat_template_file;
  CLI::Option* prompt_option = nullptr;
  int64_t n_predict = -1;
  bool raw = false, json = false, explain = false, ignore_eos = false, stats = false,
       no_stats = false;
  std::vector<std::string> stop;
  int logprobs = -1;
};

// A file's last newline ends its last line and is not part of the prompt.
Result<std::string> ReadPromptFile(const std::string& path) {
  LUCID_ASSIGN_OR_RETURN(std::string text, ReadTextFile(path));
  if (text.ends_with('\n')) text.pop_back();
  if (text.empty()) {
    return Err(ErrorCode::kInvalidArgument, "the prompt from {} is empty",
               path == "-" ? "standard input" : path);
  }
  return text;
}

Result<std::string> ReadPrompt(const RunFlags& flags) {
  if (flags.prompt_option->count() > 0) return flags.prompt;
  if (!flags.file.empty()) return ReadPromptFile(flags.file);
  if (isatty(STDIN_FILENO)) {
    return Err(ErrorCode::kInvalidArgument,
               "no prompt: give one with -p or -f, pipe one in, or use 'lucid chat'");
  }
  return ReadPromptFile("-");
}

// The template of --chat-template, else the model's own; nullptr for raw prompts.
Result<const ChatTemplate*> FindTemplate(const RunFlags& flags, const Engine& engine,
                                         std::optional<ChatTemplate>& own) {
  if (flags.raw) return nullptr;
  Result<const ChatTemplate*> found = FindChatTemplate(flags.chat_template_file, engine, own);
  const bool has_none =
      !found && found.error().code == ErrorCode::kNotFound && flags.chat_template_file.empty();
  if (!has_none || !flags.system.empty()) return found;  // a system message needs a template
  fmt::print(
      stderr,
      "lucid: the model has no chat template; continuing the prompt as it is (like --raw)\n");
  return nullptr;
}

Result<std::vector<TokenId>> EncodePrompt(const RunFlags& flags, const Engine& engine) {
  LUCID_ASSIGN_OR_RETURN(const std::string text, ReadPrompt(flags));
  LUCID_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, engine.tokenizer());
  std::optional<ChatTemplate> own;
  LUCID_ASSIGN_OR_RETURN(const ChatTemplate* chat_template, FindTemplate(flags, engine, own));
  if (chat_template == nullptr) return tokenizer->Encode(text);
  Json messages = Json::array();
  if (!flags.system.empty()) messages.push_back({{"role", "system"}, {"content", flags.system}});
  messages.push_back({{"role", "user"}, {"content", text}});
  LUCID_ASSIGN_OR_RETURN(ChatPrompt prompt,
                         RenderChatPrompt(*chat_template, *tokenizer, messages, {}));
  return std::move(prompt.ids);
}

std::string Quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string Piece(const Tokenizer& tokenizer, TokenId id) {
  return Quoted(std::string(tokenizer.PieceBytes(id)));
}

std::string Candidates(const Tokenizer& tokenizer, std::span<const TokenProb> list) {
  std::string text;
  for (const TokenProb& t : list) {
    text += fmt::format("{}{} {:.4f}", text.empty() ? "" : "  ", Piece(tokenizer, t.id),
                        std::exp(t.logprob));
  }
  return text;
}

// What every stage did to one token's distribution, as a small table.
void PrintExplanation(const Tokenizer& tokenizer, const TokenOutput& out, size_t index) {
  const SampleReport& report = *out.explain;
  fmt::print("token {}: {} {}\n", index, out.id, Piece(tokenizer, out.id));
  fmt::print("  before: {}\n", Candidates(tokenizer, report.top_before));
  fmt::print("  {:<28} {:>17} {:>13} {:>18}\n", "stage", "candidates", "mass removed",
             "entropy (nats)");
  for (const StageReport& stage : report.stages) {
    fmt::print("  {:<28} {:>7} -> {:>6} {:>13.6f} {:>8.4f} -> {:>6.4f}\n", stage.setting,
               stage.kept_before, stage.kept_after, stage.mass_removed, stage.entropy_before,
               stage.entropy_after);
  }
  fmt::print("  after:  {}\n", Candidates(tokenizer, report.top_after));
  if (std::isnan(report.draw)) {
    fmt::print("  draw:   none, one candidate is left\n");
  } else {
    fmt::print("  draw:   u = {:.6f}, chosen with probability {:.4f}\n", report.draw,
               report.final_prob);
  }
}

void PrintLogprobs(const Tokenizer& tokenizer, const TokenOutput& out) {
  fmt::print("{:>8} {:<20} {:>9.5f}", out.id, Piece(tokenizer, out.id), out.logprobs->chosen);
  for (const TokenProb& t : out.logprobs->top)
    fmt::print("  {} {:.5f}", Piece(tokenizer, t.id), t.logprob);
  fmt::print("\n");
}

// A log-probability as JSON: null where it is minus infinity.
Json Number(double x) {
  return std::isfinite(x) ? Json(x) : Json(nullptr);
}

Json ProbsJson(const Tokenizer& tokenizer, std::span<const TokenProb> list) {
  Json array = Json::array();
  for (const TokenProb& t : list) {
    array.push_back({{"id", t.id},
                     {"token", std::string(tokenizer.PieceBytes(t.id))},
                     {"logprob", Number(t.logprob)}});
  }
  return array;
}

Json ExplainJson(const Tokenizer& tokenizer, const SampleReport& report) {
  Json stages = Json::array();
  for (const StageReport& s : report.stages) {
    stages.push_back({{"name", s.name},
                      {"setting", s.setting},
                      {"kept_before", s.kept_before},
                      {"kept_after", s.kept_after},
                      {"mass_removed", s.mass_removed},
                      {"entropy_before", s.entropy_before},
                      {"entropy_after", s.entropy_after}});
  }
  return {{"stages", std::move(stages)},
          {"top_before", ProbsJson(tokenizer, report.top_before)},
          {"top_after", ProbsJson(tokenizer, report.top_after)},
          {"draw", Number(report.draw)},
          {"final_prob", report.final_prob}};
}

Json ReplyJson(const Engine& engine, const Tokenizer& tokenizer, const Reply& reply,
               const Request& request, const std::string& sampler) {
  Json tokens = Json::array();
  for (const TokenOutput& out : reply.outputs) {
    Json token = {
        {"id", out.id}, {"token", std::string(tokenizer.PieceBytes(out.id))}, {"text", out.text}};
    if (out.logprobs) {
      token["logprob"] = Number(out.logprobs->chosen);
      token["top_logprobs"] = ProbsJson(tokenizer, out.logprobs->top);
    }
    if (out.explain) token["explain"] = ExplainJson(tokenizer, *out.explain);
    tokens.push_back(std::move(token));
  }
  const RequestStats& s = reply.stats;
  return {{"model", engine.config().model},
          {"text", reply.text},
          {"finish_reason", FinishReason(reply.cause)},
          {"stop_cause", StopCauseName(reply.cause)},
          {"seed", request.sampling.seed},
          {"sampler", sampler},
          {"prompt_ids", request.prompt},
          {"tokens", std::move(tokens)},
          {"usage",
           {{"prompt_tokens", s.prompt_tokens},
            {"cached_tokens", s.cached_tokens},
            {"completion_tokens", s.generated_tokens}}},
          {"timings",
           {{"load_seconds", engine.load_seconds()},
            {"prefill_seconds", s.prefill_seconds},
            {"decode_seconds", s.decode_seconds},
            {"prompt_tokens_per_second", s.prefill_tokens_per_second()},
            {"decode_tokens_per_second", s.decode_tokens_per_second()}}}};
}

Status Run(const RunFlags& flags, CommandContext& context) {
  LUCID_ASSIGN_OR_RETURN(const SamplerParams sampling, ToSamplerParams(flags.sampling));
  LUCID_RETURN_IF_ERROR(
      SamplerChain::Create(sampling));  // a wrong value is told before a model is loaded for it
  LUCID_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, LoadEngine(flags.model));
  Request request;
  LUCID_ASSIGN_OR_RETURN(request.prompt, EncodePrompt(flags, *engine));
  request.sampling = sampling;
  request.max_tokens = flags.n_predict;
  request.stop = flags.stop;
  request.ignore_eos = flags.ignore_eos;
  request.n_logprobs = flags.logprobs;
  request.explain = flags.explain;

  LUCID_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, engine->tokenizer());
  const bool tables = flags.explain || flags.logprobs >= 0;
  size_t index = 0;
  LUCID_ASSIGN_OR_RETURN(const Reply reply, Generate(*engine, request, [&](const TokenOutput& out) {
                           if (flags.json) return;
                           if (out.explain) PrintExplanation(*tokenizer, out, index++);
                           if (out.logprobs) PrintLogprobs(*tokenizer, out);
                           if (!tables) {
                             std::fwrite(out.text.data(), 1, out.text.size(), stdout);
                             std::fflush(stdout);
                           }
                         }));
  if (flags.json) {
    LUCID_ASSIGN_OR_RETURN(const SamplerChain chain, SamplerChain::Create(sampling));
    const Json json = ReplyJson(*engine, *tokenizer, reply, request, chain.Describe());
    fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    fmt::print("{}\n", tables ? reply.text : "");
  }
  if (std::fflush(stdout) != 0) return Err(ErrorCode::kIo, "cannot write to standard output");
  // Figures are for people: on a terminal, or where asked for.
  if (!flags.no_stats && (flags.stats || (isatty(STDOUT_FILENO) && !flags.json))) {
    fmt::print(stderr, "\n{}\n", StatsLine(reply, sampling.seed));
  }
  if (reply.cause == StopCause::kAborted) context.exit_code = 130;  // as the shell reports Ctrl-C
  return {};
}

}  // namespace

void AddRunCommand(CLI::App& root, CommandContext& context) {
  CLI::App* command = root.add_subcommand("run", "Answer one prompt, streaming");
  auto flags = std::make_shared<RunFlags>();
  AddModelFlags(*command, flags->model);
  AddSamplingFlags(*command, flags->sampling);
  flags->prompt_option = command->add_option("-p,--prompt", flags->prompt, "the prompt");
  command->add_option("-f,--file", flags->file, "read the prompt from a file; - is standard input")
      ->excludes(flags->prompt_option);
  CLI::Option* system =
      command->add_option("--system", flags->system, "a system message before the prompt");
  command
      ->add_option("-n,--n-predict", flags->n_predict,
                   "most tokens to generate; -1: until the model ends")
      ->check(CLI::Range(int64_t{-1}, int64_t{1} << 30))
      ->capture_default_str();
  CLI::Option* chat_template = command->add_option("--chat-template", flags->chat_template_file,
                                                   "a file with the template to use");
  command->add_flag("--raw", flags->raw, "continue the prompt as it is, without the chat template")
      ->excludes(system)
      ->excludes(chat_template);
  command
      ->add_option("--stop,-r,--reverse-prompt", flags->stop,
                   "end the reply before this text; may be repeated")
      ->allow_extra_args(false);
  command->add_flag("--ignore-eos", flags->ignore_eos, "go on after the end-of-generation token");
  command
      ->add_option("--logprobs", flags->logprobs,
                   "print each token's log-probability and N alternatives")
      ->check(CLI::Range(0, 1000));
  command->add_flag("--explain-sampling", flags->explain,
                    "print what every sampler stage did, for each token");
  command->add_flag("--json", flags->json, "print one JSON object at the end instead of streaming");
  command->add_flag("--stats", flags->stats, "print the line of figures even when piped");
  command->add_flag("--no-stats", flags->no_stats, "never print the line of figures");
  command->callback([flags, &context] {
    if (const Status status = Run(*flags, context); !status) ReportError(status.error(), context);
  });
}

}  // namespace lucid::cli
