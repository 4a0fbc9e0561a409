// lucid perplexity: how well a model predicts a text, how far it is from another model, and which
// of several endings it thinks right.
//
//   lucid perplexity -m MODEL -f wiki.test.raw                       # as llama-perplexity
//   lucid perplexity -m F32.gguf -f FILE --save-base base.lkl
//   lucid perplexity -m Q4.gguf --kl-base base.lkl
//   lucid perplexity -m MODEL --multiple-choice hellaswag.jsonl
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/engine_flags.h"
#include "cli/model_flags.h"
#include "engine/multiple_choice.h"
#include "engine/perplexity.h"

namespace lucid::cli {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

struct PerplexityFlags {
  ModelFlags model;
  std::string file, kl_base, save_base, choices;
  int64_t chunks = -1, stride = 0, tasks = -1;
  bool json = false;
};

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The running estimate on standard error: "[1]28.5021,[2]...", and after the first window how long
// the others will take.
class RunningEstimate {
 public:
  RunningEstimate(const PerplexityMeter& meter, int64_t windows)
      : meter_(meter), windows_(windows), start_(Clock::now()) {}
  void EndWindow(int64_t window) {
    if (window == 0) {
      const double seconds = SecondsSince(start_);
      const auto left = static_cast<int64_t>(seconds * static_cast<double>(windows_ - 1));
      fmt::print(stderr, "{:.2f} s a window, {} windows: {}:{:02} left\n", seconds, windows_,
                 left / 60, left % 60);
    }
    fmt::print(stderr, "{}[{}]{:.4f}", window == 0 ? "" : ",", window + 1, meter_.perplexity());
    if (window + 1 == windows_) fmt::print(stderr, "\n");
    std::fflush(stderr);
  }
  double seconds() const { return SecondsSince(start_); }

 private:
  const PerplexityMeter& meter_;
  int64_t windows_;
  Clock::time_point start_;
};

float Quantile(const std::vector<float>& sorted, double q) {
  if (sorted.empty()) return 0;
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double part = at - static_cast<double>(below);
  return static_cast<float>(sorted[below] * (1 - part) + sorted[above] * part);
}

Json ComparisonJson(const BaseComparison& c) {
  const std::vector<float> sorted = c.sorted_kld();
  return {{"base_perplexity", std::exp(c.base_nll.mean())},
          {"log_ratio", c.log_ratio.mean()},
          {"log_ratio_stderr", c.log_ratio.stderr_of_mean()},
          {"kld_mean", c.kld.mean()},
          {"kld_stderr", c.kld.stderr_of_mean()},
          {"kld_median", Quantile(sorted, 0.5)},
          {"kld_p90", Quantile(sorted, 0.9)},
          {"kld_p99", Quantile(sorted, 0.99)},
          {"kld_max", sorted.empty() ? 0 : sorted.back()},
          {"same_top1", c.same_top1.mean()},
          {"same_top1_stderr", c.same_top1.stderr_of_mean()},
          {"delta_p_mean", c.delta_p.mean()},
          {"delta_p_rms", std::sqrt(c.delta_p2.mean())}};
}

void PrintComparison(const Json& c) {
  const auto number = [&c](const char* key) { return c[key].get<double>(); };
  fmt::print("base PPL         {:.4f}\n", number("base_perplexity"));
  fmt::print("ln(PPL / base)   {:.6f} +/- {:.6f} (both have read the same tokens)\n",
             number("log_ratio"), number("log_ratio_stderr"));
  fmt::print(
      "mean KLD         {:.6f} +/- {:.6f} nats; median {:.6f}, 90 % {:.6f}, 99 % {:.6f}, "
      "largest {:.6f}\n",
      number("kld_mean"), number("kld_stderr"), number("kld_median"), number("kld_p90"),
      number("kld_p99"), number("kld_max"));
  fmt::print("same top token   {:.2f} +/- {:.2f} %\n", 100 * number("same_top1"),
             100 * number("same_top1_stderr"));
  fmt::print("p(token) - base  {:.4f} % on average, {:.4f} % RMS\n", 100 * number("delta_p_mean"),
             100 * number("delta_p_rms"));
}

void PrintResult(const PerplexityFlags& flags, const Engine& engine, const PerplexityMeter& meter,
                 const DistributionHeader& text, double seconds) {
  const auto computed = text.windows.windows * WindowTokens(text.windows);
  Json result = {{"model", engine.config().model},
                 {"isa", engine.runner().isa()},
                 {"backend", flags.model.backend},
                 {"numerics", flags.model.numerics},
                 {"perplexity", meter.perplexity()},
                 {"stderr", meter.perplexity_stderr()},
                 {"cross_entropy", meter.cross_entropy()},
                 {"bits_per_byte", meter.bits_per_byte()},
                 {"tokens", meter.tokens()},
                 {"windows", text.windows.windows},
                 {"context", text.windows.context},
                 {"stride", text.windows.stride},
                 {"seconds", seconds},
                 {"tokens_per_second", static_cast<double>(computed) / seconds}};
  if (meter.comparison()) result.update(ComparisonJson(*meter.comparison()));
  if (flags.json) {
    fmt::print("{}\n", result.dump(2));
    return;
  }
  fmt::print("PPL              {:.4f} +/- {:.4f}\n", meter.perplexity(), meter.perplexity_stderr());
  fmt::print("cross-entropy    {:.5f} nats a token, {:.4f} bits a byte\n", meter.cross_entropy(),
             meter.bits_per_byte());
  fmt::print("scored           {} tokens in {} windows of {}{}\n", meter.tokens(),
             text.windows.windows, WindowTokens(text.windows),
             text.windows.stride > 0 ? fmt::format(", one every {}", text.windows.stride) : "");
  fmt::print("time             {:.2f} s, {:.0f} tokens/s ({}, {})\n", seconds,
             result["tokens_per_second"].get<double>(), engine.runner().isa(),
             flags.model.numerics);
  if (meter.comparison()) PrintComparison(result);
}

// The text and its windows: those of the base where there is one, else those of the file.
Result<DistributionHeader> ReadText(const PerplexityFlags& flags, const Engine& engine,
                                    const DistributionReader* base) {
  DistributionHeader text;
  text.vocab = engine.model().config.vocab_size;
  text.windows = {.context = flags.model.context, .stride = flags.stride, .windows = flags.chunks};
  if (!flags.file.empty()) {
    LUCID_ASSIGN_OR_RETURN(const std::string bytes, ReadTextFile(flags.file));
    LUCID_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, engine.tokenizer());
    text.text = tokenizer->Encode(bytes);
    LUCID_ASSIGN_OR_RETURN(text.windows.windows, CountWindows(std::ssize(text.text), text.windows));
  }
  if (base == nullptr) return text;
  const DistributionHeader& saved = base->header();
  if (saved.vocab != text.vocab) {
    return Err(ErrorCode::kInvalidArgument,
               "{} is of a model with {} tokens in its vocabulary, this one has {}", flags.kl_base,
               saved.vocab, text.vocab);
  }
  if (!flags.file.empty() && saved.text != text.text) {
    return Err(ErrorCode::kInvalidArgument,
               "{} is of another text, or of a tokenizer that splits it differently, than {}",
               flags.kl_base, flags.file);
  }
  return saved;
}

