// lucid replay: makes the reply of a receipt again, and compares it token by token.
//
//   lucid replay receipt.json
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/json.h"
#include "cli/command.h"
#include "cli/model_flags.h"
#include "engine/receipt.h"

namespace lucid::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ReplayFlags {
  ModelFlags model;
  std::string receipt;
  bool json = false;
};

// The receipt itself, or in an answer of the server.
Json FindReceipt(const Json& json) {
  if (json.is_object() && json.contains("lucid") && json["lucid"].is_object() &&
      json["lucid"].contains("receipt")) {
    return json["lucid"]["receipt"];
  }
  return json;
}

std::string Shown(const Engine& engine, std::optional<TokenId> id) {
  if (!id) return "the end";
  const Result<const Tokenizer*> tokenizer = engine.tokenizer();
  if (!tokenizer) return fmt::format("token {}", *id);
  return fmt::format(
      "token {} ({})", *id,
      Json((*tokenizer)->PieceBytes(*id)).dump(-1, ' ', false, Json::error_handler_t::replace));
}

// Whether the replies are the same.
Result<bool> Run(const ReplayFlags& flags) {
  LUCID_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(flags.receipt));
  LUCID_ASSIGN_OR_RETURN(const Json json, ParseJson(text, flags.receipt));
  const Json receipt = FindReceipt(json);
  ModelFlags model = flags.model;
  if (model.model.empty()) {
    const Json path =
        receipt.is_object() ? receipt.value("/model/path"_json_pointer, Json()) : Json();
    if (!path.is_string()) {
      return Err(ErrorCode::kInvalidArgument, "{} is no receipt, and names no model (-m)",
                 flags.receipt);
    }
    model.model = path.get<std::string>();
  }
  LUCID_ASSIGN_OR_RETURN(EngineConfig config, ToEngineConfig(model));
  LUCID_RETURN_IF_ERROR(ApplyReceipt(receipt, config));
  LUCID_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Load(config));
  const ModelIdentity identity = IdentityOf(*engine, engine->chat_template().value_or(nullptr));
  LUCID_ASSIGN_OR_RETURN(const ReplayReport report, ReplayReceipt(*engine, identity, receipt));
  const auto& difference = report.difference;
  if (flags.json) {
    Json result = {{"same", !difference},
                   {"replies", report.replies},
                   {"tokens", report.tokens},
                   {"notes", report.notes}};
    const auto id = [](std::optional<TokenId> token) { return token ? Json(*token) : Json(); };
    if (difference) {
      result["difference"] = {{"reply", difference->reply},
                              {"position", difference->position},
                              {"want", id(difference->want)},
                              {"got", id(difference->got)}};
    }
    fmt::print("{}\n", result.dump(2));
    return !difference;
  }
  for (const std::string& note : report.notes) fmt::print(stderr, "note: {}\n", note);
  if (!difference) {
    fmt::print("the same: {} tokens in {} replies\n", report.tokens, report.replies);
  } else {
    fmt::print("reply {} differs at its token {}: the receipt has {}, now it is {}\n",
               difference->reply, difference->position, Shown(*engine, difference->want),
               Shown(*engine, difference->got));
  }
  return !difference;
}

}  // namespace

void AddReplayCommand(CLI::App& root, CommandContext& context) {
  CLI::App* command =
      root.add_subcommand("replay", "Make the reply of a receipt again, and compare it");
  command->footer(
      "A receipt comes with an answer of 'lucid serve' whose request says \"explain\": true; the\n"
      "answer itself will do. Exit code 1 where a token differs.");
  auto flags = std::make_shared<ReplayFlags>();
  command->add_option("receipt", flags->receipt, "the file; -: standard input")->required();
  command->add_option("-m,--model", flags->model.model,
                      "the model, where it is no longer what the receipt names");
  AddThreadsFlag(*command, flags->model);
  AddPlacementFlags(*command, flags->model);
  AddRopeFlags(*command, flags->model.rope);
  command->add_option("--isa", flags->model.isa, "the best instruction set to use");
  command->add_flag("--json", flags->json, "the comparison as JSON");
  command->callback([flags, &context] {
    const Result<bool> same = Run(*flags);
    if (!same) return ReportError(same.error(), context);
    if (!*same) context.exit_code = 1;
  });
}

}  // namespace lucid::cli
