// Models whose numbers leave the range of floats: the request that meets such a number ends with an
// error that says where, nothing is drawn from its logits, and the others of the batch keep their
// bits. The models are copies of a small one with a few bytes changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>

#include "engine/engine.h"
#include "engine/engine_test_util.h"
#include "format/gguf.h"
#include "format/gguf_writer.h"
#include "kernels/table.h"

namespace lucid {
namespace {

using testing::HasSubstr;

const std::string kModel =
    std::string(LUCID_SHARED_DIR) + "/fixtures/gguf/models/stories_llama.q4_0.gguf";
constexpr TokenId kBad = 77;        // the token whose embedding is spoilt
constexpr size_t kBlockBytes = 18;  // of Q4_0: a float16 scale and 32 codes
constexpr size_t kRowBytes = 96 / 32 * kBlockBytes;

using Edit = std::function<void(std::string_view name, std::vector<std::byte>& bytes)>;

// Makes the scale of the first block of `row` infinite.
void SpoilRow(std::vector<std::byte>& bytes, size_t row, size_t row_bytes = kRowBytes) {
  constexpr uint16_t kInfinity = 0x7c00;
  std::memcpy(bytes.data() + row * row_bytes, &kInfinity, sizeof(kInfinity));
}
void SpoilEmbedding(std::string_view name, std::vector<std::byte>& bytes) {
  if (name == "token_embd.weight") SpoilRow(bytes, kBad);
}

// The small model with an output matrix of its own, so that a token's embedding and its logit can
// be spoilt one without the other, and with `edit` applied to every tensor.
class SpoiltModel {
 public:
  explicit SpoiltModel(const Edit& edit)
      : path_(testing::TempDir() + "/lucid_spoilt_" + std::to_string(getpid()) + ".gguf") {
    const auto file = GgufFile::Open(kModel).value();
    GgufWriter writer;
    for (const GgufEntry& entry : file->metadata()) {
      EXPECT_TRUE(writer.Add(entry.key, entry.value).has_value());
    }
    struct Named {
      std::string name;
      Tensor tensor;
    };
    std::vector<Named> tensors;
    for (const TensorEntry& entry : file->tensors()) {
      tensors.push_back({entry.name, entry.tensor});
      if (entry.name == "token_embd.weight") tensors.push_back({"output.weight", entry.tensor});
    }
    for (const auto& [name, tensor] : tensors) {
      const std::span shape(tensor.shape.data(), static_cast<size_t>(tensor.rank));
      EXPECT_TRUE(writer.AddTensor(name, tensor.dtype, shape).has_value());
    }
    EXPECT_TRUE(writer.Begin(path_).has_value());
    for (const auto& [name, tensor] : tensors) {
      std::vector<std::byte> bytes(tensor.data, tensor.data + tensor.bytes());
      edit(name, bytes);
      EXPECT_TRUE(writer.Write(bytes).has_value());
    }
    EXPECT_TRUE(writer.Finish().has_value());
  }
  ~SpoiltModel() { std::filesystem::remove(path_); }
  SpoiltModel(const SpoiltModel&) = delete;
  SpoiltModel& operator=(const SpoiltModel&) = delete;

  std::unique_ptr<Engine> Start(EngineConfig config = {}) const {
    config.model = path_;
    auto engine = Engine::Load(config);
    EXPECT_TRUE(engine.has_value()) << engine.error().message;
    return *std::move(engine);
  }

