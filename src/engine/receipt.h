// Receipts: all that a reply follows from, as JSON: hashes of model, plan and template, the
// prompt's tokens, sampler, numerics, and the tokens that came. Entry points: MakeReceipt and
// ReplayReceipt, which makes the reply again and compares it token by token.
//
// A receipt holds no text: tokens are what the model has read and said. docs/serving.md lists the
// members.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace lucid {

// What a model and its text parts are, whatever file holds them.
struct ModelIdentity {
  std::string model;          // hash of every tensor's name, type, shape and bytes
  std::string plan;           // of the plan as declared: architecture, rope, windows, scales
  std::string chat_template;  // of its source; "" where there is none
};
// Reads all weights: about a second for 5 GB that are in memory.
ModelIdentity IdentityOf(const Engine& engine, const ChatTemplate* chat_template);

// XXH3's 128 bits as 32 hexadecimal digits.
std::string TextHash(std::string_view text);

struct ReceiptReply {
  int32_t index = 0;
  std::vector<TokenId> tokens;
  StopCause cause = StopCause::kNone;
};

nlohmann::ordered_json MakeReceipt(const Engine& engine, const ModelIdentity& identity,
                                   const Request& request,
                                   const std::vector<ReceiptReply>& replies);

// What decides a reply, of the settings that an engine is loaded with. kInvalidArgument names the
// member that is missing or makes no sense.
Status ApplyReceipt(const nlohmann::ordered_json& receipt, EngineConfig& config);

struct ReplayDifference {
  int32_t reply = 0;
  int64_t position = 0;              // in the reply
  std::optional<TokenId> want, got;  // none: it had ended
};
struct ReplayReport {
  int64_t replies = 0, tokens = 0;  // that were compared
  std::optional<ReplayDifference> difference;
  std::vector<std::string> notes;  // what is not as it was, and may make a difference
};
// Makes the replies again. kInvalidArgument where the receipt makes no sense, or is of another
// model, plan or version of the numerics; errors of Submit.
Result<ReplayReport> ReplayReceipt(Engine& engine, const ModelIdentity& identity,
                                   const nlohmann::ordered_json& receipt);

}  // namespace lucid
