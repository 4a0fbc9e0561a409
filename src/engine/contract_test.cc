// The contract: what is computed for a request is a function of the request alone. Hashes of every
// row of logits of one request, alone and in company, with any chunks and threads, after both kinds
// of preemption, with cached prefixes and without, on every instruction set of this machine. The
// published model is passed over where it was not pulled, the small ones where fixtures are absent.
#include <gtest/gtest.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "engine/engine.h"
#include "engine/engine_test_util.h"
#include "kernels/table.h"
#include "store/model_store.h"

namespace lucid {
namespace {

constexpr const char* kPublished = "smollm2";
constexpr std::string_view kSlow = "generic";
constexpr int64_t kPrompt = 90;  // no multiple of a block or a chunk
constexpr int64_t kReply = 24;

struct Case {
  std::string model;  // a name in the store, or a path under fixtures/
  std::string isa;
  Numerics numerics = Numerics::kDefault;
  bool published() const { return model == kPublished; }
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.model << " on " << c.isa << ", " << Name(c.numerics);
}

// Every instruction set of this machine with every model; the other numerics on the best one.
// `all`: also the published model without any, which takes about a tenth of a second a token.
std::vector<Case> Cases(bool all) {
  const std::string quantised = "gguf/models/stories_llama.q4_0.gguf";
  std::vector<Case> cases;
  const std::vector<const KernelTable*> tables = SelectTables("auto").value();
  for (const KernelTable* table : tables) {
    if (table->isa == "reference") continue;
    for (const std::string& model :
         {quantised, std::string("models/gemma3_text"), std::string(kPublished)}) {
      if (model == kPublished && table->isa == kSlow && !all) continue;
      cases.push_back({model, std::string(table->isa)});
    }
  }
  for (const Numerics numerics : {Numerics::kFast, Numerics::kFloat}) {
    cases.push_back({quantised, cases.front().isa, numerics});
  }
  return cases;
}

std::string NameOf(const testing::TestParamInfo<Case>& test) {
  const std::string& model = test.param.model;
  return std::string(model == kPublished                 ? "smollm2"
                     : model.find("gemma") != model.npos ? "gemma3"
                                                         : "stories") +
         "_" + test.param.isa + "_" + std::string(Name(test.param.numerics));
}

// A row of logits.
struct Row {
  int64_t position = 0;
  uint64_t hash = 0;
  bool operator==(const Row&) const = default;
};
void PrintTo(const Row& row, std::ostream* out) {
  *out << "position " << row.position << ": " << std::hex << row.hash << std::dec;
}

// The request that is compared, while it runs and afterwards.
struct Subject {
  std::vector<Row> rows;
  std::vector<TokenId> ids;
  Stream stream;
  RequestStats stats;
  StopCause cause = StopCause::kNone;

  void Take() {
    while (const std::optional<TokenOutput> out = stream.TryNext()) {
      EXPECT_FALSE(out->error.has_value()) << out->error->message;
      if (out->id >= 0) ids.push_back(out->id);
      if (out->cause == StopCause::kNone) continue;
      cause = out->cause;
      stats = out->stats;
    }
  }
  bool ended() const { return cause != StopCause::kNone; }
};

std::vector<TokenId> RandomIds(uint64_t seed, int64_t n) {
  std::mt19937_64 rng(seed);
  std::vector<TokenId> ids(static_cast<size_t>(n));
  for (TokenId& id : ids) id = static_cast<TokenId>(rng() % 250);
  return ids;
}

// The request; `prompt_rows`: with the logits of its prompt, which then comes from no cache.
std::unique_ptr<Subject> Submit(Engine& engine, bool prompt_rows = false) {
  auto subject = std::make_unique<Subject>();
  Request request;
  request.prompt = RandomIds(1, kPrompt);
  request.sampling.temperature = 0.9f;
  request.sampling.top_k = 0;
  request.sampling.seed = 11;
  request.max_tokens = kReply;
  request.ignore_eos = true;
  if (prompt_rows) request.logits_from = 0;
  request.on_logits = [rows = &subject->rows](int64_t position, std::span<const float> logits) {
    rows->push_back({position, XXH3_64bits(logits.data(), logits.size_bytes())});
  };
  auto stream = engine.Submit(std::move(request));
  EXPECT_TRUE(stream.has_value()) << stream.error().message;
  if (stream) subject->stream = *std::move(stream);
  return subject;
}

void Finish(Engine& engine, Subject& subject) {
  while (!subject.ended() && engine.Step()) subject.Take();
  EXPECT_EQ(subject.cause, StopCause::kLength);
}

class Contract : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (GetParam().published()) {
      const Result<std::string> path = ResolveModel(kPublished);
      if (!path) GTEST_SKIP() << path.error().message;
      path_ = *path;
    } else {
      path_ = std::string(LUCID_SHARED_DIR) + "/fixtures/" + GetParam().model;
      if (!std::filesystem::exists(path_)) GTEST_SKIP() << "no model at " << path_;
    }
  }