 private:
  std::string path_;
};

std::vector<TokenId> Prompt(TokenId first, size_t n) {
  std::vector<TokenId> ids(n);
  for (size_t i = 0; i < n; ++i) ids[i] = static_cast<TokenId>((first * 31 + 7 * i) % 70);
  return ids;
}

// Twelve tokens that are drawn, the spoilt one never.
Request Good(TokenId first, size_t n = 20) {
  Request request;
  request.prompt = Prompt(first, n);
  request.sampling.seed = static_cast<uint64_t>(first);
  request.sampling.temperature = 1.0f;
  request.sampling.logit_bias[kBad] = -std::numeric_limits<float>::infinity();
  request.max_tokens = 12;
  request.ignore_eos = true;
  request.n_logprobs = 2;
  return request;
}
// With the spoilt token in its prompt.
Request Bad(TokenId first, size_t n = 20, size_t at = 13) {
  Request request = Good(first, n);
  request.prompt[at] = kBad;
  return request;
}

// Ids, log-probabilities and the error of a stream.
struct Outcome {
  std::vector<TokenId> ids;
  std::vector<float> logprobs;
  std::string error;
  bool operator==(const Outcome&) const = default;
};

Outcome OutcomeOf(Stream stream) {
  Outcome result;
  for (const TokenOutput& out : TakeAll(std::move(stream))) {
    if (out.id >= 0) result.ids.push_back(out.id);
    if (out.logprobs) result.logprobs.push_back(out.logprobs->chosen);
    EXPECT_EQ(out.cause == StopCause::kError, out.error.has_value());
    if (out.error) result.error = out.error->message;
  }
  return result;
}
Outcome ReplyOf(Engine& engine, Request request) {
  return OutcomeOf(engine.Submit(std::move(request)).value());
}

struct Kernels {
  BackendKind backend = BackendKind::kCpu;
  std::string isa;
  Numerics numerics = Numerics::kDefault;
};

std::vector<Kernels> AllKernels() {
  std::vector<Kernels> all;
  const std::vector<const KernelTable*> tables = SelectTables("auto").value();
  for (const KernelTable* table : tables) {
    const std::string isa(table->isa);
    if (isa == "reference") {
      all.push_back({BackendKind::kReference, ""});
    } else {
      all.push_back({BackendKind::kCpu, isa});
      all.push_back({BackendKind::kCpu, isa, Numerics::kFloat});
    }
  }
  return all;
}

class Faults : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kModel)) GTEST_SKIP() << "no model at " << kModel;
  }
};

TEST_F(Faults, ATokenThatIsNoNumberEndsItsRequestAndNoOther) {
  const SpoiltModel model(SpoilEmbedding);
  for (const Kernels& kernels : AllKernels()) {
    const EngineConfig config{
        .backend = kernels.backend, .isa = kernels.isa, .numerics = kernels.numerics};
    std::vector<Outcome> want;
    for (TokenId i = 0; i < 6; ++i) {
      want.push_back(ReplyOf(*model.Start(config), Good(i)));
      EXPECT_EQ(want.back().ids.size(), 12u) << want.back().error;
    }
    const auto engine = model.Start(config);
    std::vector<Stream> streams;
    for (TokenId i = 0; i < 6; ++i) {
      streams.push_back(engine->Submit(Good(i)).value());
      streams.push_back(engine->Submit(Bad(i)).value());
    }
    for (size_t i = 0; i < streams.size(); i += 2) {
      EXPECT_EQ(OutcomeOf(std::move(streams[i])), want[i / 2]) << kernels.isa;
      const Outcome bad = OutcomeOf(std::move(streams[i + 1]));
      EXPECT_TRUE(bad.ids.empty()) << kernels.isa;
      EXPECT_THAT(bad.error, HasSubstr("not finite"));
      EXPECT_THAT(bad.error, HasSubstr("embed gave infinity or NaN at position 13")) << kernels.isa;
    }
    EXPECT_EQ(ReplyOf(*engine, Good(3)), want[3]) << "afterwards";
    EXPECT_FALSE(engine->busy());
    for (const int64_t held : engine->Stats().cache.held) EXPECT_EQ(held, 0);
  }
}

TEST_F(Faults, AnEarlierStepsFaultIsFoundToo) {
  const SpoiltModel model(SpoilEmbedding);
  for (const Kernels& kernels : AllKernels()) {
    const auto engine = model.Start(
        {.backend = kernels.backend, .isa = kernels.isa, .numerics = kernels.numerics, .chunk = 5});
    const Outcome bad = ReplyOf(*engine, Bad(1));
    EXPECT_TRUE(bad.ids.empty());
    EXPECT_THAT(bad.error, HasSubstr("blk.0.")) << kernels.isa;
    EXPECT_THAT(bad.error, HasSubstr("position 1")) << kernels.isa;
  }
}

TEST_F(Faults, TheErrorNamesTheLayer) {
  const SpoiltModel model([](std::string_view name, std::vector<std::byte>& bytes) {
    if (name == "blk.3.ffn_down.weight") SpoilRow(bytes, 5, 256 / 32 * kBlockBytes);
  });
  for (const Kernels& kernels : AllKernels()) {
    const auto engine =
        model.Start({.backend = kernels.backend, .isa = kernels.isa, .numerics = kernels.numerics});
    EXPECT_THAT(ReplyOf(*engine, Good(1)).error, HasSubstr("blk.3.ffn_down gave infinity or NaN"))
        << kernels.isa;
  }
}

