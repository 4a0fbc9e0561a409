// lucid explain: how a language model runs, a topic at a time, with the numbers of a model, a
// prompt and a machine.
//
//   lucid explain                                  # the topics
//   lucid explain kv-cache -m MODEL -c 4096
//   lucid explain --all --format html -o FOLDER    # a site of all pages
//
// src/explain has the pages.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>

#include "cli/command.h"
#include "cli/model_flags.h"
#include "explain/site.h"
#include "store/file_util.h"
#include "store/model_store.h"

namespace lucid::cli {
namespace {

constexpr const char* kUsualModel = "smollm2";  // what ./demo runs

struct ExplainFlags {
  ModelFlags model;
  std::string topic, prompt, type, hardware = "this", format = "text", output;
  bool list = false, all = false;
};

Result<std::unique_ptr<Subject>> OpenSubject(const ExplainFlags& flags) {
  SubjectOptions options;
  ModelFlags model = flags.model;
  if (model.model.empty()) {
    model.model = kUsualModel;
    if (!ResolveModel(kUsualModel)) {
      return Err(ErrorCode::kNotFound,
                 "pages show the numbers of a model: 'lucid pull {}' fetches a small one, or name "
                 "one with -m (a config.json will do for most topics)",
                 kUsualModel);
    }
  }
  LUCID_ASSIGN_OR_RETURN(options.engine, ToEngineConfig(model));
  options.name = model.model;
  if (!flags.prompt.empty()) options.prompt = flags.prompt;
  options.type = flags.type;
  options.hardware = flags.hardware;
  options.say = [](const std::string& message) { fmt::print(stderr, "lucid: {}\n", message); };
  return Subject::Open(std::move(options));
}

// To the file that was named, or to standard output.
Status Deliver(const std::string& text, const std::string& output) {
  if (!output.empty()) return WriteFileAtomically(output, text);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return {};
}

Status ExplainAll(const ExplainFlags& flags, Subject& subject) {
  if (flags.format == "html") {
    if (flags.output.empty()) {
      return Err(ErrorCode::kInvalidArgument,
                 "--all --format html is a folder of pages: name it "
                 "with -o");
    }
    LUCID_ASSIGN_OR_RETURN(const std::vector<SiteFile> files, MakeSite(subject));
    LUCID_RETURN_IF_ERROR(MakeFolders(flags.output));
    for (const SiteFile& file : files) {
      LUCID_RETURN_IF_ERROR(WriteFileAtomically(flags.output + "/" + file.name, file.content));
    }
    fmt::print("{} pages; open {}/index.html\n", files.size(), flags.output);
    return {};
  }
  std::string text;
  for (const Topic& topic : AllTopics()) {
    LUCID_ASSIGN_OR_RETURN(const std::string page, TopicText(topic, subject));
    text += (text.empty() ? "" : "\n\n\n") + page;
  }
  return Deliver(text, flags.output);
}

Status Run(const ExplainFlags& flags) {
  if (flags.list || (flags.topic.empty() && !flags.all)) {
    return Deliver(TopicList() +
                       "\nlucid explain TOPIC shows one, with the numbers of a model "
                       "(-m) and a prompt (-p).\n",
                   flags.output);
  }
  const Topic* topic = nullptr;
  if (!flags.all) {
    LUCID_ASSIGN_OR_RETURN(topic, FindTopic(flags.topic));
  }
  LUCID_ASSIGN_OR_RETURN(const std::unique_ptr<Subject> subject, OpenSubject(flags));
  if (flags.all) return ExplainAll(flags, *subject);
  LUCID_ASSIGN_OR_RETURN(const std::string text, flags.format == "html"
                                                     ? TopicHtml(*topic, *subject)
                                                     : TopicText(*topic, *subject));
  return Deliver(text, flags.output);
}

}  // namespace

void AddExplainCommand(CLI::App& root, CommandContext& context) {
  CLI::App* command = root.add_subcommand(
      "explain", "Explain how a model runs, a topic at a time, with its own numbers");
  auto flags = std::make_shared<ExplainFlags>();
  CLI::Option* topic =
      command->add_option("topic", flags->topic, "a topic; without one, all are listed");
  command->add_option(
      "-m,--model", flags->model.model,
      "model: a file, a folder, a name of 'lucid models', or a config.json; without "
      "it, smollm2");
  command->add_option("-p,--prompt", flags->prompt, "the text that pages take as example");
  command
      ->add_option("-c,--ctx-size", flags->model.context,
                   "tokens that a sequence is taken to have; 0: 2048, or what the model was "
                   "trained for where that is less")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30))
      ->capture_default_str();
  command->add_option("--type", flags->type,
                      "count weights of this type instead of the model's own, such as q4_k_m");
  command
      ->add_option("--hardware", flags->hardware,
                   "whose speed to reckon with: this (the machine it runs on), a name, or a file, "
                   "as lucid account takes it")
      ->capture_default_str();
  AddKvTypeFlags(*command, flags->model);
  AddThreadsFlag(*command, flags->model);
  command->add_option("--format", flags->format, "text, or html: a page with figures")
      ->check(CLI::IsMember({"text", "html"}))
      ->capture_default_str();
  command->add_option("-o,--output", flags->output,
                      "write to this file; with --all --format html, to this folder");
  CLI::Option* all =
      command->add_flag("--all", flags->all, "every topic; as html, a site of pages");
  CLI::Option* list = command->add_flag("--list", flags->list, "list the topics");
  all->excludes(topic)->excludes(list);
  list->excludes(topic);
  command->callback([flags, &context] {
    if (const Status status = Run(*flags); !status) ReportError(status.error(), context);
  });
}

}  // namespace lucid::cli
