#include "engine/profile.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/rng.h"
#include "exec/batch.h"

namespace lucid {
namespace {

constexpr uint64_t kSeed = 42;
// Streams of random numbers: tokens that are in the cache before, and all others.
constexpr uint32_t kDepthLane = 0, kFreshLane = 1;
// Decode steps that are not counted: the first after a prompt meets cold caches.
constexpr int64_t kWarmSteps = 2;
// Fewer steps say nothing about the clock's own cost.
constexpr size_t kLeastForCost = 8;

double Seconds(Clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

// Of sorted values the middle half: [first, last).
std::pair<size_t, size_t> MiddleHalf(size_t n) {
  const size_t off = (n + 1) / 4;
  return {off, n - off};
}

double TypicalSeconds(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const auto [first, last] = MiddleHalf(seconds.size());
  double sum = 0;
  for (size_t i = first; i < last; ++i) sum += seconds[i];
  return sum / static_cast<double>(last - first);
}

// What was run of one phase.
struct Record {
  std::vector<ProfiledStep> steps;  // timed
  std::vector<size_t> passes;       // the first step of each
  std::vector<double> untimed;      // seconds of the steps between them

  std::span<const ProfiledStep> Pass(size_t i) const {
    const size_t end = i + 1 < passes.size() ? passes[i + 1] : steps.size();
    return std::span(steps).subspan(passes[i], end - passes[i]);
  }
  double PassSeconds(size_t i) const {
    double sum = 0;
    for (const ProfiledStep& step : Pass(i)) sum += Seconds(step.end - step.begin);
    return sum;
  }
};

class Driver {
 public:
  Driver(Engine& engine, const ProfileOptions& options) : engine_(engine), options_(options) {
    types_.k_type = engine.kv_layout().options().k_type;
    types_.v_type = engine.kv_layout().options().v_type;
    types_.kv_block_size = engine.kv_layout().options().block_size;
    types_.weight_dtypes = engine.model().weights.dtypes();
  }

  Result<Record> Prompts();
  Result<Record> Tokens();
  const Workload& types() const { return types_; }

 private:
  // What the streams of a run have said so far.
  struct Heard {
    std::vector<int64_t> tokens;  // by stream
    int64_t ended = 0;
  };
  std::vector<TokenId> DepthTokens(int32_t sequence) const;
  std::vector<TokenId> FreshTokens(int64_t n);
  Status FillDepth();
  Result<std::vector<Stream>> Submit(int64_t fresh, int64_t replies);
  ProfiledStep NewStep() const;
  Status Step(std::vector<Stream>& streams, Heard& heard, ProfiledStep* timed, double* seconds);
  Status CheckFound(const RequestStats& stats) const;
  bool AllBegun(const Heard& heard) const;

  Engine& engine_;
  const ProfileOptions& options_;
  Workload types_;
  uint64_t runs_ = 0;  // of fresh tokens
};

TokenId Draw(int64_t vocab, uint64_t run, uint64_t position, uint32_t lane) {
  return static_cast<TokenId>(UniformDraw(kSeed, run, position, lane) * static_cast<double>(vocab));
}

std::vector<TokenId> Driver::DepthTokens(int32_t sequence) const {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < options_.depth; ++i) {
    tokens.push_back(Draw(engine_.model().config.vocab_size, static_cast<uint64_t>(sequence),
                          static_cast<uint64_t>(i), kDepthLane));
  }
  return tokens;
}

// The first is unlike that of any run before, so that none is found in the cache.
std::vector<TokenId> Driver::FreshTokens(int64_t n) {
  const int64_t vocab = engine_.model().config.vocab_size;
  const uint64_t run = runs_++;
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < n; ++i) {
    tokens.push_back(i == 0 ? static_cast<TokenId>(run % static_cast<uint64_t>(vocab))
                            : Draw(vocab, run, static_cast<uint64_t>(i), kFreshLane));
  }
  return tokens;
}

// Brings the first `depth` tokens of every sequence into the cache.
Status Driver::FillDepth() {
  for (int32_t i = 0; options_.depth > 0 && i < options_.sequences; ++i) {
    Request request;
    request.prompt = DepthTokens(i);
    request.max_tokens = 1;
    LUCID_ASSIGN_OR_RETURN(Stream stream, engine_.Submit(std::move(request)));
    while (const std::optional<TokenOutput> out = stream.Next()) {
      if (out->error) return tl::unexpected<Error>(*out->error);
    }
  }
  return {};
}

// A request for each sequence: the depth, `fresh` tokens, `replies` tokens to be generated.
Result<std::vector<Stream>> Driver::Submit(int64_t fresh, int64_t replies) {
  LUCID_RETURN_IF_ERROR(FillDepth());
  std::vector<Stream> streams;
  for (int32_t i = 0; i < options_.sequences; ++i) {
    Request request;
    request.prompt = DepthTokens(i);
    const std::vector<TokenId> tokens = FreshTokens(fresh);
    request.prompt.insert(request.prompt.end(), tokens.begin(), tokens.end());
    request.max_tokens = replies;
    request.ignore_eos = true;
    request.sampling.temperature = 0;
    LUCID_ASSIGN_OR_RETURN(Stream stream, engine_.Submit(std::move(request)));
    streams.push_back(std::move(stream));
  }
  return streams;
}

Status Driver::CheckFound(const RequestStats& stats) const {
  // Without fresh tokens the last of the depth is computed again, for its logits.
  if (stats.preemptions == 0 && stats.cached_tokens >= options_.depth - 1) return {};
  return Err(ErrorCode::kCapacity,
             "the cache of {} bytes does not keep {} sequences of {} tokens: one found {} of the "
             "{} tokens before the measured ones",
             engine_.kv_layout().Bytes(engine_.Stats().cache.total), options_.sequences,
             ProfileContext(options_), stats.cached_tokens, options_.depth);
}

bool Driver::AllBegun(const Heard& heard) const {
  return std::ranges::all_of(heard.tokens, [](int64_t n) { return n > 0; });
}

// Its memory is there before it is timed.
ProfiledStep Driver::NewStep() const {
  const Runner& runner = engine_.runner();
  ProfiledStep step;
  step.times.Reserve(std::max(runner.n_threads(1), runner.n_threads(2)), runner.plan().ops.size());
  return step;
}

// One step, timed if there is a place for it. What the streams say is taken afterwards.
Status Driver::Step(std::vector<Stream>& streams, Heard& heard, ProfiledStep* timed,
                    double* seconds) {
  const Clock::time_point begin = Clock::now();
  const bool worked = engine_.Step(nullptr, timed != nullptr ? &timed->times : nullptr);
  const Clock::time_point end = Clock::now();
  if (seconds != nullptr) *seconds = Seconds(end - begin);
  if (timed != nullptr) {
    timed->begin = begin;
    timed->end = end;
    timed->work = WorkloadOf(timed->times.step(), types_);
  }
  heard.tokens.resize(streams.size());
  for (size_t i = 0; i < streams.size(); ++i) {
    while (const std::optional<TokenOutput> out = streams[i].TryNext()) {
      if (out->error) return tl::unexpected<Error>(*out->error);
      if (out->id >= 0) ++heard.tokens[i];
      if (out->cause == StopCause::kNone) continue;
      ++heard.ended;
      LUCID_RETURN_IF_ERROR(CheckFound(out->stats));
    }
  }
  LUCID_CHECK(worked || engine_.busy(), "the engine stopped before its requests had ended");
  return {};
}

Result<Record> Driver::Prompts() {
  Record record;
  for (int pass = -1; pass < options_.repetitions; ++pass) {
    LUCID_ASSIGN_OR_RETURN(std::vector<Stream> streams, Submit(options_.prompt, /*replies=*/1));
    Heard heard;
    if (pass >= 0) record.passes.push_back(record.steps.size());
    while (heard.ended < std::ssize(streams)) {
      ProfiledStep step = NewStep();
      step.prefill = true;
      LUCID_RETURN_IF_ERROR(Step(streams, heard, &step, nullptr));
      if (pass >= 0 && step.times.n_threads() > 0) record.steps.push_back(std::move(step));
    }
  }
  return record;
}

Result<Record> Driver::Tokens() {
  Record record;
  LUCID_ASSIGN_OR_RETURN(std::vector<Stream> streams,
                         Submit(/*fresh=*/options_.depth > 0 ? 0 : 1,
                                /*replies=*/options_.generated + kWarmSteps + 1));
  Heard heard;
  do {
    LUCID_RETURN_IF_ERROR(Step(streams, heard, nullptr, nullptr));
  } while (!AllBegun(heard));
  for (int64_t i = 0; i < kWarmSteps; ++i) {
    LUCID_RETURN_IF_ERROR(Step(streams, heard, nullptr, nullptr));
  }
  for (int64_t i = 0; i < options_.generated; ++i) {
    if (i % 2 == 0) record.steps.push_back(NewStep());
  }
  for (int64_t i = 0; i < options_.generated; ++i) {
    const auto timed = static_cast<size_t>(i / 2);
    if (i % 2 == 0) {
      LUCID_RETURN_IF_ERROR(Step(streams, heard, &record.steps[timed], nullptr));
      record.passes.push_back(timed);
    } else {
      LUCID_RETURN_IF_ERROR(Step(streams, heard, nullptr, &record.untimed.emplace_back()));
    }
  }
  while (heard.ended < std::ssize(streams)) {
    LUCID_RETURN_IF_ERROR(Step(streams, heard, nullptr, nullptr));
  }
  return record;
}

// Adds what a step did to the phase's sums.
class Sums {
 public:
  Sums(const Runner& runner, const Hardware& hardware, ProfiledPhase& phase)
      : plan_(runner.plan()), hardware_(hardware), phase_(phase) {}