TEST_F(Faults, ASingleLogitThatIsNoNumberIsNamed) {
  const SpoiltModel model([](std::string_view name, std::vector<std::byte>& bytes) {
    if (name == "output.weight") SpoilRow(bytes, 300);
  });
  const auto engine = model.Start();
  const Outcome result = ReplyOf(*engine, Good(2));
  EXPECT_TRUE(result.ids.empty());
  EXPECT_THAT(result.error, HasSubstr("at position 19 the logit of token 300 is "));
}

TEST_F(Faults, AReplyKeepsWhatCameBeforeTheFault) {
  const SpoiltModel model(SpoilEmbedding);
  const auto engine = model.Start();
  Request request = Good(4);
  request.forced_reply = {3, 4, 5, kBad, 6, 7};
  const Outcome result = ReplyOf(*engine, request);
  EXPECT_EQ(result.ids, (std::vector<TokenId>{3, 4, 5, kBad}));
  EXPECT_THAT(result.error, HasSubstr("embed gave infinity or NaN at position 23"));
}

TEST_F(Faults, EveryWayOfAskingForLogitsTellsIt) {
  const SpoiltModel model(SpoilEmbedding);
  const auto engine = model.Start();
  const Outcome want = ReplyOf(*model.Start(), Good(5));
  const auto run_beside = [&](Request request) {
    Stream good = engine->Submit(Good(5)).value();
    Result<Stream> submitted = engine->Submit(std::move(request));
    EXPECT_TRUE(submitted.has_value()) << submitted.error().message;
    Stream bad = *std::move(submitted);
    std::vector<TokenOutput> outputs = TakeAll(std::move(bad));
    EXPECT_EQ(OutcomeOf(std::move(good)), want);
    return outputs;
  };
  const auto expect_errors = [](const std::vector<TokenOutput>& outputs, size_t n) {
    ASSERT_EQ(outputs.size(), n);
    for (const TokenOutput& out : outputs) {
      EXPECT_EQ(out.cause, StopCause::kError);
      EXPECT_EQ(out.id, -1);
      ASSERT_TRUE(out.error.has_value());
      // A cached prefix holds the fault already: then it shows first in what is computed now.
      EXPECT_THAT(out.error->message,
                  testing::AnyOf(HasSubstr("embed gave infinity or NaN at position 13"),
                                 HasSubstr("blk.0.attn gave infinity or NaN at position 19")));
    }
  };

  Request replies = Bad(1);
  replies.n = 3;
  expect_errors(run_beside(replies), 3);

  Request beams = Bad(1);
  beams.sampling.logit_bias.clear();
  beams.beam.width = 4;
  beams.n = 2;
  expect_errors(run_beside(beams), 2);

  for (const int64_t max_tokens : {0, 5}) {  // rows are shown up to the fault and no further
    Request scoring = Bad(1);
    scoring.max_tokens = max_tokens;
    scoring.logits_from = 0;
    std::vector<int64_t> positions;
    scoring.on_logits = [&](int64_t position, std::span<const float> logits) {
      positions.push_back(position);
      for (const float logit : logits) ASSERT_TRUE(std::isfinite(logit)) << position;
    };
    expect_errors(run_beside(scoring), 1);
    // Attention multiplies values in pairs: zero times the next position's NaN spoils one row more.
    EXPECT_THAT(positions.size(), testing::AnyOf(12u, 13u));
  }

  Request audited = Bad(1);
  audited.eviction = {KvPolicy::kWindowSink, 128};
  audited.kv_audit = true;
  expect_errors(run_beside(audited), 1);

  Request summed = Bad(1);
  summed.eviction = {KvPolicy::kH2o, 128};
  expect_errors(run_beside(summed), 1);
  EXPECT_FALSE(engine->busy());
}

// Running a step once more must not add the attention of other sequences' keys a second time.
TEST_F(Faults, ABoundedSequenceBesideOneIsNotDisturbed) {
  const SpoiltModel model(SpoilEmbedding);
  Request bounded = Good(6, 120);
  bounded.eviction = {KvPolicy::kH2o, 128};
  bounded.max_tokens = 60;
  const EngineConfig config{.batch = 48, .kv_block_size = 16};
  const Outcome want = ReplyOf(*model.Start(config), bounded);
  EXPECT_EQ(want.ids.size(), 60u);
  const auto engine = model.Start(config);
  Stream stream = engine->Submit(bounded).value();
  for (TokenId i = 0; i < 20; ++i) {
    EXPECT_THAT(ReplyOf(*engine, Bad(i, 20, 19)).error, HasSubstr("position 19"));
  }
  EXPECT_EQ(OutcomeOf(std::move(stream)), want);
}

}  // namespace
}  // namespace lucid
