// lucid limits: what this machine can do at most, measured and stored, and which kernels it runs.
//
//   lucid limits -m MODEL -o json
//   lucid limits --dispatch
//
// account/measure.h measures; benchmarks say what fraction of it they reach (account/limit.h).
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "account/kernel_use.h"
#include "account/limit.h"
#include "account/measure.h"
#include "base/env.h"
#include "cli/command.h"
#include "cli/engine_flags.h"
#include "cli/limits_report.h"
#include "store/file_util.h"
#include "store/model_store.h"

namespace lucid::cli {
namespace {

struct LimitsFlags {
  std::string model, isa;
  std::string format = "md";
  int64_t large_bytes = kLargeBytes;
  bool dispatch = false, no_save = false, force = false;
};

// Below a megabyte the clock is measured, not the memory.
constexpr int64_t kLeastLargeBytes = 1 << 20;

using Json = nlohmann::ordered_json;

void PrintJson(const Json& json) {
  fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
}

Status PrintDispatch(const LimitsFlags& flags) {
  const std::string isa = !flags.isa.empty() ? flags.isa : Env("LUCID_ISA").value_or("");
  LUCID_ASSIGN_OR_RETURN(const std::vector<IsaStatus> rows, Dispatch(isa));
  if (flags.format == "md") {
    fmt::print("{}", DispatchText(rows));
    return {};
  }
  Json list = Json::array();
  for (const IsaStatus& row : rows) {
    list.push_back({{"isa", row.isa},
                    {"used", row.refused.empty()},
                    {"refused", row.refused},
                    {"ops", row.ops},
                    {"needs", row.needs}});
  }
  PrintJson(list);
  return {};
}

// Figures of a busy machine do not take the place of those of a quieter hour.
Status Save(const Machine& machine, const LimitsFlags& flags) {
  const std::string path = MachinePath();
  if (Disturbance(machine) > kMostDisturbance && !flags.force) {
    const Result<Machine> stored = LoadMachine(path);
    if (stored && IsThisMachine(*stored) && Disturbance(*stored) < Disturbance(machine)) {
      fmt::print(stderr,
                 "Not stored: {:.1f} % of the CPU time went elsewhere, {:.1f} % when {} was "
                 "measured; --force stores it.\n",
                 Disturbance(machine) * 100, Disturbance(*stored) * 100, path);
      return {};
    }
  }
  LUCID_RETURN_IF_ERROR(SaveMachine(machine, path));
  if (flags.format == "md") fmt::print("Stored in {}.\n", path);
  return {};
}

Status Run(const LimitsFlags& flags) {
  if (flags.dispatch) return PrintDispatch(flags);
  // What cannot work is said before anything is measured: a wrong LUCID_ISA, no place to store.
  if (const auto rows = Dispatch(Env("LUCID_ISA").value_or("")); !rows) {
    return tl::unexpected<Error>(rows.error());
  }
  if (!flags.no_save) LUCID_RETURN_IF_ERROR(MakeFolders(LucidFolder()));
  MeasureOptions options;
  options.large_bytes = flags.large_bytes;
  if (!flags.model.empty()) {
    LUCID_ASSIGN_OR_RETURN(const std::string path, ResolveModel(flags.model));
    LUCID_ASSIGN_OR_RETURN(options.model_bytes, TokenBytesOfModel(path));
  }
  const bool shows_progress = isatty(STDERR_FILENO) != 0;
  if (shows_progress) {
    options.progress = [](std::string_view part) { fmt::print(stderr, "\r{}\033[K", part); };
  }
  const Result<Machine> machine = MeasureMachine(options);
  if (shows_progress) fmt::print(stderr, "\r\033[K");
  if (!machine) return tl::unexpected<Error>(machine.error());
  if (flags.format == "json") {
    PrintJson(ToJson(*machine));
  } else {
    fmt::print("{}", LimitsText(*machine));
  }
  return flags.no_save ? Status{} : Save(*machine, flags);
}

}  // namespace

void AddLimitsCommand(CLI::App& root, CommandContext& context) {
  CLI::App* command = root.add_subcommand(
      "limits", "Measure what this machine can do at most, and say which kernels it runs");
  auto flags = std::make_shared<LimitsFlags>();
  CLI::Option* model = command->add_option(
      "-m,--model", flags->model,
      "read a buffer as large as what one token of this model reads, instead of 350 MB");
  command->add_option("-o,--output", flags->format, "md or json")
      ->check(CLI::IsMember({"md", "json"}))
      ->capture_default_str();
  CLI::Option* large =
      AddByteSize(*command, "--large", flags->large_bytes,
                  "size of the buffer that no cache holds, such as 4G; less where memory is short")
          ->check(CLI::Range(kLeastLargeBytes, int64_t{1} << 50));
  CLI::Option* no_save =
      command->add_flag("--no-save", flags->no_save, "do not store the figures for lucid bench");
  CLI::Option* force = command
                           ->add_flag("--force", flags->force,
                                      "store the figures of a busy machine in place of a quieter "
                                      "one's")
                           ->excludes(no_save);
  CLI::Option* dispatch =
      command
          ->add_flag(
              "--dispatch", flags->dispatch,
              "measure nothing; print for each instruction set whether its kernels run here, "
              "and why not")
          ->excludes(model)
          ->excludes(large)
          ->excludes(no_save)
          ->excludes(force);
  command
      ->add_option("--isa", flags->isa,
                   "with --dispatch: best instruction set to use, as LUCID_ISA")
      ->needs(dispatch);
  command->footer(
      "Read bandwidth, multiply-adds per second, clock and barriers by number of threads, "
      "from\n"
      "several short passes, in less than 20 s; what a busy machine has no time for is left out. "
      "Let\n"
      "nothing else run meanwhile: where more than 5 % of the CPU time went elsewhere, the figures "
      "do\n"
      "not replace those of a quieter hour. They are stored in machine.json of Lucid's folder for "
      "the\n"
      "CPUs that this process may use; lucid bench puts its own beside them.");
  command->callback([flags, &context] {
    if (const Status status = Run(*flags); !status) ReportError(status.error(), context);
  });
}

}  // namespace lucid::cli