  std::unique_ptr<Engine> Start(EngineConfig config = {}) const {
    config.model = path_;
    config.isa = GetParam().isa;
    config.numerics = GetParam().numerics;
    config.context = 256;
    auto engine = Engine::Load(config);
    EXPECT_TRUE(engine.has_value()) << engine.error().message;
    return *std::move(engine);
  }

  // What every other run must equal: alone in an engine of its own, one thread, the prompt in one
  // step.
  std::vector<Row> Alone(bool prompt_rows = false) const {
    auto engine = Start({.n_threads = 1, .prefix_sharing = false, .n_parallel = 1});
    const auto subject = Submit(*engine, prompt_rows);
    Finish(*engine, *subject);
    EXPECT_EQ(std::ssize(subject->rows), kReply + (prompt_rows ? kPrompt - 1 : 0));
    return subject->rows;
  }

  std::string path_;
};

// Other requests, each unlike any before: their prompts, lengths and sampling differ, and whenever
// one has left another comes.
class Company {
 public:
  // `size` at a time; `patient`: with long replies, where prompts get few tokens of a step.
  Company(Engine& engine, size_t size, bool patient)
      : engine_(engine), size_(size), patient_(patient) {}

  void Add(size_t most) {
    for (size_t i = 0; i < most && streams_.size() < size_; ++i) {
      const uint64_t k = made_++;
      Request request;
      request.prompt =
          RandomIds(1000 + k, static_cast<int64_t>(patient_ ? 1 + k % 2 : 1 + k * 5 % 11));
      request.sampling.seed = k;
      request.sampling.temperature = static_cast<float>(k % 4) * 0.5f;
      request.sampling.top_k = k % 3 == 0 ? 0 : static_cast<int32_t>(k % 50);
      request.sampling.repetition_penalty = k % 5 == 0 ? 1.2f : 1.0f;
      request.max_tokens = patient_ ? 200 + static_cast<int64_t>(k * 7 % 50)
                                    : 20 + static_cast<int64_t>(k * 7 % 100);
      request.ignore_eos = true;
      request.n_logprobs = k % 7 == 0 ? 2 : -1;
      streams_.push_back(engine_.Submit(std::move(request)).value());
    }
  }

  // A step of all; then those that have ended are gone.
  bool Step() {
    const bool worked = engine_.Step();
    std::erase_if(streams_, [](Stream& stream) {
      while (const std::optional<TokenOutput> out = stream.TryNext()) {
        EXPECT_FALSE(out->error.has_value());
      }
      return stream.ended();
    });
    return worked;
  }

  void Leave() {
    for (Stream& stream : streams_) stream.Abort();
    while (engine_.Step()) {
    }
  }

 private:
  Engine& engine_;
  size_t size_;
  bool patient_;
  uint64_t made_ = 0;
  std::vector<Stream> streams_;
};

