// Subject: what a page of `lucid explain` is about: a model, a prompt, a machine. Numbers come from
// the code that also runs and accounts: headers and plan at once, everything else when a topic asks
// for it first (tokens, an engine, one run of the prompt, the machine's figures).
//
// Neighbours: topic.h (who asks), engine/engine.h, account/ledger.h, account/hardware.h.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "account/hardware.h"
#include "account/ledger.h"
#include "account/peak_source.h"
#include "base/result.h"
#include "engine/config.h"
#include "engine/engine.h"
#include "exec/attention_tap.h"
#include "models/load.h"

namespace lucid {

struct SubjectOptions {
  // `model` is a path as LoadHeaders takes it (a config.json too); `context` what a sequence is
  // taken to have come to (0: 2048, or what the model was trained for where that is less).
  EngineConfig engine;
  std::string name;  // what the user calls the model
  std::string type;  // counts the weights as of this type (models/outline.h); "": as they are
  std::string prompt = "The capital of France is Paris, and the capital of Italy is";
  std::string hardware = "this";  // or as FindHardware
  PeakSource::Say say;            // told what is measured; may be empty
};

// A prompt that has been run, and the greedy reply after it.
struct PromptRun {
  std::vector<std::vector<float>> logits;  // [prompt tokens][vocab]: row i predicts token i + 1
  std::vector<TokenId> reply;              // a few tokens
  RequestStats stats;
};

// What attention did with the prompt.
struct PromptAttention {
  std::vector<AttentionMap> maps;  // one of every op that has any weights
  // What the layer in the middle stores as keys, before they are rounded: [prompt tokens, heads x
  // numbers of a key].
  std::vector<float> keys;
};

class Subject {
 public:
  // Errors of LoadHeaders and of the tokenizer's files.
  static Result<std::unique_ptr<Subject>> Open(SubjectOptions options);

  const std::string& name() const { return options_.name; }
  const Model& model() const { return model_; }
  const Plan& plan() const { return model_.plan; }
  const ModelConfig& config() const { return model_.config; }
  int64_t context() const { return context_; }
  // Types of weights and cache, for costs.
  Workload types() const;
  int64_t params() const { return params_; }
  int64_t weight_bytes() const { return weight_bytes_; }
  // Of one sequence, as `lucid account` says.
  int64_t streamed_bytes() const;
  // One line: name, architecture, size.
  std::string Describe() const;

  // Whether there is more than a config.json.
  bool has_weights() const { return model_.checkpoint != nullptr; }
  const Tokenizer* tokenizer() const { return tokenizer_.get(); }  // nullptr: the model has none
  const std::string& prompt() const { return options_.prompt; }
  // The prompt's; of a model without a tokenizer a few ids that every vocabulary has.
  const std::vector<TokenId>& ids() const { return ids_; }
  // A token as pages show it: spaces as "_", bytes that are no text as "\xe2", "#12" without a
  // tokenizer.
  std::string Label(TokenId id) const;
  std::vector<std::string> Labels() const;  // of ids()

  // kUnsupported for a model without weights, kInvalidArgument for a prompt that is too long for a
  // page; errors of Engine::Load.
  Result<Engine*> engine();
  Result<const PromptRun*> run();
  Result<const PromptAttention*> attention();

  // Errors of FindHardware and of measuring.
  Result<const Hardware*> hardware();

 private:
  Subject() = default;

  SubjectOptions options_;
  Model model_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<TokenId> ids_;
  int64_t context_ = 0, params_ = 0, weight_bytes_ = 0;
  std::unique_ptr<Engine> engine_;
  std::optional<PromptRun> run_;
  std::optional<PromptAttention> attention_;
  std::optional<Hardware> hardware_;
};

}  // namespace lucid