  void Add(const ProfiledStep& step) {
    const Ledger ledger = MakeLedger(plan_, step.work);
    if (phase_.ops.empty()) phase_.ops.resize(ledger.rows.size());
    for (size_t i = 0; i < ledger.rows.size(); ++i) {
      ProfiledOp& op = phase_.ops[i];
      Cost cost = ledger.rows[i].cost;
      const OpTime predicted = TimeOf(hardware_, plan_, plan_.ops[i], step.work, cost);
      const LeastTimes least = LeastTimesOf(hardware_, plan_, plan_.ops[i], step.work, cost);
      cost += op.row.cost;
      const int64_t square = op.row.square_flops + ledger.rows[i].square_flops;
      op.row = ledger.rows[i];
      op.row.cost = cost;
      op.row.square_flops = square;
      op.predicted.memory += predicted.memory;
      op.predicted.arithmetic += predicted.arithmetic;
      op.predicted.other += predicted.other;
      op.predicted_seconds += predicted.seconds();
      op.least.reading += least.reading;
      op.least.computing += least.computing;
      op.least.quantised = least.quantised;
      const StepTimes::OpSeconds measured = step.times.Op(i);
      op.measured.work += measured.work;
      op.measured.wait += measured.wait;
      phase_.ops_seconds += measured.total();
    }
    phase_.seconds += Seconds(step.end - step.begin);
    phase_.before += Seconds(step.times.begin() - step.begin);
    phase_.threads_seconds += Seconds(step.times.end() - step.times.begin());
    phase_.after += Seconds(step.end - step.times.end());
    cpu_ += Seconds(step.times.usage().cpu);
    wall_ += Seconds(step.times.usage().wall);
  }

