// What a step of the loop takes from the heap: a few small vectors of the scheduler's and each
// reply's output, whatever the model and the context.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/allocation_test_util.h"
#include "engine/engine.h"

namespace lucid {
namespace {

// Of one decode step in the middle of `n` replies.
int64_t AllocationsOfAStep(int n) {
  EngineConfig config;
  config.model = std::string(LUCID_SHARED_DIR) + "/fixtures/trained/stories_llama";
  config.n_threads = 2;
  Result<std::unique_ptr<Engine>> engine = Engine::Load(config);
  EXPECT_TRUE(engine.has_value()) << engine.error().message;
  std::vector<Stream> streams;
  for (int i = 0; i < n; ++i) {
    Request request;
    request.prompt = {0, 5, 9, 12, 30, 41 + i};
    request.max_tokens = 100;
    request.ignore_eos = true;
    streams.push_back((*engine)->Submit(std::move(request)).value());
  }
  constexpr int kSteps = 32;  // the cache takes a block in one of them
  for (int i = 0; i < kSteps; ++i) (*engine)->Step();
  const AllocationCount count;
  for (int i = 0; i < kSteps; ++i) (*engine)->Step();
  return count.Taken() / kSteps;
}

TEST(LoopAllocations, OfADecodeStepAreFew) {
  if (!std::filesystem::exists(LUCID_SHARED_DIR)) GTEST_SKIP() << "no fixtures";
  const int64_t one = AllocationsOfAStep(1);
  const int64_t eight = AllocationsOfAStep(8);
  // 12 and 7 when this was written: a microsecond in a step of milliseconds.
  EXPECT_LE(one, 16);
  EXPECT_LE((eight - one) / 7, 10);
}

}  // namespace
}  // namespace lucid
