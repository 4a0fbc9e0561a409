// lucid chat: a conversation in the terminal, or scripted through standard input.
//
// This file declares the flags and holds the loop; chat_input reads, chat_commands obeys,
// chat_session talks to the engine.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cli/chat_commands.h"
#include "cli/chat_input.h"
#include "cli/chat_session.h"
#include "cli/command.h"
#include "cli/engine_flags.h"
#include "cli/generate.h"
#include "cli/model_flags.h"
#include "cli/sampling_flags.h"

namespace lucid::cli {
namespace {

struct ChatFlags {
  ModelFlags model;
  EngineFlags engine;
  RequestCacheFlags cache;
  ChatSettings settings;
  std::string chat_template_file;
};

// Reads, obeys and answers until the input ends.
class ChatLoop {
 public:
  explicit ChatLoop(ChatSession& session) : session_(session), input_(ChatHistoryFile()) {}

  void Run() {
    if (input_.interactive()) fmt::print("/help lists the commands, Ctrl-D leaves.\n");
    int interrupts = 0;  // in a row
    ChatMessage message;
    while (true) {
      const InputEvent event = input_.ReadMessage(message);
      if (event == InputEvent::kInterrupted) {
        if (++interrupts == 2) return;
        fmt::print("Ctrl-C once more leaves.\n");
        continue;
      }
      interrupts = 0;
      if (event == InputEvent::kEnd) break;
      if (!Handle(message)) return;
      std::fflush(stdout);
    }
    if (input_.interactive()) fmt::print("\n");  // the prompt's line ends
  }

 private:
  // False to leave.
  bool Handle(ChatMessage& message) {
    if (message.text.find_first_not_of(" \t\n") == std::string::npos) return true;
    if (message.literal || !message.text.starts_with('/')) {
      Show([&](const OnText& on_text) { return session_.Say(std::move(message.text), on_text); });
      return true;
    }
    const Result<ChatAction> action = RunChatCommand(session_, message.text);
    if (!action) {
      Complain(action.error());
    } else if (*action == ChatAction::kRetry) {
      Show([&](const OnText& on_text) { return session_.Retry(on_text); });
    }
    return !action || *action != ChatAction::kExit;
  }

  // Streams what `answer` says, then what is to be known about it.
  template <typename Answer>
  void Show(Answer answer) {
    const Result<FinishedReply> reply = answer([](std::string_view text) {
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fflush(stdout);
    });
    if (!reply) {
      Complain(reply.error());
      return;
    }
    std::fputc('\n', stdout);
    std::fflush(stdout);
    if (reply->cause == StopCause::kAborted) {
      fmt::print(stderr, "{}\n",
                 reply->text.empty() ? "(stopped before the reply began; nothing has changed)"
                                     : "(stopped)");
    } else if (reply->cause == StopCause::kLength && session_.full()) {
      fmt::print(stderr, "(the {} is full; /clear forgets the conversation)\n",
                 session_.limit_is_cache() ? "cache" : "context");
    }
    if (session_.settings().stats) ShowStats(*reply);
  }

  void ShowStats(const FinishedReply& reply) {
    const bool dim = isatty(STDERR_FILENO) != 0;
    fmt::print(stderr, "{}{}{}\n", dim ? "\x1b[2m" : "", StatsLine(reply, session_.last_seed()),
               dim ? "\x1b[0m" : "");
  }

  static void Complain(const Error& error) {
    std::fflush(stdout);  // what was printed before comes first
    fmt::print(stderr, "lucid: {}\n", error.message);
  }

  ChatSession& session_;
  ChatInput input_;
};

Status Chat(const ChatFlags& flags) {
  LUCID_RETURN_IF_ERROR(CheckSettings(flags.settings));
  LUCID_RETURN_IF_ERROR(CheckCacheFlags(flags.cache, flags.engine));
  LUCID_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                         LoadEngine(flags.model, flags.engine));
  LUCID_RETURN_IF_ERROR(CheckCacheFlags(flags.cache, *engine));
  LUCID_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, engine->tokenizer());
  std::optional<ChatTemplate> own;
  LUCID_ASSIGN_OR_RETURN(const ChatTemplate* chat_template,
                         FindChatTemplate(flags.chat_template_file, *engine, own));
  ChatSession session(*engine, *tokenizer, *chat_template, flags.settings, flags.cache);
  ChatLoop(session).Run();
  if (std::fflush(stdout) != 0) return Err(ErrorCode::kIo, "cannot write to standard output");
  return {};
}

}  // namespace

void AddChatCommand(CLI::App& root, CommandContext& context) {
  CLI::App* command = root.add_subcommand("chat", "Talk with a model");
  command->footer(
      "Lines of standard input are read plainly where it is no terminal:\n"
      "  printf 'Hello!\\nTell me more.\\n' | lucid chat -m smollm2");
  auto flags = std::make_shared<ChatFlags>();
  AddModelFlags(*command, flags->model);
  AddSamplingFlags(*command, flags->settings.sampling);
  AddChunkFlag(*command, flags->engine);
  AddCacheFlags(*command, flags->engine);
  AddReuseFlags(*command, flags->engine);
  AddRequestCacheFlags(*command, flags->cache);
  command->add_option("--system", flags->settings.system,
                      "a system message before the conversation");
  command->add_option("--chat-template", flags->chat_template_file,
                      "a file with the template to use");
  command
      ->add_option("-n,--n-predict", flags->settings.max_tokens,
                   "most tokens of a reply; -1: until the model ends it")
      ->check(CLI::Range(int64_t{-1}, int64_t{1} << 30))
      ->capture_default_str();
  command
      ->add_option("--stop,-r,--reverse-prompt", flags->settings.stop,
                   "end a reply before this text; may be repeated")
      ->allow_extra_args(false);
  command->add_flag("--stats", flags->settings.stats, "print a line of figures after each reply");
  command->callback([flags, &context] {
    if (const Status status = Chat(*flags); !status) ReportError(status.error(), context);
  });
}

}  // namespace lucid::cli
