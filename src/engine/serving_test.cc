// What serving promises: the same bits alone and beside others, after preemption, with and without
// a cached prefix; bounded caches; replies that share a prompt; one fault ends one request.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <random>
#include <thread>

#include "engine/engine.h"
#include "engine/engine_test_util.h"
#include "engine/handover.h"
#include "engine/kv_audit.h"

namespace lucid {
namespace {

using testing::HasSubstr;

const std::string kFixtures = std::string(LUCID_SHARED_DIR) + "/fixtures";

// A reply down to the bits: ids and the log-probabilities of the chosen and the next best tokens.
struct Bits {
  std::vector<TokenId> ids;
  std::vector<float> logprobs;
  StopCause cause = StopCause::kNone;
  RequestStats stats;
  bool operator==(const Bits& other) const {
    return ids == other.ids && logprobs == other.logprobs;
  }
};

void PrintTo(const Bits& b, std::ostream* out) {
  *out << b.ids.size() << " tokens, cause " << StopCauseName(b.cause);
}

void Add(Bits& bits, const TokenOutput& out) {
  if (out.id >= 0) bits.ids.push_back(out.id);
  if (out.logprobs) {
    bits.logprobs.push_back(out.logprobs->chosen);
    for (const TokenProb& t : out.logprobs->top) bits.logprobs.push_back(t.logprob);
  }
  if (out.cause != StopCause::kNone) {
    bits.cause = out.cause;
    bits.stats = out.stats;
  }
}

class Serving : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kFixtures)) GTEST_SKIP() << "no fixtures at " << kFixtures;
  }

  std::string Model() const { return kFixtures + "/" + GetParam(); }

  std::unique_ptr<Engine> Start(EngineConfig config = {}) const {
    config.model = Model();
    auto engine = Engine::Load(config);
    EXPECT_TRUE(engine.has_value()) << engine.error().message;
    return *std::move(engine);
  }

  static std::vector<TokenId> RandomPrompt(uint32_t seed, size_t n) {
    std::mt19937 rng(seed);
    std::vector<TokenId> ids(n);
    for (TokenId& id : ids) id = static_cast<TokenId>(rng() % 250);
    return ids;
  }

  static Request Drawn(std::vector<TokenId> prompt, int64_t n, uint64_t seed = 7) {
    Request request;
    request.prompt = std::move(prompt);
    request.sampling.temperature = 1.0f;
    request.sampling.seed = seed;
    request.max_tokens = n;
    request.ignore_eos = true;
    request.n_logprobs = 3;
    return request;
  }

  static Bits Run(Engine& engine, Request request) {
    auto stream = engine.Submit(std::move(request));
    EXPECT_TRUE(stream.has_value()) << stream.error().message;
    Bits bits;
    if (!stream) return bits;
    for (const TokenOutput& out : TakeAll(*std::move(stream))) Add(bits, out);
    return bits;
  }

  // All at once; results in the order of the requests.
  static std::vector<Bits> RunAll(Engine& engine, std::vector<Request> requests) {
    std::vector<Stream> streams;
    for (Request& request : requests) {
      auto stream = engine.Submit(std::move(request));
      EXPECT_TRUE(stream.has_value()) << stream.error().message;
      streams.push_back(*std::move(stream));
    }
    std::vector<Bits> all;
    for (Stream& stream : streams) {
      Bits bits;
      for (const TokenOutput& out : TakeAll(std::move(stream))) Add(bits, out);
      all.push_back(std::move(bits));
    }
    return all;
  }

  std::vector<Request> Crowd(size_t n) const {
    std::vector<Request> requests;
    for (size_t i = 0; i < n; ++i) {
      const auto seed = static_cast<uint32_t>(i);
      requests.push_back(
          Drawn(RandomPrompt(seed, 3 + i * 7 % 60), 5 + static_cast<int64_t>(i % 40), 1000 + i));
    }
    return requests;
  }

  void ExpectIdle(Engine& engine) {
    EXPECT_FALSE(engine.busy());
    const EngineStats stats = engine.Stats();
    for (const int64_t held : stats.cache.held) EXPECT_EQ(held, 0);
    EXPECT_EQ(stats.cache.sequences, 0);
    EXPECT_EQ(stats.queued, 0);
  }
};

