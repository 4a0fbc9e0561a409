// lucid selftest: whether a model, this build and this machine fit together. engine/selftest.h says
// what is checked.
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/command.h"
#include "cli/model_flags.h"
#include "engine/selftest.h"

namespace lucid::cli {
namespace {

struct SelftestFlags {
  ModelFlags model;
  std::string tokenizer_json;
  int64_t texts = SelftestOptions{}.texts;
  uint64_t seed = SelftestOptions{}.seed;
  bool json = false;
};

const char* Word(CheckState state) {
  switch (state) {
    case CheckState::kPassed:
      return "ok";
    case CheckState::kFailed:
      return "FAILED";
    case CheckState::kSkipped:
      return "-";
  }
  return "";
}

// Whether nothing failed.
Result<bool> Run(const SelftestFlags& flags) {
  using Clock = std::chrono::steady_clock;
  SelftestOptions options;
  LUCID_ASSIGN_OR_RETURN(options.engine, ToEngineConfig(flags.model));
  options.tokenizer_json = flags.tokenizer_json;
  options.texts = flags.texts;
  options.seed = flags.seed;
  auto checks = nlohmann::ordered_json::array();
  int failed = 0;
  Clock::time_point start = Clock::now();
  LUCID_RETURN_IF_ERROR(RunSelftest(options, [&](const SelfCheck& check) {
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (check.state == CheckState::kFailed) ++failed;
    if (flags.json) {
      checks.push_back({{"check", check.name},
                        {"state", Word(check.state)},
                        {"detail", check.detail},
                        {"seconds", seconds}});
    } else {
      fmt::print("{:<20} {:<7} {} ({:.1f} s)\n", check.name, Word(check.state), check.detail,
                 seconds);
      std::fflush(stdout);
    }
    start = Clock::now();
  }));
  if (flags.json) {
    fmt::print("{}\n", nlohmann::ordered_json{{"model", options.engine.model},
                                              {"failed", failed},
                                              {"checks", std::move(checks)}}
                           .dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  return failed == 0;
}

}  // namespace

void AddSelftestCommand(CLI::App& root, CommandContext& context) {
  CLI::App* command = root.add_subcommand(
      "selftest", "Check that a model, this build and this machine fit together");
  command->footer(
      "One line for each check, exit code 1 if one failed. The model reads a short text that "
      "comes\n"
      "with the program on the reference executor and on every instruction set of this machine;\n"
      "of a large model only some tokens, so that the reference takes about half a minute.");
  auto flags = std::make_shared<SelftestFlags>();
  command
      ->add_option("model,-m,--model", flags->model.model,
                   "model: a file, a folder or a name of 'lucid models'")
      ->required();
  AddThreadsFlag(*command, flags->model);
  AddPlacementFlags(*command, flags->model);
  AddRopeFlags(*command, flags->model.rope);
  AddBackendFlags(*command, flags->model);
  AddKvTypeFlags(*command, flags->model);
  command->add_option("--tokenizer-json", flags->tokenizer_json,
                      "a tokenizer.json of the same model, to compare token ids with; by default "
                      "the one beside a .gguf");
  command->add_option("--texts", flags->texts, "random texts for the tokenizer")
      ->check(CLI::Range(int64_t{1}, int64_t{10000000}))
      ->capture_default_str();
  command->add_option("--seed", flags->seed, "of those texts")->capture_default_str();
  command->add_flag("--json", flags->json, "the checks as JSON");
  command->callback([flags, &context] {
    const Result<bool> good = Run(*flags);
    if (!good) return ReportError(good.error(), context);
    if (!*good) context.exit_code = 1;
  });
}

}  // namespace lucid::cli
