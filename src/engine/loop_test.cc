// The loop's edges: starting and stopping, streams without an engine's help, handovers that do not
// fit, numbers that make no sense.
#include "engine/loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <thread>

#include "engine/engine_test_util.h"
#include "engine/handover.h"

namespace lucid {
namespace {

using testing::HasSubstr;

const std::string kStories = std::string(LUCID_SHARED_DIR) + "/fixtures/trained/stories_llama";

class LoopTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kStories)) GTEST_SKIP() << "no model at " << kStories;
    engine_ = Start();
  }

  static std::unique_ptr<Engine> Start(EngineConfig config = {}) {
    config.model = kStories;
    auto engine = Engine::Load(config);
    EXPECT_TRUE(engine.has_value()) << engine.error().message;
    return *std::move(engine);
  }

  static Request Greedy(int64_t n) {
    Request request;
    request.prompt = {0, 5, 9, 12, 30, 41};
    request.sampling.temperature = 0;
    request.max_tokens = n;
    request.ignore_eos = true;
    return request;
  }

  std::unique_ptr<Engine> engine_;
};

TEST_F(LoopTest, AReaderGoesOnAfterTheWorkerHasStopped) {
  for (int i = 0; i < 20; ++i) {
    engine_->Start();
    Stream stream = engine_->Submit(Greedy(200)).value();
    std::vector<TokenOutput> outputs;
    std::thread reader([&] { outputs = TakeAll(std::move(stream)); });
    std::this_thread::sleep_for(std::chrono::microseconds(300 * i));
    engine_->Stop();
    reader.join();
    EXPECT_EQ(outputs.size(), 200u);
  }
  EXPECT_FALSE(engine_->busy());
}

TEST_F(LoopTest, StartAndStopMayBeCalledTwice) {
  engine_->Start();
  engine_->Start();
  Stream stream = engine_->Submit(Greedy(3)).value();
  EXPECT_EQ(TakeAll(std::move(stream)).size(), 3u);
  engine_->Stop();
  engine_->Stop();
  EXPECT_EQ(TakeAll(engine_->Submit(Greedy(3)).value()).size(), 3u);
}

TEST_F(LoopTest, AnEndedStreamIsHarmless) {
  Stream none;
  EXPECT_TRUE(none.ended());
  EXPECT_FALSE(none.Next().has_value());
  EXPECT_FALSE(none.TryNext().has_value());
  none.Abort();
  // Streams that are still open when the engine goes.
  engine_->Start();
  Stream open = engine_->Submit(Greedy(100000)).value();
  Stream moved = std::move(open);
  EXPECT_TRUE(open.ended());  // NOLINT: what a moved-from stream promises
  engine_.reset();
  std::optional<TokenOutput> last;
  while (std::optional<TokenOutput> out = moved.Next()) last = std::move(out);
  ASSERT_TRUE(last.has_value());
  EXPECT_TRUE(last->cause == StopCause::kAborted || last->cause == StopCause::kLength);
}

TEST_F(LoopTest, NumbersThatMakeNoSenseAreRefused) {
  const auto refusal = [&](auto change) {
    Request request = Greedy(5);
    change(request);
    const auto stream = engine_->Submit(std::move(request));
    return stream ? std::string("accepted") : stream.error().message;
  };
  EXPECT_THAT(refusal([](Request& r) { r.max_tokens = -5; }), HasSubstr("-5"));
  EXPECT_THAT(refusal([](Request& r) { r.n_logprobs = -7; }), HasSubstr("-7"));
  EXPECT_THAT(refusal([](Request& r) { r.logits_from = -9; }), HasSubstr("-9"));
  EXPECT_THAT(refusal([](Request& r) { r.deadline_seconds = -1; }), HasSubstr("deadline"));
  EXPECT_THAT(refusal([](Request& r) { r.deadline_seconds = NAN; }), HasSubstr("deadline"));
  Request most = Greedy(std::numeric_limits<int64_t>::max());
  const auto outputs = TakeAll(engine_->Submit(std::move(most)).value());
  EXPECT_EQ(static_cast<int64_t>(outputs.size()) + 6, engine_->context());
}

TEST_F(LoopTest, AStepCannotWaitForItself) {
  engine_->Start();
  std::optional<Error> error;
  Request request = Greedy(2);
  request.on_logits = [&](int64_t, std::span<const float>) {
    const auto saved = engine_->SaveCache("/nowhere", {});
    if (!saved) error = saved.error();
  };
  EXPECT_EQ(TakeAll(engine_->Submit(std::move(request)).value()).size(), 2u);
  ASSERT_TRUE(error.has_value());
  EXPECT_THAT(error->message, HasSubstr("within a step"));
}

TEST_F(LoopTest, AHandedOverRequestKeepsItsIdAndItsDeadline) {
  auto decode = Start();
  ASSERT_TRUE(engine_->SetHandover(std::make_shared<InProcessTransport>(*decode)).has_value());
  Stream own = decode->Submit(Greedy(5)).value();
  Stream stream = engine_->Submit(Greedy(-1)).value();
  EXPECT_NE(own.id(), stream.id());
  while (engine_->Step()) {
  }
  decode->Step();
  decode->Abort(stream.id());
  EXPECT_EQ(TakeAll(std::move(own)).size(), 5u);  // not the one that was aborted
  EXPECT_EQ(TakeAll(std::move(stream)).back().cause, StopCause::kAborted);

  Request late = Greedy(-1);
  late.deadline_seconds = 0.05;
  stream = engine_->Submit(std::move(late)).value();
  while (engine_->Step()) {
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  EXPECT_LE(TakeAll(std::move(stream)).size(), 2u);  // the first token, and the end
}

TEST_F(LoopTest, WhatTheOtherEngineCannotFinishStays) {
  const std::vector<TokenOutput> want = TakeAll(engine_->Submit(Greedy(-1)).value());
  for (EngineConfig config : {EngineConfig{.context = 16}, EngineConfig{.kv_memory = 100000}}) {
    auto decode = Start(config);
    ASSERT_TRUE(engine_->SetHandover(std::make_shared<InProcessTransport>(*decode)).has_value());
    const std::vector<TokenOutput> got = TakeAll(engine_->Submit(Greedy(-1)).value());
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i].id, want[i].id);
    EXPECT_EQ(decode->Stats().requests, 0);
    ASSERT_TRUE(engine_->SetHandover(nullptr).has_value());
  }
}

TEST_F(LoopTest, BeamsGiveAsManyAlternativesAsWereAskedFor) {
  for (const int n : {0, 1, 7}) {
    Request request = Greedy(6);
    request.beam.width = 2;
    request.n_logprobs = n;
    for (const TokenOutput& out : TakeAll(engine_->Submit(std::move(request)).value())) {
      ASSERT_TRUE(out.logprobs.has_value());
      EXPECT_EQ(std::ssize(out.logprobs->top), n);
    }
  }
}

}  // namespace
}  // namespace lucid