TEST_P(Serving, TheSameBitsAloneAndAmong63Others) {
  std::vector<Request> requests = Crowd(64);
  std::vector<Bits> alone;
  for (const Request& request : requests) {
    auto engine = Start({.prefix_sharing = false, .n_parallel = 1});
    alone.push_back(Run(*engine, request));
    EXPECT_EQ(std::ssize(alone.back().ids), request.max_tokens);
  }
  for (const EngineConfig& config :
       {EngineConfig{.n_parallel = 64}, EngineConfig{.batch = 33, .n_parallel = 7},
        EngineConfig{
            .n_threads = 3, .batch = 100, .kv_block_size = 16, .n_parallel = 64, .chunk = 5},
        EngineConfig{.kv_block_size = 64, .prefix_sharing = false, .n_parallel = 20}}) {
    auto engine = Start(config);
    const std::vector<Bits> together = RunAll(*engine, requests);
    for (size_t i = 0; i < together.size(); ++i) EXPECT_EQ(together[i], alone[i]) << i;
    ExpectIdle(*engine);
  }
}

TEST_P(Serving, TheSameBitsAfterPreemptionOfBothKinds) {
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 6; ++i) requests.push_back(Drawn(RandomPrompt(i, 40), 60, i));
  auto roomy = Start({.prefix_sharing = false});
  const std::vector<Bits> want = RunAll(*roomy, requests);
  const int64_t bytes = 3 * roomy->kv_layout().BytesFor(100);
  for (const bool swap : {false, true}) {
    for (const bool sharing : {false, true}) {
      EngineConfig config{.kv_memory = bytes, .prefix_sharing = sharing};
      if (swap) {
        config.preemption = PreemptionMode::kSwap;
        config.swap_memory = bytes;
      }
      auto engine = Start(config);
      const std::vector<Bits> got = RunAll(*engine, requests);
      for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], want[i]) << i << " swap " << swap;
      const EngineStats stats = engine->Stats();
      if (swap) {
        EXPECT_GT(stats.scheduler.preemptions_swap, 0);
      } else {
        EXPECT_GT(stats.scheduler.preemptions_recompute, 0);
      }
      ExpectIdle(*engine);
    }
  }
}

TEST_P(Serving, TheSameBitsWithAPrefixHit) {
  const std::vector<TokenId> prefix = RandomPrompt(1, 70);
  std::vector<TokenId> other = prefix;
  other.insert(other.end(), {5, 6, 7, 8});
  auto fresh = Start();
  const Bits want = Run(*fresh, Drawn(other, 30));
  EXPECT_EQ(want.stats.cached_tokens, 0);
  auto engine = Start();
  const Bits first = Run(*engine, Drawn(prefix, 30));
  const Bits hit = Run(*engine, Drawn(other, 30));
  EXPECT_EQ(hit, want);
  EXPECT_EQ(hit.stats.cached_tokens, 70);
  // A later turn: the reply is part of the prompt now, and its blocks are found.
  std::vector<TokenId> turn = prefix;
  turn.insert(turn.end(), first.ids.begin(), first.ids.end());
  turn.insert(turn.end(), {9, 9, 9});
  EXPECT_EQ(Run(*engine, Drawn(turn, 5)).stats.cached_tokens, 70 + 29);
  auto strict = Start({.strict = true});
  Run(*strict, Drawn(prefix, 30));
  EXPECT_EQ(Run(*strict, Drawn(turn, 5)).stats.cached_tokens, 70);
}

TEST_P(Serving, ASharedPrefixIsComputedOnce) {
  const std::vector<TokenId> prefix = RandomPrompt(3, 96);
  std::vector<Request> requests;
  for (TokenId i = 0; i < 20; ++i) {
    std::vector<TokenId> prompt = prefix;
    prompt.insert(prompt.end(), {i, 1, 2, 3});
    requests.push_back(Drawn(prompt, 8, static_cast<uint64_t>(i)));
  }
  auto engine = Start({.batch = 64, .n_parallel = 20});
  const std::vector<Bits> got = RunAll(*engine, requests);
  const EngineStats stats = engine->Stats();
  EXPECT_EQ(stats.scheduler.prefill_tokens, 96 + 20 * 4);
  for (const Bits& bits : got) EXPECT_EQ(bits.ids.size(), 8u);
  EXPECT_EQ(stats.cache.prefix_hit_tokens, 19 * 96);
}

