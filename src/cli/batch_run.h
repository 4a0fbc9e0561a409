// The work of lucid batch: rows of the input go through an engine, answers to the output.
//
// Only the rows that the engine has are in memory. A finished row is written at once; the order of
// the input is made at the end. Neighbours: batch_input.h, batch_output.h; cmd_batch.cc declares
// the flags.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "cli/batch_input.h"
#include "cli/batch_output.h"
#include "cli/progress.h"
#include "engine/engine.h"
#include "engine/openai_response.h"

namespace lucid::cli {

struct BatchOptions {
  bool as_finished = false;  // leave the rows in the order in which they ended
  std::string model_name;    // for rows that name no model
  // Rows that say no seed draw from one seed, each from streams of its own, so that an interrupted
  // run and a whole one draw the same.
  ApiContext api;
};

struct BatchTotals {
  int64_t answered = 0, failed = 0;  // rows of this run
  int64_t no_capacity = 0;           // of the failed ones; a later run tries them again
  int64_t prompt_tokens = 0, cached_tokens = 0, reply_tokens = 0;
  bool interrupted = false;
};

class BatchRun {
 public:
  // What it refers to must outlive it.
  BatchRun(Engine& engine, const BatchIndex& index, LineReader reader, BatchOutput& output,
           const BatchOptions& options);

  // Until every row is answered, or Ctrl-C. kIo where the input cannot be read or the output not
  // written.
  Status Run();
  const BatchTotals& totals() const { return totals_; }
  double seconds() const { return progress_.seconds(); }

 private:
  struct Item {
    int64_t line = 0;
    std::optional<std::string> custom_id;
    std::vector<Stream> streams;  // one a prompt, while the engine has them
    std::optional<CompletionBuilder> builder;
    std::optional<nlohmann::ordered_json> row;  // finished
  };

  Status Fill();
  Result<bool> TakeRow();
  void Start(Item& item, BatchRow row);
  bool Collect();
  void Finish(Item& item);
  void Refuse(Item& item, const ApiError& error);
  Status Write();
  void ShowProgress();

  Engine& engine_;
  const BatchIndex& index_;
  LineReader reader_;
  BatchOutput& output_;
  const BatchOptions& options_;
  ProgressLine progress_;
  int64_t done_before_;
  bool input_ended_ = false;
  LineReader::Line line_;
  std::deque<Item> window_;
  BatchTotals totals_;
};

}  // namespace lucid::cli
