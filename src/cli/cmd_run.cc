// lucid run: one prompt, one streamed reply, or several. Chat templates apply unless --raw; figures
// go to stderr.
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/command.h"
#include "cli/engine_flags.h"
#include "cli/generate.h"
#include "cli/model_flags.h"
#include "cli/sampling_flags.h"
#include "engine/chat_prompt.h"
#include "engine/openai_response.h"

namespace lucid::cli {
namespace {

using Json = nlohmann::ordered_json;

struct RunFlags {
  ModelFlags model;
  EngineFlags engine;
  SamplingFlags sampling;
  RequestCacheFlags cache;
  std::string prompt, file, system, chat_template_file;
  CLI::Option* prompt_option = nullptr;
  int64_t n_predict = -1;
  bool raw = false, json = false, explain = false, ignore_eos = false, stats = false,
       no_stats = false;
  std::vector<std::string> stop;
  int logprobs = -1;
  int32_t n_replies = 1;
  int32_t beams = 0;
  double length_penalty = BeamOptions().length_penalty;
  CLI::Option* parallel_option = nullptr;
  const CLI::App* command = nullptr;

  // More than the one reply that streams as it comes.
  bool several() const { return n_replies > 1 || beams > 0; }
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

Json ProbsJson(const Tokenizer& tokenizer, std::span<const TokenProb> list) {
  Json array = Json::array();
  for (const TokenProb& t : list) {
    array.push_back({{"id", t.id},
                     {"token", std::string(tokenizer.PieceBytes(t.id))},
                     {"logprob", JsonNumber(t.logprob)}});
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
          {"draw", JsonNumber(report.draw)},
          {"final_prob", report.final_prob}};
}

Json ReplyJson(const Tokenizer& tokenizer, const FinishedReply& reply) {
  Json tokens = Json::array();
  for (const TokenOutput& out : reply.outputs) {
    Json token = {
        {"id", out.id}, {"token", std::string(tokenizer.PieceBytes(out.id))}, {"text", out.text}};
    if (out.logprobs) {
      token["logprob"] = JsonNumber(out.logprobs->chosen);
      token["top_logprobs"] = ProbsJson(tokenizer, out.logprobs->top);
    }
    if (out.explain) token["explain"] = ExplainJson(tokenizer, *out.explain);
    tokens.push_back(std::move(token));
  }
  const RequestStats& s = reply.stats;
  return {{"text", reply.text},
          {"finish_reason", FinishReason(reply.cause)},
          {"stop_cause", StopCauseName(reply.cause)},
          {"tokens", std::move(tokens)},
          {"usage",
           {{"prompt_tokens", s.prompt_tokens},
            {"cached_tokens", s.cached_tokens},
            {"completion_tokens", s.generated_tokens}}},
          {"timings",
           {{"prefill_seconds", s.prefill_seconds},
            {"decode_seconds", s.decode_seconds},
            {"prompt_tokens_per_second", s.prefill_tokens_per_second()},
            {"decode_tokens_per_second", s.decode_tokens_per_second()},
            {"preemptions", s.preemptions}}},
          {"kv", CacheFigures(s)}};
}

// One reply's members lie in the object itself, those of several in a list "replies".
Json ResultJson(const RunFlags& flags, const Engine& engine, const Tokenizer& tokenizer,
                const std::vector<FinishedReply>& replies, const Request& request) {
  Json json = {{"model", engine.config().model}};
  if (!flags.several()) json.update(ReplyJson(tokenizer, replies[0]));
  json["seed"] = request.sampling.seed;
  const Result<SamplerChain> chain = SamplerChain::Create(request.sampling);
  json["sampler"] = flags.beams > 0 ? "beams" : chain ? chain->Describe() : "";
  json["prompt_ids"] = request.prompt;
  if (flags.several()) {
    for (size_t i = 0; i < replies.size(); ++i) {
      Json reply = {{"index", i}};
      if (flags.beams > 0) reply["score"] = JsonNumber(replies[i].score);
      reply.update(ReplyJson(tokenizer, replies[i]));
      json["replies"].push_back(std::move(reply));
    }
  }
  json["timings"]["load_seconds"] = engine.load_seconds();
  return json;
}

// What is printed of a token beside or instead of its text.
void PrintToken(const Tokenizer& tokenizer, const TokenOutput& out, size_t index) {
  if (out.explain) PrintExplanation(tokenizer, out, index);
  if (out.logprobs) PrintLogprobs(tokenizer, out);
}

void PrintReplies(const Tokenizer& tokenizer, const std::vector<FinishedReply>& replies,
                  bool scores) {
  for (size_t i = 0; i < replies.size(); ++i) {
    fmt::print("{}--- reply {}{} ---\n", i > 0 ? "\n" : "", i + 1,
               scores ? fmt::format(", score {:.4f}", replies[i].score) : "");
    for (size_t t = 0; t < replies[i].outputs.size(); ++t) {
      PrintToken(tokenizer, replies[i].outputs[t], t);
    }
    fmt::print("{}\n", replies[i].text);
  }
}

Result<Request> MakeRequest(const RunFlags& flags, const SamplerParams& sampling,
                            const Engine& engine) {
  Request request;
  LUCID_ASSIGN_OR_RETURN(request.prompt, EncodePrompt(flags, engine));
  request.sampling = sampling;
  request.max_tokens = flags.n_predict;
  request.stop = flags.stop;
  request.ignore_eos = flags.ignore_eos;
  request.n_logprobs = flags.logprobs;
  request.explain = flags.explain;
  request.n = flags.n_replies;
  request.beam = {.width = flags.beams, .length_penalty = flags.length_penalty};
  ApplyCacheFlags(flags.cache, request);
  return request;
}

// Figures are for people: on a terminal, or where asked for.
void PrintStats(const RunFlags& flags, const std::vector<FinishedReply>& replies, uint64_t seed) {
  if (flags.no_stats || !(flags.stats || (isatty(STDOUT_FILENO) && !flags.json))) return;
  fmt::print(stderr, "\n");
  for (const FinishedReply& reply : replies) fmt::print(stderr, "{}\n", StatsLine(reply, seed));
}

Status Run(const RunFlags& flags, CommandContext& context) {
  LUCID_ASSIGN_OR_RETURN(const SamplerParams sampling, ToSamplerParams(flags.sampling));
  LUCID_RETURN_IF_ERROR(
      SamplerChain::Create(sampling));  // a wrong value is told before a model is loaded for it
  if (flags.beams > 0) LUCID_RETURN_IF_ERROR(CheckNothingDraws(*flags.command, flags.sampling));
  LUCID_RETURN_IF_ERROR(CheckCacheFlags(flags.cache, flags.engine));
  EngineFlags engine_flags = flags.engine;
  if (flags.parallel_option->count() == 0) {
    engine_flags.parallel = std::max({flags.n_replies, flags.beams, 1});
  }
  LUCID_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                         LoadEngine(flags.model, engine_flags));
  LUCID_ASSIGN_OR_RETURN(const Request request, MakeRequest(flags, sampling, *engine));