  // Sums of `passes` passes become means.
  void Divide(double passes) {
    for (ProfiledOp& op : phase_.ops) {
      for (int64_t* n : {&op.row.cost.flops, &op.row.cost.macs, &op.row.cost.weight_bytes,
                         &op.row.cost.kv_read_bytes, &op.row.cost.kv_write_bytes,
                         &op.row.cost.activation_bytes, &op.row.square_flops}) {
        *n = std::llround(static_cast<double>(*n) / passes);
      }
      for (double* x : {&op.predicted.memory, &op.predicted.arithmetic, &op.predicted.other,
                        &op.predicted_seconds, &op.least.reading, &op.least.computing,
                        &op.measured.work, &op.measured.wait}) {
        *x /= passes;
      }
    }
    phase_.threads_seconds -= phase_.ops_seconds;
    for (double* x : {&phase_.seconds, &phase_.before, &phase_.ops_seconds, &phase_.threads_seconds,
                      &phase_.after}) {
      *x /= passes;
    }
    phase_.cpus = wall_ > 0 ? cpu_ / wall_ : 0;
  }

 private:
  const Plan& plan_;
  const Hardware& hardware_;
  ProfiledPhase& phase_;
  double cpu_ = 0, wall_ = 0;
};

std::optional<double> TimingCost(const std::vector<double>& timed,
                                 const std::vector<double>& untimed) {
  if (std::min(timed.size(), untimed.size()) < kLeastForCost) return std::nullopt;
  return TypicalSeconds(timed) / TypicalSeconds(untimed) - 1;
}

ProfiledPhase Summarise(const Record& record, const Runner& runner, const Hardware& hardware,
                        double barrier_seconds, bool prefill) {
  ProfiledPhase phase;
  phase.prefill = prefill;
  phase.passes = std::ssize(record.passes);
  std::vector<double> seconds;
  std::vector<size_t> order;
  for (size_t i = 0; i < record.passes.size(); ++i) {
    order.push_back(i);
    seconds.push_back(record.PassSeconds(i));
  }
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return seconds[a] < seconds[b]; });
  const auto [first, last] = MiddleHalf(order.size());
  Sums sums(runner, hardware, phase);
  for (size_t i = first; i < last; ++i) {
    for (const ProfiledStep& step : record.Pass(order[i])) {
      sums.Add(step);
      phase.threads = step.times.n_threads();
    }
  }
  sums.Divide(static_cast<double>(last - first));
  for (const ProfiledStep& step : record.Pass(order[first])) {
    phase.tokens += step.work.sizes().tokens;
    ++phase.steps;
  }
  for (ProfiledOp& op : phase.ops) {
    const size_t i = static_cast<size_t>(&op - phase.ops.data());
    op.kernel = runner.bound().ops[i].kernel->name;
    op.residual = ResidualOf(op.least, op.measured, op.predicted_seconds,
                             barrier_seconds * static_cast<double>(phase.steps));
  }
  double all = 0;
  for (const double s : seconds) all += s;
  for (const double s : record.untimed) all += s;
  phase.mean_seconds = all / static_cast<double>(seconds.size() + record.untimed.size());
  phase.timing_cost = TimingCost(seconds, record.untimed);
  return phase;
}

