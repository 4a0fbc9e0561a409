// lucid pull NAME|URL|hf:REPO[:QUANT]: fetches a model into the store. The work is in store/pull.h;
// this file draws the progress.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>

#include "cli/command.h"
#include "store/catalogue.h"
#include "store/pull.h"

namespace lucid::cli {
namespace {

// One line on a terminal, redrawn at most ten times a second; silent elsewhere.
class DownloadLine {
 public:
  ~DownloadLine() { End(); }

  void Show(const std::string& file, uint64_t done, uint64_t total) {
    if (isatty(STDERR_FILENO) == 0) return;
    const auto now = Clock::now();
    if (file != file_) {
      End();
      file_ = file;
      started_ = now;
      done_at_start_ = done;
    } else if (now - drawn_ < std::chrono::milliseconds(100) && done != total) {
      return;
    }
    drawn_ = now;
    const double seconds = std::chrono::duration<double>(now - started_).count();
    const double rate = seconds > 0 ? static_cast<double>(done - done_at_start_) / seconds : 0;
    std::string line = fmt::format("{}: {}", file, FormatBytes(static_cast<int64_t>(done)));
    if (total > 0) {
      line +=
          fmt::format(" of {} ({}%)", FormatBytes(static_cast<int64_t>(total)), done * 100 / total);
      if (rate > 0)
        line += fmt::format(", {:.0f} s left", static_cast<double>(total - done) / rate);
    }
    line += fmt::format(", {}/s", FormatBytes(static_cast<int64_t>(rate)));
    fmt::print(stderr, "\r\x1b[K{}", line);
    std::fflush(stderr);
  }

  void End() {
    if (!file_.empty()) fmt::print(stderr, "\n");
    file_.clear();
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::string file_;
  Clock::time_point started_;
  Clock::time_point drawn_;
  uint64_t done_at_start_ = 0;  // what was there from an earlier try does not count as speed
};

struct Flags {
  std::string source;
  PullOptions options;
};

void Run(Flags& flags, CommandContext& context) {
  DownloadLine line;
  flags.options.pip_progress = isatty(STDERR_FILENO) != 0;
  flags.options.progress = [&line](const std::string& file, uint64_t done, uint64_t total) {
    line.Show(file, done, total);
  };
  flags.options.notify = [&line](const std::string& text) {
    line.End();
    fmt::print(stderr, "{}\n", text);
  };
  const auto pulled = PullModel(flags.source, flags.options);
  line.End();
  if (!pulled) return ReportError(pulled.error(), context);
  const StoredModel& model = pulled->model;
  fmt::print("{}: {} ({}{}){}\n", model.name, model.path,
             FormatBytes(static_cast<int64_t>(model.bytes)),
             model.sha256.empty() ? "" : ", sha256 " + model.sha256,
             pulled->was_there ? ", was there already" : "");
}

}  // namespace

void AddPullCommand(CLI::App& root, CommandContext& context) {
  CLI::App* command = root.add_subcommand("pull", "Fetch a model into the local store");
  auto flags = std::make_shared<Flags>();
  command
      ->add_option("source", flags->source,
                   "a built-in name, the URL of a GGUF file, or hf:OWNER/REPO[:QUANT]")
      ->required();
  command->add_option("--name", flags->options.name, "name to store the model under");
  command->add_option("--sha256", flags->options.sha256,
                      "checksum that the file must have (64 hex digits)");
  command->add_option("--endpoint", flags->options.endpoint,
                      "hub for hf: names (default: LUCID_HF_ENDPOINT or HF_ENDPOINT)");
  command->add_flag("--offline", flags->options.offline,
                    "fail instead of connecting (LUCID_OFFLINE=1 does the same)");
  command->add_flag("--force", flags->options.force, "fetch again even if it is there");
  std::string footer = "Built-in models:\n";
  for (const CatalogueModel& model : Catalogue()) {
    footer += fmt::format("  {:<12} {}\n", model.name, model.description);
  }
  footer +=
      "An interrupted download goes on where it stopped. HF_TOKEN is sent to the hub if it is set.";
  command->footer(footer);
  command->callback([flags, &context] { Run(*flags, context); });
}

}  // namespace lucid::cli