  LUCID_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, engine->tokenizer());
  const bool tables = flags.explain || flags.logprobs >= 0;
  const bool live = !flags.json && !flags.several();
  size_t index = 0;
  LUCID_ASSIGN_OR_RETURN(const std::vector<FinishedReply> replies,
                         GenerateAll(*engine, request, [&](const TokenOutput& out) {
                           if (!live) return;
                           PrintToken(*tokenizer, out, index++);
                           if (!tables) {
                             std::fwrite(out.text.data(), 1, out.text.size(), stdout);
                             std::fflush(stdout);
                           }
                         }));
  if (flags.json) {
    const Json json = ResultJson(flags, *engine, *tokenizer, replies, request);
    fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
  } else if (flags.several()) {
    PrintReplies(*tokenizer, replies, flags.beams > 0);
  } else {
    fmt::print("{}\n", tables ? replies[0].text : "");
  }
  if (std::fflush(stdout) != 0) return Err(ErrorCode::kIo, "cannot write to standard output");
  PrintStats(flags, replies, sampling.seed);
  for (const FinishedReply& reply : replies) {
    if (reply.cause == StopCause::kAborted) context.exit_code = 130;  // as the shell has it
  }
  return {};
}

// How many replies there are to be, and how they are found.
void AddReplyFlags(CLI::App& command, RunFlags& flags) {
  command
      .add_option("-N,--n-replies", flags.n_replies,
                  "replies to draw; they share the prompt's cache, and each draws from a stream of "
                  "its own")
      ->check(CLI::Range(1, 128))
      ->capture_default_str();
  CLI::Option* beams =
      command
          .add_option("--beams", flags.beams,
                      "beam search that keeps this many texts at each step, instead of sampling; "
                      "prints the best --n-replies of them")
          ->check(CLI::Range(1, 128));
  command
      .add_option("--length-penalty", flags.length_penalty,
                  "a beam scores its log-probability divided by its length to this power")
      ->check(CLI::Range(-100.0, 100.0))
      ->needs(beams)
      ->capture_default_str();
  flags.parallel_option = AddParallelFlags(command, flags.engine);
  flags.parallel_option->description(
      "most replies or beams that are computed at once; all of them unless given (also -np)");
}

}  // namespace

void AddRunCommand(CLI::App& root, CommandContext& context) {
  CLI::App* command = root.add_subcommand("run", "Answer one prompt, streaming");
  auto flags = std::make_shared<RunFlags>();
  AddModelFlags(*command, flags->model);
  flags->command = command;
  AddSamplingFlags(*command, flags->sampling);
  AddReplyFlags(*command, *flags);
  AddChunkFlag(*command, flags->engine);
  AddCacheFlags(*command, flags->engine);
  AddRequestCacheFlags(*command, flags->cache);
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