TEST_P(Serving, ParallelRepliesAreThoseOfSingleRequests) {
  const std::vector<TokenId> prompt = RandomPrompt(5, 45);
  std::vector<Bits> want;
  for (uint64_t i = 0; i < 5; ++i) {
    auto engine = Start();
    Request request = Drawn(prompt, 20);
    request.rng_stream = i;
    want.push_back(Run(*engine, std::move(request)));
  }
  for (const int32_t parallel : {2, 16}) {
    auto engine = Start({.n_parallel = parallel});
    Request request = Drawn(prompt, 20);
    request.n = 5;
    std::vector<Bits> got(5);
    for (const TokenOutput& out : TakeAll(engine->Submit(std::move(request)).value())) {
      Add(got[static_cast<size_t>(out.index)], out);
    }
    for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], want[i]) << i;
    if (parallel == 16) {
      EXPECT_EQ(engine->Stats().scheduler.prefill_tokens, 45);
    }
    ExpectIdle(*engine);
  }
}

// The log-probability of a reply, computed by forcing it.
double ForcedLogprob(Engine& engine, const std::vector<TokenId>& prompt,
                     const std::vector<TokenId>& reply) {
  Request request;
  request.prompt = prompt;
  request.forced_reply = reply;
  request.n_logprobs = 0;
  double sum = 0;
  for (const TokenOutput& out : TakeAll(engine.Submit(std::move(request)).value())) {
    if (out.logprobs) sum += static_cast<double>(out.logprobs->chosen);
  }
  return sum;
}

TEST_P(Serving, BeamsAreScoredTextsBestFirst) {
  const std::vector<TokenId> prompt = RandomPrompt(9, 21);
  Request request = Drawn(prompt, 12);
  request.n_logprobs = -1;
  request.n = 3;
  request.beam = {.width = 4, .length_penalty = 1.0};
  std::vector<std::vector<TokenId>> texts;
  std::vector<double> scores;
  for (const int64_t memory : {int64_t{0}, int64_t{1}}) {
    EngineConfig config;
    // Room for hardly more than one beam: they are preempted in turn, and nothing changes.
    if (memory == 1) config.kv_memory = Start()->kv_layout().BytesFor(64) * 3 / 2;
    if (memory == 1) config.batch = 16;
    auto engine = Start(config);
    std::vector<std::vector<TokenId>> found(3);
    std::vector<double> their_scores(3);
    for (const TokenOutput& out : TakeAll(engine->Submit(request).value())) {
      ASSERT_FALSE(out.error.has_value()) << out.error->message;
      const auto i = static_cast<size_t>(out.index);
      found[i].push_back(out.id);
      if (out.cause != StopCause::kNone) their_scores[i] = out.score;
    }
    ExpectIdle(*engine);
    if (memory == 1) {
      EXPECT_EQ(found, texts);
      EXPECT_EQ(their_scores, scores);
    }
    texts = found;
    scores = their_scores;
  }
  auto engine = Start();
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(texts[i].size(), 12u);
    EXPECT_NEAR(scores[i], ForcedLogprob(*engine, prompt, texts[i]) / 12, 1e-4);
    if (i > 0) {
      EXPECT_GE(scores[i - 1], scores[i]);
    }
  }
  // No worse than greedy.
  Request greedy = Drawn(prompt, 12);
  greedy.sampling.temperature = 0;
  const Bits single = Run(*engine, std::move(greedy));
  EXPECT_GE(scores[0], ForcedLogprob(*engine, prompt, single.ids) / 12 - 1e-5);
}

TEST_P(Serving, ABudgetBeyondTheLengthIsBitEqualToTheFullCache) {
  const Request full = Drawn(RandomPrompt(11, 60), 40);
  const Bits want = Run(*Start(), full);
  for (const KvPolicy policy : {KvPolicy::kWindowSink, KvPolicy::kH2o, KvPolicy::kSnapKv}) {
    auto engine = Start();
    Request request = full;
    request.eviction = {.policy = policy, .budget = 256};
    request.kv_audit = true;
    const Bits got = Run(*engine, std::move(request));
    EXPECT_EQ(got, want) << Name(policy);
    EXPECT_EQ(got.stats.eviction.evicted_tokens, 0);
    ASSERT_TRUE(got.stats.audit.has_value());
    EXPECT_EQ(got.stats.audit->positions, 40);
    EXPECT_EQ(got.stats.audit->max_kl, 0);
    EXPECT_EQ(got.stats.audit->same_top1, 40);
    ExpectIdle(*engine);
  }
}

