// lucid profile: where the time of prompts and tokens goes, op by op, beside what was predicted.
//
//   lucid profile -m MODEL -p 512 -n 64
//   lucid profile -m MODEL --format html --trace steps.json > profile.html
//
// engine/profile.h measures, profile_report.h prints.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>

#include "cli/command.h"
#include "cli/engine_flags.h"
#include "cli/model_flags.h"
#include "cli/profile_report.h"
#include "engine/profile.h"
#include "store/file_util.h"

namespace lucid::cli {
namespace {

struct ProfileFlags {
  ModelFlags model;
  ProfileOptions options;
  std::string format = "text", trace;
  bool full = false;
};

Status Run(const ProfileFlags& flags) {
  ProfileOptions options = flags.options;
  if (options.prompt == 0 && options.generated == 0) {
    return Err(ErrorCode::kInvalidArgument, "there is nothing to measure: both -p and -n are 0");
  }
  // Said before anything is measured.
  const std::filesystem::path folder = std::filesystem::path(flags.trace).parent_path();
  if (std::error_code ignored; !folder.empty() && !std::filesystem::is_directory(folder, ignored)) {
    return Err(ErrorCode::kNotFound, "there is no folder '{}' for the trace", folder.string());
  }
  options.say = [](const std::string& message) { fmt::print(stderr, "lucid: {}\n", message); };
  ModelFlags model = flags.model;
  model.context = ProfileContext(options);
  EngineFlags engine_flags;
  engine_flags.parallel = options.sequences;
  engine_flags.max_queue = options.sequences;
  LUCID_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, LoadEngine(model, engine_flags));
  engine->FinishPackCache();  // or it would be measured too
  LUCID_ASSIGN_OR_RETURN(const Profile profile, MakeProfile(*engine, options));
  if (!flags.trace.empty()) {
    LUCID_RETURN_IF_ERROR(WriteFileAtomically(flags.trace, ProfileEvents(*engine, profile)));
  }
  if (flags.format == "json") {
    using Json = nlohmann::ordered_json;
    fmt::print("{}\n",
               ProfileJson(*engine, profile).dump(2, ' ', false, Json::error_handler_t::replace));
  } else if (flags.format == "html") {
    fmt::print("{}", ProfileHtml(*engine, profile, flags.full));
  } else {
    fmt::print("{}", ProfileText(*engine, profile, flags.full));
  }
  return {};
}

}  // namespace

void AddProfileCommand(CLI::App& root, CommandContext& context) {
  CLI::App* command =
      root.add_subcommand("profile", "Show where time goes, op by op, beside what was predicted");
  auto flags = std::make_shared<ProfileFlags>();
  AddModelFlag(*command, flags->model.model);
  const CLI::Range tokens(int64_t{0}, int64_t{1} << 24);
  command->add_option("-p,--n-prompt", flags->options.prompt, "prompt tokens; 0: no prompts")
      ->check(tokens)
      ->capture_default_str();
  command->add_option("-n,--n-gen", flags->options.generated, "generated tokens; 0: none")
      ->check(tokens)
      ->capture_default_str();
  command->add_option("-d,--n-depth", flags->options.depth, "tokens that are in the cache before")
      ->check(tokens)
      ->capture_default_str();
  command
      ->add_option("--batch", flags->options.sequences,
                   "sequences at once, each with tokens of its own")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command
      ->add_option("-r,--repetitions", flags->options.repetitions,
                   "how often the prompts are measured")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command->add_option("-b,--batch-size", flags->model.batch, "most tokens computed in one step")
      ->check(CLI::Range(int64_t{1}, int64_t{65536}))
      ->capture_default_str();
  AddThreadsFlag(*command, flags->model);
  AddNumericsFlag(*command, flags->model);
  AddKvTypeFlags(*command, flags->model);
  command->add_option("--format", flags->format, "text, json or html: a page of its own")
      ->check(CLI::IsMember({"text", "json", "html"}))
      ->capture_default_str();
  command->add_flag("--full", flags->full, "in tables, every op of every layer");
  command->add_option("--trace", flags->trace,
                      "also write the timed steps to this file, as trace events that "
                      "ui.perfetto.dev and chrome://tracing open");
  command->footer(
      "Times are of the loop that serves requests, as lucid bench has it, with greedy sampling. "
      "Every\n"
      "second decode step is timed; the others say what timing costs. Predictions are those of "
      "lucid\n"
      "account for this machine. docs/accounting.md explains the columns and the causes.");
  command->callback([flags, &context] {
    if (const Status status = Run(*flags); !status) ReportError(status.error(), context);
  });
}

}  // namespace lucid::cli
