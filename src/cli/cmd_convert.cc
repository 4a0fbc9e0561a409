// lucid convert: a Hugging Face folder as a GGUF file.
//
// engine/convert.h does it; this file reads the flags and draws the progress.
#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "cli/command.h"
#include "engine/convert.h"
#include "store/model_store.h"

namespace lucid::cli {
namespace {

struct ConvertFlags {
  std::string model, file, type;
  bool force = false;
};

// A percentage on the terminal, redrawn when it changes.
class Percent {
 public:
  void Show(uint64_t done, uint64_t total) {
    if (!enabled_ || total == 0) return;
    const auto percent = static_cast<int>(done * 100 / total);
    if (percent == shown_) return;
    shown_ = percent;
    fmt::print(stderr, "\r{} % of {}", percent, FormatBytes(static_cast<int64_t>(total)));
  }
  void Clear() const {
    if (shown_ >= 0) fmt::print(stderr, "\r\x1b[K");
  }

 private:
  bool enabled_ = isatty(STDERR_FILENO) != 0;
  int shown_ = -1;
};

Status Run(const ConvertFlags& flags) {
  LUCID_ASSIGN_OR_RETURN(const std::string model, ResolveModel(flags.model));
  ConvertOptions options{.overwrite = flags.force};
  if (!flags.type.empty()) options.type = DTypeFromName(flags.type);
  Percent percent;
  options.progress = [&](uint64_t done, uint64_t total) { percent.Show(done, total); };
  const Result<ConvertReport> report = ConvertModel(model, flags.file, options);
  percent.Clear();
  if (!report) return tl::unexpected<Error>(report.error());
  for (const std::string& note : report->notes) fmt::print(stderr, "note: {}\n", note);
  fmt::print("wrote {}: architecture {}, {} tensors, {}, in {:.2f} s\n", flags.file,
             report->architecture, report->tensors,
             FormatBytes(static_cast<int64_t>(report->bytes)), report->seconds);
  return {};
}

}  // namespace

void AddConvertCommand(CLI::App& root, CommandContext& context) {
  CLI::App* command =
      root.add_subcommand("convert", "Write a Hugging Face folder as one GGUF file");
  command->footer(
      "The file has the model, its tokenizer and its chat template, and gives the tokens and\n"
      "logits that the folder gives; llama.cpp reads it too. Matrices keep their stored type\n"
      "unless --type names another; vectors, biases and routers are float32, and what is\n"
      "quantised in the folder stays as it is. A setting that GGUF files cannot say is an error;\n"
      "where llama.cpp computes otherwise, a note on standard error says so.");
  auto flags = std::make_shared<ConvertFlags>();
  command
      ->add_option("folder", flags->model,
                   "folder with config.json, safetensors and tokenizer.json")
      ->required();
  command->add_option("-o,--output", flags->file, "the GGUF file to write")->required();
  command->add_option("--type", flags->type, "type of the matrices")
      ->check(CLI::IsMember({"f32", "f16", "bf16", "q8_0"}));
  command->add_flag("--force", flags->force, "replace a file that is there");
  command->callback([flags, &context] {
    if (const Status status = Run(*flags); !status) ReportError(status.error(), context);
  });
}

}  // namespace lucid::cli