struct Way {
  int32_t batch;  // sequences that run at once
  int64_t chunk;
  int n_threads;
};

void PrintTo(const Way& way, std::ostream* out) {
  *out << "a batch of " << way.batch << ", chunks of " << way.chunk << ", " << way.n_threads
       << " threads";
}

// All ways of a small model; of a large one so many that each batch, chunk and number of threads
// occurs.
std::vector<Way> Ways(const Case& c) {
  if (c.published() && c.isa == kSlow) return {{1, 1, 2}, {2, 16, 1}, {8, 512, 2}};
  if (c.published()) {
    return {{1, 1, 2},  {1, 16, 1},  {1, 64, 2},   {2, 512, 1}, {2, 1, 2},   {8, 1, 1},
            {8, 16, 2}, {32, 64, 1}, {32, 512, 2}, {64, 16, 1}, {64, 512, 2}};
  }
  std::vector<Way> ways;
  for (const int32_t batch : {1, 2, 8, 32, 64}) {
    for (const int64_t chunk : {1, 16, 64, 512}) {
      for (const int n_threads : {1, 2}) ways.push_back({batch, chunk, n_threads});
    }
  }
  return ways;
}

EngineConfig ConfigOf(const Way& way) {
  return {.n_threads = way.n_threads, .n_parallel = way.batch, .chunk = way.chunk};
}

// The rows of the request in a batch of so many, of whom most came before it and some come later.
std::vector<Row> Beside(Engine& engine, const Way& way, bool prompt_rows = false) {
  const auto others = static_cast<size_t>(way.batch - 1);
  Company company(engine, others, /*patient=*/way.chunk == 1);
  company.Add(others - others / 8);
  for (int i = 0; i < 3 && company.Step(); ++i) company.Add(0);
  const auto subject = Submit(engine, prompt_rows);
  int64_t most = 0;  // that ran at once while it made its reply
  while (!subject->ended() && company.Step()) {
    subject->Take();
    company.Add(others);
    if (!subject->ids.empty()) most = std::max(most, engine.Stats().scheduler.running);
  }
  EXPECT_EQ(subject->cause, StopCause::kLength);
  EXPECT_EQ(most, way.batch) << testing::PrintToString(way);
  company.Leave();
  return subject->rows;
}

class ContractInCompany : public Contract {};

TEST_P(ContractInCompany, TheSameLogits) {
  const std::vector<Row> want = Alone();
  for (const Way& way : Ways(GetParam())) {
    const auto engine = Start(ConfigOf(way));
    ASSERT_EQ(Beside(*engine, way), want) << testing::PrintToString(way);
  }
}

TEST_P(Contract, TheSameLogitsOfThePromptToo) {
  const std::vector<Row> want = Alone(/*prompt_rows=*/true);
  const std::vector<Row> reply = Alone();
  EXPECT_EQ(std::vector<Row>(want.end() - kReply, want.end()), reply);
  for (const Way& way : {Way{1, 1, 2}, Way{2, 16, 1}, Way{8, 64, 2}, Way{8, 512, 1}}) {
    const auto engine = Start(ConfigOf(way));
    ASSERT_EQ(Beside(*engine, way, /*prompt_rows=*/true), want) << testing::PrintToString(way);
  }
}

