// The commands of lucid chat: lines that begin with a slash and never reach the model.
#pragma once

#include <string_view>

#include "base/result.h"
#include "cli/chat_session.h"

namespace lucid::cli {

enum class ChatAction {
  kNone,   // the command is done
  kRetry,  // the last message is to be answered once more
  kExit,
};

// Runs a line that begins with '/' and prints what it has to say on stdout. kInvalidArgument for an
// unknown command; other errors are those of what it does.
Result<ChatAction> RunChatCommand(ChatSession& session, std::string_view line);

}  // namespace lucid::cli
