// The `lucid` command: declares every subcommand, parses the command line, and turns what went
// wrong into one sentence and an exit code (0 success, 1 an error while working, 2 a wrong command
// line).
//
// No logic lives here: each command is a cmd_<name>.cc beside this file (command.h lists them).
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/edit_distance.h"
#include "base/env.h"
#include "cli/command.h"
#include "cli/config_file.h"
#include "engine/version.h"

namespace lucid::cli {
namespace {

constexpr int kUsageExitCode = 2;

// The subcommand of that name, or nullptr.
const CLI::App* FindCommand(const CLI::App& root, const std::string& name) {
  for (const CLI::App* command : root.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == name) return command;
  }
  return nullptr;
}

// The subcommand that a mistyped word most likely meant, or "".
std::string NearestCommand(const CLI::App& root, const std::string& word) {
  std::string nearest;
  size_t best = 3;  // more than two edits away is another word
  for (const CLI::App* command : root.get_subcommands([](const CLI::App*) { return true; })) {
    const size_t distance = EditDistance(word, command->get_name());
    if (distance < best) {
      best = distance;
      nearest = command->get_name();
    }
  }
  return nearest;
}

int ReportUsage(const std::string& message, const std::string& hint) {
  fmt::print(stderr, "lucid: {} ({})\n", message, hint);
  return kUsageExitCode;
}

int ReportUnknownCommand(const CLI::App& root, const std::string& word) {
  const std::string nearest = NearestCommand(root, word);
  return ReportUsage(fmt::format("there is no command '{}'", word),
                     nearest.empty() ? "lucid --help lists the commands"
                                     : fmt::format("did you mean 'lucid {}'?", nearest));
}

// The deepest subcommand that was named before the parser gave up.
const CLI::App* ParsedCommand(const CLI::App& root) {
  const CLI::App* command = &root;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  return command;
}

// "lucid models rm", as one would type it.
std::string CommandPath(const CLI::App& command) {
  return command.get_parent() == nullptr
             ? "lucid"
             : CommandPath(*command.get_parent()) + " " + command.get_name();
}

int ReportParseError(const CLI::App& root, const CLI::ParseError& error) {
  const CLI::App& command = *ParsedCommand(root);
  const std::string hint = fmt::format("{} --help shows the usage", CommandPath(command));
  // A word that fits nowhere comes first: it is often why something else seems to be missing.
  const std::vector<std::string> unknown = command.remaining();
  if (!unknown.empty()) {
    const bool is_flag = unknown[0].starts_with('-');
    return ReportUsage(
        fmt::format("{} '{}'", is_flag ? "there is no flag" : "there is no use for", unknown[0]),
        hint);
  }
  std::string message = error.what();
  while (!message.empty() && message.back() == '\n') message.pop_back();
  std::replace(message.begin(), message.end(), '\n', ' ');
  return ReportUsage(message, hint);
}

void AddHelpCommand(CLI::App& root, CommandContext& context) {
  CLI::App* help = root.add_subcommand("help", "Show the help of a command, or of 'env'");
  auto topic = std::make_shared<std::string>();
  help->add_option("topic", *topic, "a command, or env for the environment variables");
  help->callback([&root, &context, topic] {
    if (topic->empty()) {
      // Not root.help(): that would show the command being run, which is this one.
      fmt::print("{}", root.get_formatter()->make_help(&root, "lucid", CLI::AppFormatMode::Normal));
    } else if (*topic == "env") {
      fmt::print("{}", EnvHelp());
    } else if (const CLI::App* command = FindCommand(root, *topic)) {
      fmt::print("{}", command->help(CommandPath(*command->get_parent())));
    } else {
      context.exit_code = ReportUnknownCommand(root, *topic);
    }
  });
}

void AddCommands(CLI::App& root, CommandContext& context) {
  AddRunCommand(root, context);
  AddChatCommand(root, context);
  AddServeCommand(root, context);
  AddBatchCommand(root, context);
  AddBenchCommand(root, context);
  AddLimitsCommand(root, context);
  AddAccountCommand(root, context);
  AddProfileCommand(root, context);
  AddPackCommand(root, context);
  AddConvertCommand(root, context);
  AddPullCommand(root, context);
  AddModelsCommand(root, context);
  AddShowCommand(root, context);
  AddPlanCommand(root, context);
  AddTokenizeCommand(root, context);
  AddDetokenizeCommand(root, context);
  AddRenderCommand(root, context);
  AddLogitsCommand(root, context);
  AddPerplexityCommand(root, context);
  AddSelftestCommand(root, context);
  AddReplayCommand(root, context);
  AddTraceCommand(root, context);
  AddExplainCommand(root, context);
  AddCompletionCommand(root, context);
  AddHelpCommand(root, context);
}

// llama.cpp's flags of one dash and several letters, which CLI11 would read as one letter and a
// value.
constexpr std::pair<std::string_view, std::string_view> kOneDashFlags[] = {
    {"-ctk", "--cache-type-k"},
    {"-tb", "--threads-batch"},
    {"-ctv", "--cache-type-v"},
    {"-np", "--parallel"},
    {"-sys", "--system"}};

Result<std::vector<std::string>> Arguments(const CLI::App& root, int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  for (std::string& argument : arguments) {
    for (const auto& [spelling, flag] : kOneDashFlags) {
      if (argument == spelling) argument = flag;
    }
  }
  if (arguments.front() == "serve") {
    LUCID_ASSIGN_OR_RETURN(const std::vector<std::string> before,
                           SettingsBefore(*root.get_subcommand("serve"), "LUCID_SERVE_",
                                          {arguments.begin() + 1, arguments.end()}));
    arguments.insert(arguments.begin() + 1, before.begin(), before.end());
  }
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
  return arguments;
}

int Main(int argc, char** argv) {
  CLI::App root("Lucid runs large language models and shows what they do.", "lucid");
  CommandContext context;
  root.set_version_flag("--version", fmt::format("lucid {}", Version()), "Print the version");
  root.set_help_flag("-h,--help", "Print this help");
  root.footer(
      "'lucid COMMAND --help' explains a command, 'lucid help env' the environment variables.");
  // A flag that is given again replaces what was said before, as in other tools.
  root.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  AddCommands(root, context);
  // With one command at most, a later word that looks like another command is an argument of the
  // first.
  root.require_subcommand(0, 1);

  if (argc < 2) {
    fmt::print(stderr, "{}", root.help());
    return kUsageExitCode;
  }
  const std::string first = argv[1];
  if (!first.empty() && first[0] != '-' && FindCommand(root, first) == nullptr) {
    return ReportUnknownCommand(root, first);
  }
  const Result<std::vector<std::string>> arguments = Arguments(root, argc, argv);
  if (!arguments) {
    ReportError(arguments.error(), context);
    return context.exit_code;
  }
  try {
    root.parse(std::vector<std::string>(*arguments));
  } catch (const CLI::Success& wanted) {  // --help, --version
    return root.exit(wanted);
  } catch (const CLI::ParseError& error) {
    return ReportParseError(root, error);
  }
  if (root.get_subcommands().empty())
    return ReportUsage("no command is given", "lucid --help lists them");
  return context.exit_code;
}

}  // namespace
}  // namespace lucid::cli

int main(int argc, char** argv) {
  int code = 1;
  try {
    code = lucid::cli::Main(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("lucid: this machine has not enough memory for that\n", stderr);
  } catch (const std::system_error&) {  // fmt's answer to an output that takes no more; seen below
    code = 0;
    std::fflush(stdout);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lucid: unexpected failure: %s\n", error.what());
  }
  // Whatever was printed must have arrived: a full disk is a failure of any command.
  std::cout.flush();
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout) {
    std::fputs("lucid: cannot write to standard output\n", stderr);
    return code == 0 ? 1 : code;
  }
  return code;
}
