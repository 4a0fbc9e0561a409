#include "cli/chat_input.h"

#include <fcntl.h>
#include <histedit.h>
#include <unistd.h>

#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <utility>

#include "store/file_util.h"
#include "store/model_store.h"

namespace lucid::cli {
namespace {

constexpr const char* kPrompt = "> ";
constexpr const char* kContinuedPrompt = ". ";
constexpr std::string_view kBlockMark = "\"\"\"";

// Lines of history that can be recalled. The file may grow to twice that before it is cut.
constexpr size_t kHistoryLines = 1000;

// libedit decodes what is typed with the locale's encoding; "C" would lose every letter beyond
// ASCII.
void UseUtf8() {
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
}

// The last lines of the file; it is rewritten where it has grown too long.
std::deque<std::string> LoadHistory(const std::string& path) {
  std::deque<std::string> lines;
  std::ifstream file(path, std::ios::binary);
  size_t n_lines = 0;
  for (std::string line; std::getline(file, line); ++n_lines) {
    lines.push_back(line);
    if (lines.size() > kHistoryLines) lines.pop_front();
  }
  if (n_lines > 2 * kHistoryLines) {
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    // A failure leaves the long file, which works as well.
    static_cast<void>(WriteFileAtomically(path, text));
  }
  return lines;
}

bool IsBlockMark(std::string_view line) {
  return line.substr(0, line.find_last_not_of(" \t") + 1) == kBlockMark;
}

}  // namespace

// libedit's editor and history, and the file behind the history. Each line is appended as it is
// typed, so that several sessions can share the file and a crash loses nothing.
struct ChatInput::Editor {
  EditLine* edit = nullptr;
  History* history = nullptr;
  std::string file;
  std::string newest;
  const char* prompt = kPrompt;
  bool interrupted = false;

  explicit Editor(std::string history_file);
  ~Editor();
  Editor(const Editor&) = delete;
  Editor& operator=(const Editor&) = delete;

  InputEvent Read(const char* shown, std::string& line);
  void Recall(const std::string& line);
  void Remember(const std::string& line);

  static Editor* Of(EditLine* edit) {
    Editor* self = nullptr;
    el_get(edit, EL_CLIENTDATA, &self);
    return self;
  }
  static const char* Prompt(EditLine* edit) { return Of(edit)->prompt; }
  static unsigned char OnCtrlC(EditLine* edit, int) {
    Of(edit)->interrupted = true;
    return CC_EOF;
  }
  // libedit's handler of the signal puts the terminal in order before it stops, and again
  // afterwards.
  static unsigned char OnCtrlZ(EditLine*, int) {
    std::raise(SIGTSTP);
    return CC_REDISPLAY;
  }
};

ChatInput::Editor::Editor(std::string history_file) : file(std::move(history_file)) {
  UseUtf8();
  edit = el_init("lucid", stdin, stdout, stderr);
  history = history_init();
  el_set(edit, EL_CLIENTDATA, this);
  el_set(edit, EL_PROMPT, &Editor::Prompt);
  el_set(edit, EL_EDITOR, "emacs");
  el_set(edit, EL_SIGNAL, 1);  // resizing, suspending and resuming
  HistEvent event;
  ::history(history, &event, H_SETSIZE, static_cast<int>(kHistoryLines));
  ::history(history, &event, H_SETUNIQUE, 1);
  el_set(edit, EL_HIST, ::history, history);
  el_source(edit, nullptr);  // the user's ~/.editrc
  // While a line is edited, Ctrl-C and Ctrl-Z are keys; while a reply streams they are signals.
  el_set(edit, EL_SETTY, "-d", "-isig", nullptr);
  // What is typed during a reply waits, unseen and as typed, for the next prompt. In line mode it
  // would mix with the reply, and an early Ctrl-D would be lost.
  el_set(edit, EL_SETTY, "-x", "-icanon", "-echo", nullptr);
  // (The wide form keeps the literals; the narrow one leaks a copy of them.)
  el_wset(edit, EL_ADDFN, L"lucid-interrupt", L"Drop the line", &Editor::OnCtrlC);
  el_set(edit, EL_BIND, "^C", "lucid-interrupt", nullptr);
  el_wset(edit, EL_ADDFN, L"lucid-suspend", L"Stop the program", &Editor::OnCtrlZ);
  el_set(edit, EL_BIND, "^Z", "lucid-suspend", nullptr);
  for (const std::string& line : LoadHistory(file)) Recall(line);
}

ChatInput::Editor::~Editor() {
  el_end(edit);
  history_end(history);
}

void ChatInput::Editor::Recall(const std::string& line) {
  HistEvent event;
  ::history(history, &event, H_ENTER, line.c_str());
  newest = line;
}

void ChatInput::Editor::Remember(const std::string& line) {
  if (line.empty() || line == newest) return;
  Recall(line);
  const int fd = open(file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return;
  const std::string text = line + "\n";
  // One write, so that lines of two sessions do not mix; a full disk only costs the history.
  static_cast<void>(!write(fd, text.data(), text.size()));
  close(fd);
}

InputEvent ChatInput::Editor::Read(const char* shown, std::string& line) {
  prompt = shown;
  interrupted = false;
  int n = 0;
  // el_gets shows the prompt before it takes the terminal over; a key that comes in between would
  // still be a signal or the end of the input.
  el_set(edit, EL_PREP_TERM, 1);
  const char* text = el_gets(edit, &n);
  if (interrupted) {
    std::fputs("^C\n", stdout);
    return InputEvent::kInterrupted;
  }
  if (text == nullptr || n <= 0) return InputEvent::kEnd;
  line = text;
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
  Remember(line);
  return InputEvent::kText;
}

ChatInput::ChatInput(std::string history_file) {
  if (isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0) return;
  editor_ = std::make_unique<Editor>(std::move(history_file));
}

ChatInput::~ChatInput() = default;

bool ChatInput::interactive() const {
  return editor_ != nullptr;
}

InputEvent ChatInput::ReadLine(const char* prompt, std::string& line) {
  if (editor_ != nullptr) return editor_->Read(prompt, line);
  if (!std::getline(std::cin, line)) return InputEvent::kEnd;
  if (!line.empty() && line.back() == '\r') line.pop_back();
  return InputEvent::kText;
}

InputEvent ChatInput::ReadBlock(std::string& text) {
  text.clear();
  std::string line;
  for (bool first = true;; first = false) {
    const InputEvent event = ReadLine(kContinuedPrompt, line);
    if (event == InputEvent::kInterrupted) return event;
    if (event == InputEvent::kEnd || IsBlockMark(line)) return InputEvent::kText;
    text += (first ? "" : "\n") + line;
  }
}

InputEvent ChatInput::ReadMessage(ChatMessage& message) {
  message = {};
  std::string line;
  InputEvent event = ReadLine(kPrompt, line);
  if (event != InputEvent::kText) return event;
  if (IsBlockMark(line)) {
    message.literal = true;
    return ReadBlock(message.text);
  }
  while (event == InputEvent::kText && line.ends_with('\\')) {
    line.back() = '\n';
    message.text += line;
    line.clear();
    event = ReadLine(kContinuedPrompt, line);
    if (event == InputEvent::kInterrupted) return event;
  }
  message.text += line;
  return InputEvent::kText;
}

std::string ChatHistoryFile() {
  const std::string home = std::filesystem::path(ModelStoreFolder()).parent_path().string();
  // Without the folder there is no history, and chat works all the same.
  static_cast<void>(MakeFolders(home));
  return home + "/chat_history";
}

}  // namespace lucid::cli