TEST_P(Serving, ABoundedCacheGivesTheSameBitsForAnyChunkingAndBillsWhatItDropped) {
  for (const KvPolicy policy : {KvPolicy::kWindowSink, KvPolicy::kH2o, KvPolicy::kSnapKv}) {
    Request request = Drawn(RandomPrompt(12, 150), 60);
    request.eviction = {.policy = policy, .budget = 64};
    const EngineConfig base{.kv_block_size = 16};
    const Bits want = Run(*Start(base), request);
    EXPECT_GT(want.stats.eviction.evicted_tokens, 0) << Name(policy);
    EXPECT_GT(want.stats.eviction.dropped_share(), 0) << Name(policy);
    EXPECT_LT(want.stats.eviction.dropped_share(), 1) << Name(policy);
    for (const int64_t batch : {1, 7, 64}) {
      EngineConfig config = base;
      config.batch = batch;
      config.n_threads = 1 + static_cast<int>(batch % 3);
      auto engine = Start(config);
      std::vector<Request> requests = Crowd(5);
      requests.insert(requests.begin() + 2, request);
      const Bits got = RunAll(*engine, std::move(requests))[2];
      EXPECT_EQ(got, want) << Name(policy) << " batch " << batch;
      EXPECT_EQ(got.stats.eviction.attention_dropped, want.stats.eviction.attention_dropped);
      ExpectIdle(*engine);
    }
  }
}

TEST_P(Serving, ABoundedSequenceSurvivesPreemptionBitForBit) {
  Request request = Drawn(RandomPrompt(13, 100), 80);
  request.eviction = {.policy = KvPolicy::kH2o, .budget = 64};
  const EngineConfig base{.kv_block_size = 16};
  const Bits want = Run(*Start(base), request);
  for (const bool swap : {false, true}) {
    EngineConfig config = base;
    auto layout = Start(base);
    config.kv_memory = layout->kv_layout().BytesFor(200);
    if (swap) {
      config.preemption = PreemptionMode::kSwap;
      config.swap_memory = config.kv_memory;
    }
    auto engine = Start(config);
    std::vector<Request> requests;
    for (uint32_t i = 0; i < 4; ++i) {
      requests.push_back(Drawn(RandomPrompt(40 + i, 30), 70, i));
      requests.back().priority = 1;
    }
    // It starts first, then the others come and take its memory.
    Stream stream = engine->Submit(request).value();
    for (int i = 0; i < 20; ++i) engine->Step();
    const std::vector<Bits> others = RunAll(*engine, requests);
    Bits got;
    for (const TokenOutput& out : TakeAll(std::move(stream))) Add(got, out);
    EXPECT_EQ(got, want) << "swap " << swap;
    EXPECT_EQ(got.stats.eviction.evictions, want.stats.eviction.evictions);
    const SchedulerStats stats = engine->Stats().scheduler;
    EXPECT_GT(stats.preemptions_recompute + stats.preemptions_swap, 0);
  }
}

TEST_P(Serving, TheAuditEqualsTwoPassesOverTheSameText) {
  Request bounded = Drawn(RandomPrompt(14, 120), 50);
  bounded.eviction = {.policy = KvPolicy::kWindowSink, .budget = 64};
  bounded.kv_audit = true;
  const EngineConfig config{.kv_block_size = 16, .n_parallel = 1};
  auto engine = Start(config);
  const Bits audited = Run(*engine, bounded);
  EXPECT_EQ(audited.stats.preemptions, 0);  // the shadow takes no place of its own
  ASSERT_TRUE(audited.stats.audit.has_value());
  EXPECT_EQ(audited.stats.audit->positions, 50);
  EXPECT_GT(audited.stats.audit->mean_kl, 0);

  std::vector<std::vector<float>> rows[2];
  for (const bool full : {false, true}) {
    Request forced;
    forced.prompt = bounded.prompt;
    forced.forced_reply = audited.ids;
    if (!full) forced.eviction = bounded.eviction;
    forced.on_logits = [&rows, full](int64_t, std::span<const float> row) {
      rows[full ? 1 : 0].emplace_back(row.begin(), row.end());
    };
    Run(*engine, std::move(forced));
    EXPECT_EQ(rows[full ? 1 : 0].size(), 50u);
  }
  double sum = 0;
  const size_t vocab = engine->tokenizer() ? static_cast<size_t>((*engine->tokenizer())->n_tokens())
                                           : rows[0][0].size();
  for (size_t i = 0; i < 50; ++i) {
    sum += KlDivergence(std::span<const float>(rows[1][i]).first(vocab),
                        std::span<const float>(rows[0][i]).first(vocab));
  }
  EXPECT_NEAR(audited.stats.audit->mean_kl, sum / 50, 1e-12);
}