// What a memory gives changes from hour to hour on machines that have other guests: a prediction
// that is to be compared with a run takes what is measured beside it, not what is stored.
PeakSource FiguresOfNow(const PeakSource::Say& say) {
  const Result<Machine> stored = LoadMachine(MachinePath());
  Machine machine = stored && IsThisMachine(*stored) ? *stored : Machine{};
  machine.measured_at.clear();
  machine.reads.clear();
  machine.kernels.clear();
  return {std::move(machine), "", say, MachinePath()};
}

}  // namespace

double ProfiledPhase::predicted_seconds() const {
  double sum = 0;
  for (const ProfiledOp& op : ops) sum += op.predicted_seconds;
  return sum;
}

CauseTimes ProfiledPhase::Residual() const {
  CauseTimes causes;
  for (const ProfiledOp& op : ops) causes += op.residual;
  causes[Cause::kScheduling] = mean_seconds - ops_seconds;
  return causes;
}

double ProfiledPhase::ReadingSeconds() const {
  double sum = 0;
  for (const ProfiledOp& op : ops) sum += op.least.reading;
  return sum;
}

CauseTimes ProfiledPhase::BeyondReading() const {
  CauseTimes causes;
  for (const ProfiledOp& op : ops) causes += lucid::BeyondReading(op.least, op.measured);
  causes[Cause::kScheduling] = mean_seconds - ops_seconds;
  return causes;
}

int64_t ProfileContext(const ProfileOptions& options) {
  return options.depth + std::max(options.prompt, options.generated + kWarmSteps) + 2;
}

Result<Profile> MakeProfile(Engine& engine, const ProfileOptions& options) {
  const Runner& runner = engine.runner();
  Driver driver(engine, options);
  Profile profile;
  // Before the model runs: measuring takes memory and caches.
  PeakSource source = FiguresOfNow(options.say);
  const Model& model = engine.model();
  LUCID_ASSIGN_OR_RETURN(
      profile.hardware,
      source.MachineFor(ListWeights(model.plan, model.weights.dtypes()),
                        StreamedBytes(model.plan, model.weights.dtypes()), runner.numerics(),
                        engine.config().isa, runner.n_threads()));
  profile.barrier_seconds = source.BarrierSeconds(runner.n_threads());
  const auto add = [&](Record& record, bool prefill) {
    profile.phases.push_back(
        Summarise(record, runner, profile.hardware, profile.barrier_seconds, prefill));
    std::ranges::move(record.steps, std::back_inserter(profile.steps));
  };
  if (options.prompt > 0) {
    LUCID_ASSIGN_OR_RETURN(Record record, driver.Prompts());
    add(record, /*prefill=*/true);
  }
  if (options.generated > 0) {
    LUCID_ASSIGN_OR_RETURN(Record record, driver.Tokens());
    add(record, /*prefill=*/false);
  }
  return profile;
}

}  // namespace lucid
