// Environment variables: one table of all that Lucid reads, with their meaning.
//
// Env() is the only way to read one, so a variable without a row of documentation cannot exist.
// `lucid help env` prints the table.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lucid {

struct EnvVariable {
  std::string_view name;
  std::string_view default_text;  // what holds without it
  std::string_view help;
};

std::span<const EnvVariable> EnvVariables();

// The value of a variable of the table, where "NAME_..." stands for all that begin with NAME_, or
// nullopt where it is unset or empty.
std::optional<std::string> Env(std::string_view name);

// True for any value but "0", "false", "no" and "off".
bool EnvFlag(std::string_view name);

// The table as text, one variable a paragraph.
std::string EnvHelp();

}  // namespace lucid