Status RunPerplexity(PerplexityFlags flags) {
  std::optional<DistributionReader> base;
  if (!flags.kl_base.empty()) {
    LUCID_ASSIGN_OR_RETURN(base, DistributionReader::Open(flags.kl_base));
    flags.model.context = base->header().windows.context;
    flags.stride = base->header().windows.stride;
  }
  const WindowOptions shape = {.context = flags.model.context, .stride = flags.stride};
  // Options that make no sense are told before anything is loaded.
  LUCID_RETURN_IF_ERROR(CountWindows(WindowTokens(shape) + shape.stride, shape));
  ModelFlags model = flags.model;
  model.context = WindowTokens({.context = flags.model.context, .stride = flags.stride});
  LUCID_ASSIGN_OR_RETURN(EngineConfig config, ToEngineConfig(model));
  config.n_parallel = 1;
  config.logit_rows = ScoredTokens({.context = flags.model.context, .stride = flags.stride});
  LUCID_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Load(config));
  LUCID_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, engine->tokenizer());
  LUCID_ASSIGN_OR_RETURN(DistributionHeader text,
                         ReadText(flags, *engine, base ? &*base : nullptr));
  std::optional<DistributionWriter> save;
  if (!flags.save_base.empty()) {
    LUCID_ASSIGN_OR_RETURN(save, DistributionWriter::Create(flags.save_base, text));
  }
  PerplexityMeter meter(*tokenizer, base ? &*base : nullptr, save ? &*save : nullptr);
  RunningEstimate estimate(meter, text.windows.windows);
  LUCID_RETURN_IF_ERROR(ScoreText(
      *engine, text.text, text.windows, [&](const ScoredRow& row) { return meter.Add(row); },
      [&](int64_t window) { estimate.EndWindow(window); }));
  const double seconds = estimate.seconds();
  if (save) LUCID_RETURN_IF_ERROR(save->Commit());
  PrintResult(flags, *engine, meter, text, seconds);
  return {};
}

// All lines, or the first `tasks`.
Result<std::vector<ChoiceTask>> ReadTasks(const PerplexityFlags& flags) {
  LUCID_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(flags.choices));
  std::vector<ChoiceTask> tasks;
  int64_t line = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view json = std::string_view(text).substr(at, end - at);
    at = end + 1;
    ++line;
    if (json.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    if (flags.tasks >= 0 && std::ssize(tasks) >= flags.tasks) break;
    Result<ChoiceTask> task = ParseChoiceTask(json);
    if (!task) {
      return Err(task.error().code, "{}, line {}: {}", flags.choices, line, task.error().message);
    }
    tasks.push_back(*std::move(task));
  }
  if (tasks.empty()) {
    return Err(ErrorCode::kInvalidArgument, "{} has no tasks", flags.choices);
  }
  return tasks;
}

