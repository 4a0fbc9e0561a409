// lucid render: the prompt that a conversation becomes, as text and as token ids.
//
//   lucid render -m smollm2 -f messages.json
//   lucid render -m model.gguf -f messages.json --tools tools.json --ids
//
// The work is RenderChatPrompt (engine/chat_prompt.h), which `lucid run` uses too.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/json.h"
#include "cli/command.h"
#include "cli/tokenizer_flags.h"
#include "engine/chat_prompt.h"

namespace lucid::cli {
namespace {

using Json = nlohmann::ordered_json;

struct RenderFlags {
  std::string model, messages, tools, documents, chat_template, kwargs;
  bool generation_prompt = true, continue_final = false;
  bool ids = false, json = false;
};

std::string NameOf(const std::string& path) {
  return path == "-" ? "standard input" : path;
}

Result<Json> ReadJson(const std::string& path) {
  LUCID_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  return ParseJson(text, NameOf(path));
}

Result<Json> ReadArray(const std::string& path) {
  LUCID_ASSIGN_OR_RETURN(Json json, ReadJson(path));
  if (!json.is_array()) {
    return Err(ErrorCode::kInvalidArgument, "{} is not a JSON array", NameOf(path));
  }
  return json;
}

// Adds the members of `kwargs` to the variables; `name` says in errors where they come from.
Status AddVariables(const Json& kwargs, const std::string& name, Json& variables) {
  if (!kwargs.is_object()) {
    return Err(ErrorCode::kInvalidArgument, "{} is not a JSON object", name);
  }
  if (kwargs.contains("messages")) {
    return Err(ErrorCode::kInvalidArgument, "{} cannot set 'messages'; they come from --file",
               name);
  }
  variables.update(kwargs);
  return {};
}

// The messages of a file that holds an array of them, or an object of a request: `messages`, and
// variables of the template such as `tools` beside it.
Result<Json> ReadConversation(const std::string& path, Json& variables) {
  LUCID_ASSIGN_OR_RETURN(Json conversation, ReadJson(path));
  if (!conversation.is_object()) return conversation;
  if (!conversation.contains("messages")) {
    return Err(ErrorCode::kInvalidArgument, "{} is an object without 'messages'", NameOf(path));
  }
  for (const char* name : {"tools", "documents"}) {
    if (conversation.contains(name)) variables[name] = conversation[name];
  }
  if (conversation.contains("chat_template_kwargs")) {
    LUCID_RETURN_IF_ERROR(AddVariables(conversation["chat_template_kwargs"],
                                       "chat_template_kwargs of " + NameOf(path), variables));
  }
  return Json(std::move(conversation["messages"]));
}

Result<ChatPrompt> Render(const RenderFlags& flags) {
  ChatTemplateOptions options;
  options.add_generation_prompt = flags.generation_prompt;
  options.continue_final_message = flags.continue_final;
  LUCID_ASSIGN_OR_RETURN(const Json messages, ReadConversation(flags.messages, options.variables));
  if (!flags.tools.empty()) {
    LUCID_ASSIGN_OR_RETURN(options.variables["tools"], ReadArray(flags.tools));
  }
  if (!flags.documents.empty()) {
    LUCID_ASSIGN_OR_RETURN(options.variables["documents"], ReadArray(flags.documents));
  }
  if (!flags.kwargs.empty()) {
    LUCID_ASSIGN_OR_RETURN(const Json kwargs, ParseJson(flags.kwargs, "--chat-template-kwargs"));
    LUCID_RETURN_IF_ERROR(AddVariables(kwargs, "--chat-template-kwargs", options.variables));
  }
  for (const char* name : {"tools", "documents"}) {
    const auto found = options.variables.find(name);
    if (found != options.variables.end() && !found->is_array() && !found->is_null()) {
      return Err(ErrorCode::kInvalidArgument, "'{}' is not an array", name);
    }
  }
  LUCID_ASSIGN_OR_RETURN(LoadedTokenizer loaded, LoadNamedTokenizer(flags.model));
  std::string source = loaded.chat_template;
  if (!flags.chat_template.empty()) {
    LUCID_ASSIGN_OR_RETURN(source, ReadTextFile(flags.chat_template));
  }
  if (source.empty()) {
    return Err(ErrorCode::kNotFound, "{} has no chat template; give one with --chat-template",
               flags.model);
  }
  LUCID_ASSIGN_OR_RETURN(const ChatTemplate chat, ChatTemplate::Parse(std::move(source)));
  return RenderChatPrompt(chat, *loaded.tokenizer, messages, std::move(options));
}

void Print(const RenderFlags& flags, const ChatPrompt& prompt) {
  if (flags.ids) {
    fmt::print("{}\n", fmt::join(prompt.ids, ","));
  } else if (flags.json) {
    const Json json = {{"text", prompt.text}, {"ids", prompt.ids}, {"n_tokens", prompt.ids.size()}};
    fmt::print("{}\n", json.dump(-1, ' ', false, Json::error_handler_t::replace));
  } else {
    fmt::print("{}\n\n{} tokens: {}\n", prompt.text, prompt.ids.size(), fmt::join(prompt.ids, ","));
  }
}

}  // namespace

void AddRenderCommand(CLI::App& root, CommandContext& context) {
  CLI::App* command = root.add_subcommand("render", "Show the prompt a conversation becomes");
  auto flags = std::make_shared<RenderFlags>();
  AddTokenizerFlag(*command, flags->model);
  command
      ->add_option(
          "-f,--file,--messages", flags->messages,
          "JSON: an array of messages, or an object with messages and tools; - for standard input")
      ->required();
  command->add_option("--tools", flags->tools, "JSON file with an array of tools");
  command->add_option("--documents", flags->documents, "JSON file with an array of documents");
  command->add_option("--chat-template", flags->chat_template,
                      "file with a Jinja template to use instead of the model's");
  command->add_option("--chat-template-kwargs", flags->kwargs,
                      "JSON object with further variables of the template");
  command->add_flag("--generation-prompt,!--no-generation-prompt", flags->generation_prompt,
                    "open the assistant's turn at the end (the default), or not");
  command->add_flag("--continue-final-message", flags->continue_final,
                    "leave the last message open, for the model to continue it");
  CLI::Option* ids =
      command->add_flag("--ids", flags->ids, "print the ids alone, separated by commas");
  command->add_flag("--json", flags->json, "print JSON: text, ids, n_tokens")->excludes(ids);
  command->callback([flags, &context] {
    const Result<ChatPrompt> prompt = Render(*flags);
    if (!prompt) return ReportError(prompt.error(), context);
    Print(*flags, *prompt);
  });
}

}  // namespace lucid::cli
