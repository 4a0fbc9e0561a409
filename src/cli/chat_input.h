// What the user types in lucid chat: lines, and the messages they make up.
//
// On a terminal the lines come from libedit, with a history that is kept in a file; otherwise they
// are read plainly from standard input, so that a conversation can be scripted. cmd_chat.cc is the
// only user.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace lucid::cli {

enum class InputEvent {
  kText,         // a line or message
  kInterrupted,  // Ctrl-C: what was typed is dropped
  kEnd,          // Ctrl-D on an empty line, or the end of the input
};

struct ChatMessage {
  std::string text;
  bool literal = false;  // it came from a """ block: never a command
};

class ChatInput {
 public:
  // Edits lines if standard input and output are terminals. A history file that cannot be read or
  // written is done without.
  explicit ChatInput(std::string history_file);
  ~ChatInput();
  ChatInput(const ChatInput&) = delete;
  ChatInput& operator=(const ChatInput&) = delete;

  bool interactive() const;

  // Reads one message: a line; several, where each but the last ends in a backslash; or all lines
  // between two lines of """. The end of the input also ends a message that was begun.
  InputEvent ReadMessage(ChatMessage& message);

 private:
  struct Editor;
  InputEvent ReadLine(const char* prompt, std::string& line);
  InputEvent ReadBlock(std::string& text);

  std::unique_ptr<Editor> editor_;  // none where lines are read plainly
};

// The file that holds the lines typed earlier, in the folder of the model store's home.
std::string ChatHistoryFile();

}  // namespace lucid::cli
