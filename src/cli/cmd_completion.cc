// lucid completion bash|zsh: prints a completion script made from the declared commands and flags,
// so it cannot miss one.
//
//   source <(lucid completion bash)           # or: lucid completion zsh > ~/.zfunc/_lucid
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"

namespace lucid::cli {
namespace {

// Model names come from the store; whatever is no flag falls back to file names.
constexpr std::string_view kBashTemplate = R"sh(# bash completion for lucid
_lucid() {
  local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}" words=""
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "@COMMANDS@" -- "$current"))
    return
  fi
  case "$previous" in
    -m|--model|rm)
      words="$(lucid models --names 2>/dev/null)"
      COMPREPLY=($(compgen -W "$words" -- "$current") $(compgen -f -- "$current"))
      return ;;
  esac
  case "${COMP_WORDS[1]}" in
@CASES@  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -o bashdefault -F _lucid lucid
)sh";

constexpr std::string_view kZshTemplate = R"sh(#compdef lucid
_lucid_models() {
  local -a names=(${(f)"$(lucid models --names 2>/dev/null)"})
  compadd -a names
  _files
}
_lucid() {
  local -a commands=(
@COMMANDS@  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  case $command in
@CASES@  esac
}
if [ "$funcstack[1]" = _lucid ]; then _lucid "$@"; else compdef _lucid lucid; fi
)sh";

std::string Fill(std::string_view text, const std::string& commands, const std::string& cases) {
  std::string filled(text);
  const auto replace = [&filled](std::string_view mark, const std::string& by) {
    filled.replace(filled.find(mark), mark.size(), by);
  };
  replace("@COMMANDS@", commands);
  replace("@CASES@", cases);
  return filled;
}

// Named subcommands; an option group is a nameless one.
std::vector<const CLI::App*> Subcommands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* sub) { return !sub->get_name().empty(); });
}

// Options that a person may type; hidden ones have no group.
std::vector<const CLI::Option*> FlagsOf(const CLI::App& app) {
  std::vector<const CLI::Option*> flags;
  for (const CLI::Option* option : app.get_options()) {
    if (option->nonpositional() && !option->get_group().empty()) flags.push_back(option);
  }
  for (const CLI::App* group :
       app.get_subcommands([](const CLI::App* sub) { return sub->get_name().empty(); })) {
    for (const CLI::Option* option : FlagsOf(*group)) {
      if (option != group->get_help_ptr()) flags.push_back(option);  // its command has one
    }
  }
  return flags;
}

// "-n", "--n-predict"
std::vector<std::string> Spellings(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

bool TakesValue(const CLI::Option& option) {
  return option.get_items_expected_max() > 0;
}

bool NamesAModel(const CLI::Option& option) {
  return option.check_lname("model");
}

std::string WordsAfter(const CLI::App& command) {
  std::string words;
  for (const CLI::App* sub : Subcommands(command)) words += sub->get_name() + " ";
  for (const CLI::Option* flag : FlagsOf(command)) {
    for (const std::string& name : Spellings(*flag)) words += name + " ";
  }
  if (!words.empty()) words.pop_back();
  return words;
}

std::string BashScript(const CLI::App& root) {
  std::string cases;
  for (const CLI::App* command : Subcommands(root)) {
    cases += fmt::format("    {}) words=\"{}\" ;;\n", command->get_name(), WordsAfter(*command));
  }
  return Fill(kBashTemplate, WordsAfter(root), cases);
}

// For a word inside '...' of zsh, where _arguments gives [ ] and : a meaning.
std::string ZshQuoted(const std::string& text) {
  std::string quoted;
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else if (c == '[' || c == ']' || c == ':') {
      quoted += std::string("\\") + c;
    } else {
      quoted += c == '\n' ? ' ' : c;
    }
  }
  return quoted;
}

std::string ZshFlag(const CLI::Option& flag) {
  const std::vector<std::string> names = Spellings(flag);
  std::string all;
  std::string braces;
  for (const std::string& name : names) {
    all += (all.empty() ? "" : " ") + name;
    braces += (braces.empty() ? "" : ",") + name;
  }
  const std::string head =
      names.size() == 1 ? fmt::format("'{}", names[0]) : fmt::format("'({})'{{{}}}'", all, braces);
  const char* action = !TakesValue(flag)   ? ""
                       : NamesAModel(flag) ? ":model:_lucid_models"
                                           : ":value:_files";
  return fmt::format("{}[{}]{}'", head, ZshQuoted(flag.get_description()), action);
}

std::string ZshScript(const CLI::App& root) {
  std::string commands;
  std::string cases;
  for (const CLI::App* command : Subcommands(root)) {
    commands +=
        fmt::format("    '{}:{}'\n", command->get_name(), ZshQuoted(command->get_description()));
    cases += fmt::format("    {}) _arguments", command->get_name());
    for (const CLI::Option* flag : FlagsOf(*command)) cases += " \\\n      " + ZshFlag(*flag);
    std::string subs;
    for (const CLI::App* sub : Subcommands(*command)) subs += " " + sub->get_name();
    if (!subs.empty()) cases += fmt::format(" \\\n      '1:action:({})'", subs.substr(1));
    cases += " \\\n      '*:file:_files' ;;\n";
  }
  return Fill(kZshTemplate, commands, cases);
}

}  // namespace

void AddCompletionCommand(CLI::App& root, CommandContext&) {
  CLI::App* command = root.add_subcommand("completion", "Print a completion script for a shell");
  command->footer("Load it with:\n  source <(lucid completion bash)");
  auto shell = std::make_shared<std::string>();
  command->add_option("shell", *shell, "bash or zsh")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh"}));
  command->callback(
      [&root, shell] { fmt::print("{}", *shell == "bash" ? BashScript(root) : ZshScript(root)); });
}

}  // namespace lucid::cli