// The request starts first; then others come that go before it and take its memory.
TEST_P(Contract, TheSameLogitsAfterBothKindsOfPreemption) {
  const std::vector<Row> want = Alone();
  int64_t bytes = 0;
  for (const bool swap : {false, true}) {
    for (const bool sharing : {false, true}) {
      for (const int64_t before : {0, 6}) {  // tokens of the reply that it has by then
        const std::string what = fmt::format("{}, {} tokens of the reply, sharing {}",
                                             swap ? "swapped" : "recomputed", before, sharing);
        if (bytes == 0) bytes = Start()->kv_layout().BytesFor(200);
        EngineConfig config{.kv_memory = bytes, .prefix_sharing = sharing, .chunk = 32};
        if (swap) config.preemption = PreemptionMode::kSwap;
        if (swap) config.swap_memory = bytes;
        const auto engine = Start(config);
        const auto subject = Submit(*engine);
        for (int i = 0; i < 2 || std::ssize(subject->ids) < before; ++i) {
          ASSERT_TRUE(engine->Step());
          subject->Take();
        }
        std::vector<Stream> others;
        for (uint64_t i = 0; i < 4; ++i) {
          Request request;
          request.prompt = RandomIds(50 + i, 30);
          request.sampling.seed = i;
          request.max_tokens = 70;
          request.ignore_eos = true;
          request.priority = 1;
          others.push_back(engine->Submit(std::move(request)).value());
        }
        Finish(*engine, *subject);
        EXPECT_GT(subject->stats.preemptions, 0) << what;
        const SchedulerStats stats = engine->Stats().scheduler;
        EXPECT_GT(swap ? stats.preemptions_swap : stats.preemptions_recompute, 0) << what;
        ASSERT_EQ(subject->rows, want) << what;
      }
    }
  }
}

// Others' prompts hold the request's reply so far: what was computed for them in the phase of a
// prompt must not stand for it when it is computed again.
TEST_P(Contract, APreemptedReplyIsNotTakenFromThePromptsOfOthers) {
  const std::vector<Row> want = Alone();
  // The request and two others fill it; the next block that one of them begins takes its place.
  const int64_t bytes = Start()->kv_layout().BytesFor(250);
  const auto engine = Start({.kv_memory = bytes});
  const auto subject = Submit(*engine);
  while (std::ssize(subject->ids) < 12) {
    ASSERT_TRUE(engine->Step());
    subject->Take();
  }
  std::vector<Stream> others;
  for (TokenId i = 0; i < 4; ++i) {
    Request request;
    request.prompt = RandomIds(1, kPrompt);
    request.prompt.insert(request.prompt.end(), subject->ids.begin(), subject->ids.end());
    request.prompt.resize(kPrompt + 32, i);
    request.max_tokens = 30;
    request.ignore_eos = true;
    request.priority = 1;
    others.push_back(engine->Submit(std::move(request)).value());
  }
  Finish(*engine, *subject);
  EXPECT_GT(subject->stats.preemptions, 0);
  EXPECT_EQ(subject->rows, want);
}

TEST_P(Contract, TheSameLogitsWithACachedPrefix) {
  const std::vector<Row> want = Alone();
  const std::vector<TokenId> prompt = RandomIds(1, kPrompt);
  const auto run = [](Engine& engine, std::vector<TokenId> ids, std::vector<TokenId> reply) {
    Request request;
    request.prompt = std::move(ids);
    request.forced_reply = std::move(reply);
    TakeAll(engine.Submit(std::move(request)).value());
  };
  const auto expect = [&](Engine& engine, int64_t cached) {
    const auto subject = Submit(engine);
    Finish(engine, *subject);
    EXPECT_EQ(subject->stats.cached_tokens, cached);
    EXPECT_EQ(subject->rows, want) << cached << " tokens were cached";
  };
  const auto engine = Start();
  run(*engine, {prompt.begin(), prompt.begin() + 70}, {1, 2, 3});
  expect(*engine, 70);
  expect(*engine, kPrompt - 1);
  // What was computed as a reply is no prefix of a strict cache's prompt.
  const auto strict = Start({.strict = true});
  run(*strict, {prompt.begin(), prompt.begin() + 50}, {prompt.begin() + 50, prompt.end()});
  expect(*strict, 50);
}

INSTANTIATE_TEST_SUITE_P(Models, Contract, testing::ValuesIn(Cases(false)), NameOf);
INSTANTIATE_TEST_SUITE_P(Models, ContractInCompany, testing::ValuesIn(Cases(true)), NameOf);

}  // namespace
}  // namespace lucid
