// The subcommands of `lucid`, one cmd_<name>.cc each. main.cc calls every Add<Name>Command once.
//
// A command declares its flags on a CLI::App subcommand whose callback runs it and sets
// CommandContext::exit_code: 0 success, 1 an Error (printed by ReportError), 2 a wrong command
// line.
#pragma once

#include <CLI/CLI.hpp>

#include "base/result.h"

namespace lucid::cli {

struct CommandContext {
  int exit_code = 0;
};

void AddRunCommand(CLI::App& root, CommandContext& context);
void AddChatCommand(CLI::App& root, CommandContext& context);
void AddServeCommand(CLI::App& root, CommandContext& context);
void AddBatchCommand(CLI::App& root, CommandContext& context);
void AddBenchCommand(CLI::App& root, CommandContext& context);
void AddAccountCommand(CLI::App& root, CommandContext& context);
void AddProfileCommand(CLI::App& root, CommandContext& context);
void AddLimitsCommand(CLI::App& root, CommandContext& context);
void AddPackCommand(CLI::App& root, CommandContext& context);
void AddConvertCommand(CLI::App& root, CommandContext& context);
void AddPullCommand(CLI::App& root, CommandContext& context);
void AddModelsCommand(CLI::App& root, CommandContext& context);
void AddShowCommand(CLI::App& root, CommandContext& context);
void AddPlanCommand(CLI::App& root, CommandContext& context);
void AddTokenizeCommand(CLI::App& root, CommandContext& context);
void AddDetokenizeCommand(CLI::App& root, CommandContext& context);
void AddRenderCommand(CLI::App& root, CommandContext& context);
void AddLogitsCommand(CLI::App& root, CommandContext& context);
void AddPerplexityCommand(CLI::App& root, CommandContext& context);
void AddSelftestCommand(CLI::App& root, CommandContext& context);
void AddReplayCommand(CLI::App& root, CommandContext& context);
void AddTraceCommand(CLI::App& root, CommandContext& context);
void AddExplainCommand(CLI::App& root, CommandContext& context);
void AddCompletionCommand(CLI::App& root, CommandContext& context);

// Prints "lucid: <message>" on stderr and sets the exit code 1.
void ReportError(const Error& error, CommandContext& context);

// The text of a file, or of stdin for "-". kIo / kNotFound name the path.
Result<std::string> ReadTextFile(const std::string& path);

// 1536 -> "1.5 KiB"
std::string FormatBytes(int64_t bytes);

}  // namespace lucid::cli