TEST_P(Serving, EveryCacheTypeServesAndHasTheSameBitsInACrowd) {
  for (const KvType type : AllKvTypes()) {
    EngineConfig config{.cache_type_k = type, .cache_type_v = type};
    const Request request = Drawn(RandomPrompt(15, 170), 40);
    const Bits want = Run(*Start(config), request);
    EXPECT_EQ(want.ids.size(), 40u) << Name(type);
    config.batch = 48;
    auto engine = Start(config);
    std::vector<Request> requests = Crowd(8);
    requests.push_back(request);
    EXPECT_EQ(RunAll(*engine, requests).back(), want) << Name(type);
    EXPECT_EQ(RunAll(*engine, requests).back(), want) << Name(type) << ", cached";
    ExpectIdle(*engine);
  }
}

TEST_P(Serving, AbortTakesEffectInPrefillToo) {
  auto engine = Start({.batch = 16});
  Stream stream = engine->Submit(Drawn(RandomPrompt(16, 200), 20)).value();
  ASSERT_TRUE(engine->Step());
  engine->Abort(stream.id());
  const auto outputs = TakeAll(std::move(stream));
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].cause, StopCause::kAborted);
  ExpectIdle(*engine);
  {
    const Stream dropped = engine->Submit(Drawn(RandomPrompt(17, 20), 20)).value();
    ASSERT_TRUE(engine->Step());
  }
  ExpectIdle(*engine);
}

TEST_P(Serving, ADeadlineEndsARequestWhereverItIs) {
  auto engine = Start();
  Request request = Drawn(RandomPrompt(18, 20), 200);
  request.deadline_seconds = 1e-9;
  const Bits got = Run(*engine, std::move(request));
  EXPECT_EQ(got.cause, StopCause::kDeadline);
  ExpectIdle(*engine);
}

TEST_P(Serving, WhatCanNeverFitIsRefusedWithBothNumbers) {
  const int64_t bytes = Start()->kv_layout().BytesFor(64);
  auto engine = Start({.batch = 16, .kv_memory = bytes});
  const auto refused = engine->Submit(Drawn(RandomPrompt(19, 100), 50));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kCapacity);
  EXPECT_THAT(refused.error().message, HasSubstr("150"));
  // Without a limit of its own a request takes what there is.
  const Bits got = Run(*engine, Drawn(RandomPrompt(19, 20), -1));
  EXPECT_EQ(got.cause, StopCause::kLength);
  EXPECT_EQ(20 + std::ssize(got.ids), engine->capacity());
}

TEST_P(Serving, AFullQueueIsAnErrorWithTheNumbers) {
  auto engine = Start({.n_parallel = 1, .max_queue = 2});
  std::vector<Stream> streams;
  streams.push_back(engine->Submit(Drawn(RandomPrompt(20, 5), 5)).value());
  streams.push_back(engine->Submit(Drawn(RandomPrompt(21, 5), 5)).value());
  const auto refused = engine->Submit(Drawn(RandomPrompt(22, 5), 5));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kCapacity);
  EXPECT_THAT(refused.error().message, HasSubstr("2"));
  for (Stream& stream : streams) EXPECT_EQ(TakeAll(std::move(stream)).size(), 5u);
  EXPECT_TRUE(engine->Submit(Drawn(RandomPrompt(22, 5), 5)).has_value());
}

TEST_P(Serving, AFaultEndsItsOwnRequestOnly) {
  auto engine = Start();
  const Bits want = Run(*engine, Drawn(RandomPrompt(23, 30), 20));
  Request faulty = Drawn(RandomPrompt(24, 30), 20);
  faulty.sampling.logit_bias[100000] = 1.0f;  // found only where the vocabulary is known
  std::vector<Request> requests = {Drawn(RandomPrompt(23, 30), 20), faulty,
                                   Drawn(RandomPrompt(23, 30), 20)};
  const std::vector<Bits> got = RunAll(*engine, requests);
  EXPECT_EQ(got[0], want);
  EXPECT_EQ(got[1].cause, StopCause::kError);
  EXPECT_EQ(got[2], want);
  ExpectIdle(*engine);
}

