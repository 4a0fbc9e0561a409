// lucid account: what a model costs before it is loaded: parameters, bytes, FLOPs, memory, and the
// speed that follows on this machine or another.
//
//   lucid account MODEL -c 4096 --batch 8
//   lucid account config.json --type q4_k_m --hardware h100
//
// engine/study.h gathers the numbers, account_report.h prints them.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/account_report.h"
#include "cli/command.h"
#include "cli/model_flags.h"
#include "engine/study.h"

namespace lucid::cli {
namespace {

struct AccountFlags {
  ModelFlags model;
  int batch = 1;
  int64_t prompt = 0;
  std::string type, hardware = "this", phase = "both", format = "table";
  bool full = false;
};

Status Run(const AccountFlags& flags) {
  StudyOptions options;
  LUCID_ASSIGN_OR_RETURN(options.engine, ToEngineConfig(flags.model));
  options.engine.n_parallel = flags.batch;
  options.prompt = flags.prompt;
  options.type = flags.type;
  options.hardware = flags.hardware;
  options.prefill = flags.phase != "decode";
  options.decode = flags.phase != "prefill";
  options.say = [](const std::string& message) { fmt::print(stderr, "lucid: {}\n", message); };
  LUCID_ASSIGN_OR_RETURN(const Study study, MakeStudy(options));
  if (flags.format == "json") {
    using Json = nlohmann::ordered_json;
    fmt::print("{}\n", AccountJson(study).dump(2, ' ', false, Json::error_handler_t::replace));
  } else if (flags.format == "csv") {
    fmt::print("{}", AccountCsv(study));
  } else if (flags.format == "html") {
    fmt::print("{}", AccountHtml(study, flags.full));
  } else {
    fmt::print("{}", AccountText(study, flags.full));
  }
  return {};
}

}  // namespace

void AddAccountCommand(CLI::App& root, CommandContext& context) {
  CLI::App* command = root.add_subcommand(
      "account",
      "Say what a model costs: parameters, bytes, FLOPs, memory, and the speed that follows");
  auto flags = std::make_shared<AccountFlags>();
  CLI::Option* model = command->add_option(
      "model,-m,--model", flags->model.model,
      "model: a file, a folder, a name of 'lucid models', or a config.json without weights");
  command
      ->add_option(
          "-c,--ctx-size", flags->model.context,
          "tokens that each sequence has come to; 0: 4096, or what the model was trained for "
          "where that is less")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30))
      ->capture_default_str();
  command->add_option("--batch", flags->batch, "sequences at once")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command
      ->add_option("--prompt", flags->prompt,
                   "tokens of each sequence's prompt; 0: 512, or the context where that is less")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30))
      ->capture_default_str();
  command->add_option("--phase", flags->phase, "prefill, decode or both")
      ->check(CLI::IsMember({"prefill", "decode", "both"}))
      ->capture_default_str();
  command->add_option(
      "--type", flags->type,
      "count weights of this type instead of the model's own, such as q4_k_m, q8_0 or "
      "bf16");
  std::string names;
  for (const std::string& name : HardwareNames()) names += ", " + name;
  command
      ->add_option("--hardware", flags->hardware,
                   "whose speed to predict: this (the machine it runs on)" + names +
                       ", or a JSON file (see docs/accounting.md)")
      ->capture_default_str();
  AddKvTypeFlags(*command, flags->model);
  AddThreadsFlag(*command, flags->model);
  AddNumericsFlag(*command, flags->model);
  AddRopeFlags(*command, flags->model.rope);
  command->add_option("--format", flags->format, "table, json, csv or html: a page of its own")
      ->check(CLI::IsMember({"table", "json", "csv", "html"}))
      ->capture_default_str();
  command->add_flag("--full", flags->full, "in tables, every op of every layer");
  command->callback([flags, model, &context] {
    // Not required(): its message would name the flag alone.
    if (model->count() == 0) throw CLI::RequiredError("a model, as in 'lucid account MODEL',");
    if (const Status status = Run(*flags); !status) ReportError(status.error(), context);
  });
}

}  // namespace lucid::cli
