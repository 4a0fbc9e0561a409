// Study: everything that `lucid account` says of a model, gathered once: the ledger of both phases,
// weights, cache, memory, and how long it all takes on a machine. Reads headers or a config.json,
// and no weights. docs/accounting.md explains every number.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "account/hardware.h"
#include "account/kv_facts.h"
#include "account/ledger.h"
#include "account/peak_source.h"
#include "account/predict.h"
#include "engine/config.h"
#include "engine/footprint.h"

namespace lucid {

struct StudyOptions {
  // What a model runs with: `model` is a path as Engine::Load takes it, or a config.json;
  // n_parallel is the number of sequences of a batch, context what each of them has come to (0:
  // 4096, or what the model was trained for where that is less).
  EngineConfig engine;
  int64_t prompt = 0;  // tokens of each sequence's prompt; 0: 512, or the context where less
  std::string type;    // counts the weights as of this type (models/outline.h); "": as they are
  std::string hardware = "this";  // as FindHardware, or "this": the machine that it runs on
  bool prefill = true, decode = true;
  PeakSource::Say say;  // told what is measured; may be empty
};

struct PhaseStudy {
  Ledger ledger;              // of the plan as declared, one op after the other
  std::vector<OpTime> times;  // of its rows
  StepTime step;              // of the plan as it runs
  int64_t tokens = 0;         // that the phase brings, all sequences together
  double tokens_per_second() const { return static_cast<double>(tokens) / step.seconds; }
};

// The cache in another type.
struct KvVariant {
  KvType type = KvType::kF16;
  int64_t bytes_per_token = 0;
  int64_t sequence_bytes = 0;
  int64_t fit = 0;  // sequences in the machine's memory; -1: memory unknown
};

struct Study {
  Model model;
  bool outline = false;  // a config.json: no file of weights
  int64_t context = 0, batch = 0, prompt = 0;
  std::vector<LedgerWeight> weights;
  int64_t params = 0;
  int64_t active_params = 0;  // that a token meets: of experts, those that it uses
  int64_t weight_bytes = 0;
  std::optional<PhaseStudy> prefill, decode;
  KvFacts kv;
  KvType k_type = KvType::kF16, v_type = KvType::kF16;
  std::vector<KvVariant> variants;  // types that the model's layers can have
  Footprint memory;
  int64_t process_bytes = 0;   // program, file headers and tokenizer: of this process
  int64_t resident_bytes = 0;  // the process's memory once all sequences have filled their contexts
  Hardware hardware;
  int64_t fit = 0;                  // sequences of `context` tokens in its memory; -1: unknown
  int64_t kv_passes_weights = 0;    // as KvPassesWeights
  int64_t compute_bound_batch = 0;  // as ComputeBoundBatch

  int64_t token_bytes = 0;  // as StreamedBytes
};

// Errors of loading, of the options, and of the machine's figures.
Result<Study> MakeStudy(const StudyOptions& options);

}  // namespace lucid
