#include "cli/chat_commands.h"

#include <fmt/format.h>

#include <optional>
#include <string>

#include "base/env.h"

namespace lucid::cli {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

std::string_view Trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) + 1 - first);
}

// The first word, and what follows it.
struct Split {
  std::string_view word, rest;
};

Split SplitWord(std::string_view text) {
  const size_t end = std::min(text.find_first_of(kSpace), text.size());
  return {text.substr(0, end), Trimmed(text.substr(end))};
}

Result<std::string> FilePath(std::string_view command, std::string_view argument) {
  if (argument.empty()) {
    return Err(ErrorCode::kInvalidArgument, "{} needs the name of a file", command);
  }
  if (argument.starts_with("~/")) {
    if (const auto home = Env("HOME")) return *home + std::string(argument.substr(1));
  }
  return std::string(argument);
}

using Handler = Result<ChatAction> (*)(ChatSession& session, std::string_view argument);

struct Command {
  std::string_view name, arguments, help;
  Handler run;
};

Result<ChatAction> Help(ChatSession&, std::string_view);

Result<ChatAction> Set(ChatSession& session, std::string_view argument) {
  const auto [name, value] = SplitWord(argument);
  if (name.empty()) {
    fmt::print("{}", DescribeSettings(session.settings()));
    return ChatAction::kNone;
  }
  if (!value.empty()) LUCID_RETURN_IF_ERROR(SetSetting(session.settings(), name, value));
  LUCID_ASSIGN_OR_RETURN(const std::string line, DescribeSetting(session.settings(), name));
  fmt::print("{}\n", line);
  return ChatAction::kNone;
}

Result<ChatAction> System(ChatSession& session, std::string_view argument) {
  return Set(session, "system " + std::string(argument));
}

Result<ChatAction> Stats(ChatSession& session, std::string_view) {
  LUCID_ASSIGN_OR_RETURN(const std::string text, session.Describe());
  fmt::print("{}", text);
  return ChatAction::kNone;
}

Result<ChatAction> Clear(ChatSession& session, std::string_view) {
  session.Clear();
  fmt::print("The conversation is forgotten.\n");
  return ChatAction::kNone;
}

Result<ChatAction> Undo(ChatSession& session, std::string_view) {
  LUCID_RETURN_IF_ERROR(session.Undo());
  fmt::print("The last message and its reply are taken back.\n");
  return ChatAction::kNone;
}

Result<ChatAction> Retry(ChatSession&, std::string_view) {
  return ChatAction::kRetry;
}

Result<ChatAction> Save(ChatSession& session, std::string_view argument) {
  LUCID_ASSIGN_OR_RETURN(const std::string path, FilePath("/save", argument));
  LUCID_ASSIGN_OR_RETURN(const int64_t cached, session.Save(path));
  fmt::print("Saved the conversation ({} messages) to {}{}.\n", 2 * session.turns().size(), path,
             cached == 0 ? ""
                         : fmt::format(", the cache of {} tokens to {}", cached,
                                       ChatSession::CacheFile(path)));
  const std::string why_not = session.WhyNothingIsKept();
  if (!why_not.empty()) fmt::print("No cache is saved with it: {}.\n", why_not);
  return ChatAction::kNone;
}

Result<ChatAction> Load(ChatSession& session, std::string_view argument) {
  LUCID_ASSIGN_OR_RETURN(const std::string path, FilePath("/load", argument));
  LUCID_RETURN_IF_ERROR(session.Load(path));
  const std::string why_not = session.WhyNothingIsKept();
  const std::optional<Result<int64_t>> cached =
      why_not.empty() ? session.LoadCache(path) : std::nullopt;
  const bool useful = cached && *cached;
  fmt::print("Loaded a conversation ({} messages) from {}{}.\n", 2 * session.turns().size(), path,
             useful ? fmt::format(" and the cache of {} tokens", **cached) : "");
  if (!why_not.empty()) fmt::print("No saved cache is used: {}.\n", why_not);
  if (cached && !useful) {
    fmt::print("The saved cache is not used: {}.\n", cached->error().message);
  }
  return ChatAction::kNone;
}

Result<ChatAction> Exit(ChatSession&, std::string_view) {
  return ChatAction::kExit;
}

constexpr Command kCommands[] = {
    {"/help", "", "this list", Help},
    {"/set", "[NAME [VALUE]]", "show the settings, or change one", Set},
    {"/system", "TEXT", "set the system message (\"\": none)", System},
    {"/stats", "", "tokens, context, cache and speed", Stats},
    {"/undo", "", "take back the last message and its reply", Undo},
    {"/retry", "", "replace the last reply by another one", Retry},
    {"/clear", "", "forget the conversation", Clear},
    {"/save", "FILE", "write the conversation and the settings as JSON, the cache beside them",
     Save},
    {"/load", "FILE", "read them again", Load},
    {"/exit", "", "leave; also /bye, /quit and Ctrl-D", Exit},
    {"/bye", "", "", Exit},
    {"/quit", "", "", Exit},
};

Result<ChatAction> Help(ChatSession&, std::string_view) {
  for (const Command& command : kCommands) {
    if (command.help.empty()) continue;  // another name of the one before
    fmt::print("  {:<22} {}\n", fmt::format("{} {}", command.name, command.arguments),
               command.help);
  }
  fmt::print(
      "A line that ends in \\ continues on the next. Lines between two lines of \"\"\" are one\n"
      "message. Ctrl-C stops a reply; at the prompt it drops the line, and twice it leaves.\n");
  return ChatAction::kNone;
}

}  // namespace

Result<ChatAction> RunChatCommand(ChatSession& session, std::string_view line) {
  const auto [name, argument] = SplitWord(Trimmed(line));
  for (const Command& command : kCommands) {
    if (command.name != name) continue;
    if (command.arguments.empty() && !argument.empty()) {
      return Err(ErrorCode::kInvalidArgument, "{} takes nothing after it", name);
    }
    return command.run(session, argument);
  }
  return Err(ErrorCode::kInvalidArgument,
             "there is no command '{}'; /help lists them, and a message that begins with / goes "
             "between two lines of \"\"\"",
             name);
}

}  // namespace lucid::cli
