// Settings of a command from a file and from the environment, as if they stood before the flags of
// the command line.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"

namespace lucid::cli {

// The arguments that `given`, the words behind the command's name, are to be preceded by: first
// those of the file that --config or <prefix>CONFIG names (TOML or YAML: flags without dashes as
// keys, a list where a flag may be given several times), then those of variables such as
// <prefix>PORT for --port. What comes later replaces what came before. kInvalidArgument names the
// file and the key; kNotFound, kIo.
Result<std::vector<std::string>> SettingsBefore(const CLI::App& command, const std::string& prefix,
                                                const std::vector<std::string>& given);

}  // namespace lucid::cli
