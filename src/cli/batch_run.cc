#include "cli/batch_run.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "cli/generate.h"

namespace lucid::cli {
namespace {

// Rows in memory at most; more than the engine runs at once.
constexpr size_t kMostRows = 8192;
// Streams of random numbers that a row may use: more than it may have replies.
constexpr uint64_t kStreamsPerRow = 1024;

}  // namespace

BatchRun::BatchRun(Engine& engine, const BatchIndex& index, LineReader reader, BatchOutput& output,
                   const BatchOptions& options)
    : engine_(engine),
      index_(index),
      reader_(std::move(reader)),
      output_(output),
      options_(options),
      done_before_(output.n_done()) {}

Status BatchRun::Run() {
  const InterruptGuard guard;
  while (!InterruptGuard::interrupted()) {
    LUCID_RETURN_IF_ERROR(Fill());
    LUCID_RETURN_IF_ERROR(Write());
    if (input_ended_ && window_.empty()) break;
    const bool worked = engine_.Step();
    const bool heard = Collect();
    LUCID_CHECK(worked || heard || !engine_.busy(), "requests are open, but no step can be made");
    LUCID_RETURN_IF_ERROR(Write());
    ShowProgress();
  }
  progress_.Clear();
  totals_.interrupted = !(input_ended_ && window_.empty());
  return options_.as_finished || totals_.interrupted ? Status() : output_.Sort(index_);
}

// Submits rows as long as the engine's queue has room.
Status BatchRun::Fill() {
  while (!input_ended_ && window_.size() < kMostRows &&
         engine_.Stats().queued < engine_.config().max_queue) {
    LUCID_ASSIGN_OR_RETURN(const bool more, TakeRow());
    input_ended_ = !more;
  }
  return {};
}

Result<bool> BatchRun::TakeRow() {
  do {
    LUCID_ASSIGN_OR_RETURN(const bool more, reader_.Next(line_));
    if (!more) return false;
    if (line_.number > index_.n_lines()) {
      return Err(ErrorCode::kIo, "the input has grown while it was read; run it again");
    }
  } while (IsBlank(line_) || output_.Has(line_.number));
  BatchRow row = ParseBatchRow(line_);
  Item& item = window_.emplace_back();
  item.line = line_.number;
  item.custom_id = row.custom_id;
  Start(item, std::move(row));
  return true;
}

void BatchRun::Start(Item& item, BatchRow row) {
  if (row.error) return Refuse(item, *row.error);
  ApiResult<ApiRequest> parsed = ParseApiRequest(row.endpoint, row.body, options_.api);
  if (!parsed) return Refuse(item, parsed.error());
  if (!parsed->seed_given) {
    parsed->request.rng_stream = static_cast<uint64_t>(item.line) * kStreamsPerRow;
  }
  const Tokenizer* tokenizer = options_.api.tokenizer ? *options_.api.tokenizer : nullptr;
  item.builder.emplace(*parsed, tokenizer,
                       parsed->model.empty() ? options_.model_name : parsed->model);
  for (int64_t i = 0; i < item.builder->n_prompts(); ++i) {
    Result<Stream> stream = engine_.Submit(item.builder->RequestOf(i));
    if (!stream) {
      item.streams.clear();  // ends those that are under way
      return Refuse(item, {stream.error()});
    }
    item.streams.push_back(*std::move(stream));
  }
}

void BatchRun::Refuse(Item& item, const ApiError& error) {
  item.row = ErrorRow(item.custom_id, item.line, error);
  ++totals_.failed;
  if (error.error.code == ErrorCode::kCapacity) ++totals_.no_capacity;
}

// Takes what the engine has said. True if it said anything.
bool BatchRun::Collect() {
  bool heard = false;
  for (Item& item : window_) {
    bool ended = !item.streams.empty();
    for (size_t i = 0; i < item.streams.size(); ++i) {
      while (const std::optional<TokenOutput> output = item.streams[i].TryNext()) {
        heard = true;
        item.builder->Add(*output, static_cast<int64_t>(i));
      }
      ended = ended && item.streams[i].ended();
    }
    if (ended) Finish(item);
  }
  return heard;
}

void BatchRun::Finish(Item& item) {
  item.streams.clear();
  if (const std::optional<Error>& error = item.builder->error()) {
    Refuse(item, {*error});
  } else {
    item.row = AnswerRow(item.custom_id, item.line, item.builder->Body());
    ++totals_.answered;
    totals_.prompt_tokens += item.builder->prompt_tokens();
    totals_.cached_tokens += item.builder->cached_tokens();
    totals_.reply_tokens += item.builder->generated_tokens();
  }
  item.builder.reset();
}

// Writes finished rows and forgets them.
Status BatchRun::Write() {
  for (Item& item : window_) {
    if (!item.row) continue;
    LUCID_RETURN_IF_ERROR(output_.Append(item.line, *item.row));
    item.line = 0;
  }
  std::erase_if(window_, [](const Item& item) { return item.line == 0; });
  return {};
}

void BatchRun::ShowProgress() {
  const SchedulerStats stats = engine_.Stats().scheduler;
  progress_.Show({.done = done_before_ + totals_.answered + totals_.failed,
                  .total = index_.n_rows(),
                  .done_before = done_before_,
                  .prompt_tokens = stats.prefill_tokens,
                  .reply_tokens = stats.decode_tokens});
}

}  // namespace lucid::cli
