// The timed steps as trace events of Chrome's format, which chrome://tracing and Perfetto open.
// Source: "Trace Event Format" of the Catapult project: complete events ("ph": "X") with times and
// durations in microseconds, metadata events ("M") that name tracks.
#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>

#include "cli/profile_report.h"
#include "cli/profile_tables.h"
#include "plan/op_table.h"

namespace lucid::cli {
namespace {

// Shorter waits are the barrier itself.
constexpr double kLeastWait = 100e-9;
// Tracks: the engine's steps, then the threads.
constexpr int kStepTrack = 1, kFirstThreadTrack = 2;

std::string Quoted(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

class Events {
 public:
  void Name(int track, std::string_view name) {
    Begin();
    fmt::format_to(std::back_inserter(text_),
                   R"({{"ph":"M","pid":1,"tid":{},"name":"thread_name","args":{{"name":{}}}}})",
                   track, Quoted(name));
    Begin();
    fmt::format_to(
        std::back_inserter(text_),
        R"({{"ph":"M","pid":1,"tid":{},"name":"thread_sort_index","args":{{"sort_index":{}}}}})",
        track, track);
  }
  // From `begin` to `end`, seconds; `args`: a JSON object, or nothing.
  void Slice(int track, std::string_view quoted_name, std::string_view category, double begin,
             double end, std::string_view args) {
    Begin();
    fmt::format_to(std::back_inserter(text_),
                   R"({{"ph":"X","pid":1,"tid":{},"name":{},"cat":"{}","ts":{:.3f},"dur":{:.3f})",
                   track, quoted_name, category, begin * 1e6, (end - begin) * 1e6);
    if (!args.empty()) fmt::format_to(std::back_inserter(text_), R"(,"args":{})", args);
    text_ += '}';
  }
  std::string Finish() && {
    return R"({"displayTimeUnit":"ns","traceEvents":[)" + std::move(text_) + "\n]}\n";
  }

 private:
  void Begin() { text_ += text_.empty() ? "\n" : ",\n"; }

  std::string text_;
};

// What of an op does not change from step to step.
struct OpText {
  std::string name, fixed_args;
};

std::vector<OpText> OpTexts(const Engine& engine) {
  const Plan& plan = engine.runner().plan();
  Workload types;
  types.weight_dtypes = engine.model().weights.dtypes();
  const Ledger ledger = MakeLedger(plan, DecodeWork(1, 1, types));
  std::vector<OpText> texts;
  for (size_t i = 0; i < ledger.rows.size(); ++i) {
    const LedgerRow& row = ledger.rows[i];
    texts.push_back(
        {Quoted(row.name),
         fmt::format(R"("kind":{},"kernel":{},"weights":{})", Quoted(Info(row.kind).name),
                     Quoted(engine.runner().bound().ops[i].kernel->name), Quoted(row.weights))});
  }
  return texts;
}

void AddStep(const ProfiledStep& step, Clock::time_point zero, Events& events) {
  const auto at = [zero](Clock::time_point t) {
    return std::chrono::duration<double>(t - zero).count();
  };
  const Sizes sizes = step.work.sizes();
  const std::string name = fmt::format("{} of {} token{}", step.prefill ? "prefill" : "decode",
                                       sizes.tokens, sizes.tokens == 1 ? "" : "s");
  events.Slice(kStepTrack, Quoted(name), "step", at(step.begin), at(step.end),
               fmt::format(R"({{"tokens":{},"sequences":{},"position":{}}})", sizes.tokens,
                           step.work.sequences.size(), step.work.sequences.front().start));
  events.Slice(kStepTrack, "\"decide and pack\"", "scheduling", at(step.begin),
               at(step.times.begin()), "");
  events.Slice(kStepTrack, "\"run\"", "run", at(step.times.begin()), at(step.times.end()), "");
  events.Slice(kStepTrack, "\"pick tokens\"", "scheduling", at(step.times.end()), at(step.end), "");
}

void AddOps(const ProfiledStep& step, const Plan& plan, const std::vector<OpText>& texts,
            double run, Events& events) {
  for (size_t i = 0; i < step.times.n_ops(); ++i) {
    const Op& op = plan.ops[i];
    const Cost cost = Info(op.kind).cost(plan, op, step.work);
    const Shape& shape = plan.Info(op.outputs.front()).shape;
    const std::string args =
        fmt::format(R"({{{},"shape":{},"weight_bytes":{},"kv_bytes":{},"flops":{}}})",
                    texts[i].fixed_args, Quoted(shape.ToString(step.work.sizes())),
                    cost.weight_bytes, cost.kv_read_bytes + cost.kv_write_bytes, cost.flops);
    for (int thread = 0; thread < step.times.n_threads(); ++thread) {
      const StepTimes::Slice slice = step.times.Of(thread, i);
      const int track = kFirstThreadTrack + thread;
      events.Slice(track, texts[i].name, Info(op.kind).name, run + slice.begin,
                   run + slice.released, args);
      for (const auto& [begin, end] :
           {std::pair(slice.prepared, slice.met), std::pair(slice.done, slice.released)}) {
        if (end - begin < kLeastWait) continue;
        events.Slice(track, "\"wait\"", "sync", run + begin, run + end, "");
      }
    }
  }
}

}  // namespace

std::string ProfileEvents(const Engine& engine, const Profile& profile) {
  const std::vector<OpText> texts = OpTexts(engine);
  Events events;
  events.Name(kStepTrack, "steps");
  for (int thread = 0; thread < engine.runner().n_threads(); ++thread) {
    events.Name(kFirstThreadTrack + thread, fmt::format("thread {}", thread));
  }
  if (profile.steps.empty()) return std::move(events).Finish();
  const Clock::time_point zero = profile.steps.front().begin;
  for (const ProfiledStep& step : profile.steps) {
    AddStep(step, zero, events);
    const double run = std::chrono::duration<double>(step.times.begin() - zero).count();
    AddOps(step, engine.runner().plan(), texts, run, events);
  }
  return std::move(events).Finish();
}

}  // namespace lucid::cli