Status RunChoices(const PerplexityFlags& flags) {
  LUCID_ASSIGN_OR_RETURN(const std::vector<ChoiceTask> tasks, ReadTasks(flags));
  LUCID_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, LoadEngine(flags.model));
  const Clock::time_point start = Clock::now();
  RunningMean right;
  RunningMean right_norm;
  for (size_t i = 0; i < tasks.size(); ++i) {
    LUCID_ASSIGN_OR_RETURN(const ChoiceScore score, ScoreChoices(*engine, tasks[i]));
    right.Add(score.best == tasks[i].label ? 1 : 0);
    right_norm.Add(score.best_norm == tasks[i].label ? 1 : 0);
    if ((i + 1) % 10 == 0 || i + 1 == tasks.size()) {
      const double left = SecondsSince(start) / static_cast<double>(i + 1) *
                          static_cast<double>(tasks.size() - i - 1);
      fmt::print(stderr, "[{}/{}] acc {:.4f}, acc_norm {:.4f}, {:.0f} s left\n", i + 1,
                 tasks.size(), right.mean(), right_norm.mean(), left);
    }
  }
  if (flags.json) {
    const Json result = {{"model", engine->config().model},
                         {"tasks", right.count()},
                         {"acc", right.mean()},
                         {"acc_stderr", right.stderr_of_mean()},
                         {"acc_norm", right_norm.mean()},
                         {"acc_norm_stderr", right_norm.stderr_of_mean()},
                         {"seconds", SecondsSince(start)}};
    fmt::print("{}\n", result.dump(2));
    return {};
  }
  fmt::print("acc       {:.4f} +/- {:.4f} (sum of log-probabilities)\n", right.mean(),
             right.stderr_of_mean());
  fmt::print("acc_norm  {:.4f} +/- {:.4f} (per character of the ending)\n", right_norm.mean(),
             right_norm.stderr_of_mean());
  fmt::print("tasks     {} in {:.2f} s\n", right.count(), SecondsSince(start));
  return {};
}

void Run(const PerplexityFlags& flags, CommandContext& context) {
  const Status status = flags.choices.empty() ? RunPerplexity(flags) : RunChoices(flags);
  if (!status) ReportError(status.error(), context);
}

}  // namespace

void AddPerplexityCommand(CLI::App& root, CommandContext& context) {
  CLI::App* command = root.add_subcommand(
      "perplexity", "Measure how well a model predicts a text, also against another model");
  auto flags = std::make_shared<PerplexityFlags>();
  flags->model.context = 512;
  AddModelFlags(*command, flags->model);
  CLI::Option* file = command->add_option("-f,--file", flags->file, "the text; -: standard input");
  CLI::Option* chunks =
      command->add_option("--chunks", flags->chunks, "most windows of -c tokens; -1: all")
          ->check(CLI::Validator(
              [](const std::string& n) { return n == "0" ? "0 windows score nothing" : ""; }, ""))
          ->check(CLI::Range(int64_t{-1}, int64_t{1} << 40));
  CLI::Option* stride =
      command
          ->add_option("--stride,--ppl-stride", flags->stride,
                       "windows of -c + N / 2 tokens, one every N tokens, the last N of each "
                       "scored, as llama-perplexity does; 0: windows end to end, the second half "
                       "scored")
          ->check(CLI::Range(int64_t{0}, int64_t{1} << 30));
  CLI::Option* base =
      command->add_option("--kl-base", flags->kl_base,
                          "compare with the distributions that --save-base wrote; the text and its "
                          "windows are then those of that run");
  CLI::Option* save = command->add_option("--save-base", flags->save_base,
                                          "write the distributions (2 bytes for each token of the "
                                          "vocabulary and scored token) to this file");
  CLI::Option* choices =
      command->add_option("--multiple-choice,--hellaswag", flags->choices,
                          "a JSONL file of contexts and endings (HellaSwag's format) instead of a "
                          "text: how often is the right ending the likeliest");
  command->add_option("--tasks", flags->tasks, "most lines of it; -1: all")
      ->check(CLI::Validator(
          [](const std::string& n) { return n == "0" ? "0 lines score nothing" : ""; }, ""))
      ->check(CLI::Range(int64_t{-1}, int64_t{1} << 40))
      ->needs(choices);
  command->add_flag("--json", flags->json, "print the result as JSON");
  base->excludes(chunks)->excludes(stride);
  for (CLI::Option* other : {file, chunks, stride, base, save}) choices->excludes(other);
  command->callback([flags, file, base, choices, &context] {
    if (file->count() + base->count() + choices->count() == 0) {
      throw CLI::RequiredError("a text (-f), a base (--kl-base) or --multiple-choice");
    }
    Run(*flags, context);
  });
}

}  // namespace lucid::cli