TEST_P(Serving, SettingsThatMakeNoSenseAreRefused) {
  auto engine = Start();
  const auto refusal = [&](auto change) {
    Request request = Drawn(RandomPrompt(25, 30), 10);
    change(request);
    const auto stream = engine->Submit(std::move(request));
    EXPECT_FALSE(stream.has_value());
    return stream ? std::string() : stream.error().message;
  };
  EXPECT_THAT(refusal([](Request& r) { r.n = 0; }), HasSubstr("n is 0"));
  EXPECT_THAT(refusal([](Request& r) { r.beam.width = 1000; }), HasSubstr("1000"));
  EXPECT_THAT(refusal([](Request& r) { r.eviction.budget = 64; }), HasSubstr("policy"));
  EXPECT_THAT(refusal([](Request& r) { r.eviction = {KvPolicy::kH2o, 1}; }), HasSubstr("1"));
  EXPECT_THAT(refusal([](Request& r) { r.kv_audit = true; }), HasSubstr("audit"));
  EXPECT_THAT(refusal([](Request& r) {
                r.eviction = {KvPolicy::kH2o, 256};
                r.n = 2;
              }),
              HasSubstr("h2o"));
  EXPECT_FALSE(engine->busy());
}

TEST_P(Serving, ASequenceIsHandedFromAPrefillToADecodeEngine) {
  std::vector<Request> requests = Crowd(10);
  auto single = Start();
  const std::vector<Bits> want = RunAll(*single, requests);
  for (const bool small : {false, true}) {
    EngineConfig config;
    if (small) {  // no room for all of them: some wait and are recomputed
      config.kv_memory = single->kv_layout().BytesFor(140);
      config.batch = 32;
    }
    auto decode = Start(config);
    auto prefill = Start();
    prefill->SetHandover(std::make_shared<InProcessTransport>(*decode));
    prefill->Start();
    decode->Start();
    const std::vector<Bits> got = RunAll(*prefill, requests);
    for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], want[i]) << i;
    prefill->Stop();
    decode->Stop();
    EXPECT_EQ(prefill->Stats().scheduler.decode_tokens, 0);
    int64_t all = 0;
    for (const Bits& bits : want) all += std::ssize(bits.ids);
    EXPECT_EQ(decode->Stats().requests, 10);
    // Where there is no room, the first token after the handover comes out of a recomputation.
    EXPECT_GE(decode->Stats().scheduler.decode_tokens, small ? all / 2 : all - 10);
    ExpectIdle(*prefill);
    ExpectIdle(*decode);
  }
}

TEST_P(Serving, ASavedCacheComesBackInAnotherEngine) {
  const std::string path = testing::TempDir() + "/lucid_saved_cache_" + std::to_string(getpid());
  const std::vector<TokenId> prompt = RandomPrompt(26, 75);
  auto first = Start();
  const Bits want = Run(*first, Drawn(prompt, 20));
  EXPECT_EQ(first->SaveCache(path, prompt).value(), 75);
  auto second = Start();
  EXPECT_EQ(second->LoadCache(path).value(), 75);
  const Bits got = Run(*second, Drawn(prompt, 20));
  EXPECT_EQ(got, want);
  EXPECT_EQ(got.stats.cached_tokens, 74);
  auto other = Start({.cache_type_k = KvType::kInt8});
  const auto refused = other->LoadCache(path);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  std::filesystem::remove(path);
}

TEST_P(Serving, ManyThreadsSubmitAndAbortWhileTheWorkerRuns) {
  auto engine = Start({.batch = 64, .n_parallel = 8});
  const std::vector<Request> requests = Crowd(24);
  const std::vector<Bits> want = RunAll(*engine, requests);
  engine->Start();
  std::vector<std::thread> clients;
  std::atomic<int> wrong{0};
  for (size_t c = 0; c < 4; ++c) {
    clients.emplace_back([&, c] {
      for (size_t i = c; i < requests.size(); i += 4) {
        Stream stream = engine->Submit(requests[i]).value();
        if (i % 3 == 0) stream.Abort();
        Bits got;
        while (const std::optional<TokenOutput> out = stream.Next()) Add(got, *out);
        if (i % 3 == 0 ? got.ids.size() > want[i].ids.size() : !(got == want[i])) ++wrong;
        std::ignore = engine->Stats();
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(wrong.load(), 0);
  while (engine->busy()) std::this_thread::yield();
  engine->Stop();
  ExpectIdle(*engine);
}

INSTANTIATE_TEST_SUITE_P(Models, Serving,
                         testing::Values("trained/stories_llama", "models/gemma3_text"),
                         [](const auto& test) {
                           return test.param[0] == 't' ? "stories" : "gemma3";
                         });

}  // namespace
}  // namespace lucid
