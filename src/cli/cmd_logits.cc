// lucid logits: the logits of every position, and on request the hidden states, as a safetensors
// file.
#include <fmt/format.h>

#include <map>
#include <memory>
#include <string>

#include "cli/command.h"
#include "cli/model_flags.h"
#include "format/safetensors.h"

namespace lucid::cli {
namespace {

struct LogitsFlags {
  ModelFlags model;
  std::string tokens, prompt, out;
  bool hidden = false;
};

// Keeps the residual stream at the embedding, after every layer, and after the final norm, under
// the names that Hugging Face users know.
class HiddenTap final : public Observer {
 public:
  void AfterOp(const ObservedOp& observed) override {
    for (const Value v : observed.op.outputs) {
      const std::string name = TensorName(observed.plan.Info(v).name);
      if (name.empty()) continue;
      const std::span<const float> values = observed.Read(v);
      std::vector<float>& kept = tensors[name];
      kept.insert(kept.end(), values.begin(), values.end());
    }
  }
  std::map<std::string, std::vector<float>> tensors;

 private:
  static std::string TensorName(const std::string& value) {
    if (value == "embed") return "hidden.embed";
    if (value == "output_norm") return "hidden.final_norm";
    if (value.starts_with("blk.") && value.ends_with(".out")) {
      return "hidden.layer" + value.substr(4, value.size() - 8);
    }
    return "";
  }
};

Tensor RowsOf(const std::vector<float>& values, int64_t rows) {
  Tensor tensor;
  tensor.data = reinterpret_cast<const std::byte*>(values.data());
  tensor.rank = 2;
  tensor.shape = {rows, static_cast<int64_t>(values.size()) / rows};
  return tensor;
}

Status Run(const LogitsFlags& flags) {
  LUCID_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, LoadEngine(flags.model));
  std::vector<TokenId> ids;
  if (!flags.tokens.empty()) {
    LUCID_ASSIGN_OR_RETURN(ids, ParseTokenIds(flags.tokens));
  } else {
    LUCID_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, engine->tokenizer());
    ids = tokenizer->Encode(flags.prompt);
  }
  const auto n = static_cast<int64_t>(ids.size());
  std::vector<float> logits;
  HiddenTap tap;
  Request request;
  request.prompt = ids;
  request.max_tokens = 0;
  request.logits_from = 0;
  request.on_logits = [&logits](int64_t, std::span<const float> row) {
    logits.insert(logits.end(), row.begin(), row.end());
  };
  LUCID_ASSIGN_OR_RETURN(Stream stream, engine->Submit(std::move(request)));
  while (engine->Step(flags.hidden ? &tap : nullptr)) {
  }
  if (const std::optional<TokenOutput> last = stream.TryNext(); last && last->error) {
    return tl::unexpected<Error>(*last->error);
  }
  std::vector<SafetensorsTensor> tensors = {{"logits", RowsOf(logits, n)}};
  for (const auto& [name, values] : tap.tensors) tensors.push_back({name, RowsOf(values, n)});
  LUCID_RETURN_IF_ERROR(WriteSafetensors(flags.out, tensors));
  fmt::print("{}: logits [{}, {}]{}\n", flags.out, n, engine->model().config.vocab_size,
             flags.hidden ? fmt::format(" and {} hidden states", tap.tensors.size()) : "");
  return {};
}

}  // namespace

void AddLogitsCommand(CLI::App& root, CommandContext& context) {
  CLI::App* command =
      root.add_subcommand("logits", "Write the logits of every position to a safetensors file");
  auto flags = std::make_shared<LogitsFlags>();
  // A measuring tool keeps the cache exact unless told otherwise.
  flags->model.kv = "f32";
  AddModelFlags(*command, flags->model);
  CLI::Option_group* input = command->add_option_group("Input");
  input->add_option("--tokens", flags->tokens, "token ids, separated by commas");
  input->add_option("-p,--prompt", flags->prompt, "text to encode instead of ids");
  input->require_option(1);
  command->add_option("-o,--out", flags->out, "the file to write")->required();
  command->add_flag(
      "--hidden", flags->hidden,
      "also write hidden.embed, hidden.layer<N> and hidden.final_norm, [tokens, dim]");
  command->callback([flags, &context] {
    if (const Status status = Run(*flags); !status) ReportError(status.error(), context);
  });
}

}  // namespace lucid::cli
