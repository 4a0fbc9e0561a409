// Each check of the self test passes on models that are right, and finds what is planted.
#include "engine/selftest.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/selftest_model.h"
#include "engine/selftest_text.h"
#include "engine/tokenizer_loader.h"

namespace lucid {
namespace {

namespace fs = std::filesystem;

std::string Fixture(const std::string& name) {
  return std::string(LUCID_SHARED_DIR) + "/fixtures/" + name;
}

// --- whole runs ---

TEST(Selftest, PassesOnModelsOfManyKinds) {
  if (!fs::exists(Fixture("models"))) GTEST_SKIP() << "no fixtures in " << LUCID_SHARED_DIR;
  for (const char* name :
       {"models/llama3_gqa", "models/bloom", "models/deepseek_v3", "models/gemma3_text",
        "models/gpt_oss_mxfp4", "gguf/models/stories_llama.q4_0.gguf"}) {
    SelftestOptions options;
    options.engine.model = Fixture(name);
    options.texts = 50;
    std::vector<std::string> names;
    const Status status = RunSelftest(options, [&](const SelfCheck& check) {
      names.push_back(check.name);
      EXPECT_NE(check.state, CheckState::kFailed)
          << name << " " << check.name << ": " << check.detail;
    });
    EXPECT_TRUE(status) << name << ": " << (status ? "" : status.error().message);
    for (const char* want : {"memory", "invariance", "kernels generic", "perplexity"}) {
      EXPECT_EQ(std::count(names.begin(), names.end(), want), 1) << name << " " << want;
    }
  }
}

TEST(Selftest, AModelThatCannotBeOpenedIsAnError) {
  SelftestOptions options;
  options.engine.model = "/no/such/model.gguf";
  const Status status = RunSelftest(options, [](const SelfCheck&) { ADD_FAILURE(); });
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("/no/such/model.gguf"), std::string::npos);
}

// --- logits ---

ScoredText SomeRows() {
  ScoredText text = {.isa = "some", .rows = {}};
  for (int i = 0; i < 20; ++i) {
    text.rows.push_back({1.0f, 2.0f, 3.0f, 0.0f});
    text.rows.push_back({0.5f, 0.0f, -1.0f, 4.0f});
  }
  return text;
}

TEST(CompareWithReference, FailsBeyondWhatTheNumericsPromise) {
  const ScoredText reference = SomeRows();
  EXPECT_EQ(CompareWithReference(SomeRows(), reference, Numerics::kFloat).state,
            CheckState::kPassed);
  ScoredText other = SomeRows();
  for (auto& row : other.rows) row[1] += 0.5f;
  EXPECT_EQ(CompareWithReference(other, reference, Numerics::kDefault).state, CheckState::kFailed);
  other.rows[0][0] = NAN;
  EXPECT_EQ(CompareWithReference(other, reference, Numerics::kFast).state, CheckState::kFailed);
  other.rows.pop_back();
  EXPECT_EQ(CompareWithReference(other, reference, Numerics::kFast).state, CheckState::kFailed);
}

TEST(ComparePerplexity, FailsWhereTheTextIsLessLikely) {
  const ScoredText reference = SomeRows();
  std::vector<TokenId> ids = {0};
  for (int i = 0; i < 20; ++i) ids.insert(ids.end(), {2, 3});
  EXPECT_EQ(ComparePerplexity(SomeRows(), reference, ids).state, CheckState::kPassed);
  ScoredText other = SomeRows();
  for (size_t i = 0; i < other.rows.size(); ++i) other.rows[i][i % 2 + 2] -= 1.0f;
  EXPECT_EQ(ComparePerplexity(other, reference, ids).state, CheckState::kFailed);
}

TEST(FirstDifference, NamesThePosition) {
  const RowHashes want = {{0, 10}, {1, 11}, {2, 12}};
  EXPECT_EQ(FirstDifference(want, want), -1);
  EXPECT_EQ(FirstDifference(want, {{1, 11}, {2, 12}}), -1);
  EXPECT_EQ(FirstDifference(want, {{0, 10}, {1, 12}}), 1);
  EXPECT_EQ(FirstDifference(want, {{3, 10}}), 3);
}

// --- text ---

std::unique_ptr<Tokenizer> LoadFrom(const std::string& path) {
  return std::move(LoadTokenizer(path).value().tokenizer);
}

// A tokenizer with a fault.
class Faulty : public Tokenizer {
 public:
  enum class Fault { kNone, kLosesSpace, kIdOutOfRange, kOtherIds };
  Faulty(const Tokenizer& right, Fault fault) : right_(right), fault_(fault) {}
  std::vector<TokenId> Encode(std::string_view text, const EncodeOptions& options) const override {
    std::vector<TokenId> ids = right_.Encode(text, options);
    if (fault_ == Fault::kIdOutOfRange && ids.size() > 20) ids[20] = right_.n_tokens();
    if (fault_ == Fault::kOtherIds && ids.size() > 20) std::swap(ids[10], ids[20]);
    return ids;
  }
  std::string Decode(std::span<const TokenId> ids, bool skip_special) const override {
    std::string text = right_.Decode(ids, skip_special);
    const size_t space = text.find(' ');
    if (fault_ == Fault::kLosesSpace && space != text.npos) text.erase(space, 1);
    return text;
  }
  std::string_view PieceBytes(TokenId id) const override { return right_.PieceBytes(id); }
  std::string_view PieceText(TokenId id) const override { return right_.PieceText(id); }
  TokenKind Kind(TokenId id) const override { return right_.Kind(id); }
  TokenId Find(std::string_view piece) const override { return right_.Find(piece); }
  const VocabSpec& spec() const override { return right_.spec(); }

 private:
  const Tokenizer& right_;
  Fault fault_;
};

TEST(CheckTokenizer, FindsWhatIsPlanted) {
  const std::string path = Fixture("gguf/models/stories_llama.q4_0.gguf");
  if (!fs::exists(path)) GTEST_SKIP() << "no fixtures in " << LUCID_SHARED_DIR;
  const std::unique_ptr<Tokenizer> right = LoadFrom(path);
  const auto state = [&](Faulty::Fault fault) {
    return CheckTokenizer(Faulty(*right, fault), 100, 1).state;
  };
  EXPECT_EQ(state(Faulty::Fault::kNone), CheckState::kPassed);
  EXPECT_EQ(state(Faulty::Fault::kLosesSpace), CheckState::kFailed);
  EXPECT_EQ(state(Faulty::Fault::kIdOutOfRange), CheckState::kFailed);
  EXPECT_EQ(state(Faulty::Fault::kOtherIds), CheckState::kFailed);
  const auto same = [&](Faulty::Fault fault) {
    return CheckSameIds(Faulty(*right, fault), *right, "it", 100, 1).state;
  };
  EXPECT_EQ(same(Faulty::Fault::kNone), CheckState::kPassed);
  EXPECT_EQ(same(Faulty::Fault::kOtherIds), CheckState::kFailed);
}

TEST(CheckTokenizer, PassesOnEveryTokenizer) {
  const fs::path folder = std::string(LUCID_SHARED_DIR) + "/tokenizers";
  if (!fs::exists(folder)) GTEST_SKIP() << "no tokenizers in " << LUCID_SHARED_DIR;
  int checked = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (!fs::exists(entry.path() / "tokenizer.json.xz") &&
        !fs::exists(entry.path() / "tokenizer.json")) {
      continue;
    }
    const SelfCheck check = CheckTokenizer(*LoadFrom(entry.path().string()), 200, 1);
    EXPECT_EQ(check.state, CheckState::kPassed) << entry.path() << ": " << check.detail;
    ++checked;
  }
  EXPECT_GE(checked, 3);
}

TEST(CheckChatTemplate, FindsWhatIsPlanted) {
  const std::string path = Fixture("gguf/models/stories_llama.q4_0.gguf");
  if (!fs::exists(path)) GTEST_SKIP() << "no fixtures in " << LUCID_SHARED_DIR;
  const std::unique_ptr<Tokenizer> tokenizer = LoadFrom(path);
  const auto check = [&](const std::string& source) {
    return CheckChatTemplate(ChatTemplate::Parse(source).value(), *tokenizer);
  };
  const std::string turns =
      "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
      "{% if add_generation_prompt %}assistant: {% endif %}";
  EXPECT_EQ(check(turns).state, CheckState::kPassed) << check(turns).detail;
  const std::string refuses =
      "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + turns;
  EXPECT_EQ(check(refuses).state, CheckState::kPassed);
  EXPECT_NE(check(refuses).detail.find("no system"), std::string::npos);
  for (const std::string& wrong :
       {std::string("{{ messages[0].content }}"),                                   // loses turns
        std::string("{% for m in messages|reverse %}{{ m.content }}{% endfor %}"),  // turns them
        "{% if add_generation_prompt %}Now: {% endif %}" + turns,                   // goes before
        std::string("{{ raise_exception('never') }}")}) {
    EXPECT_EQ(check(wrong).state, CheckState::kFailed) << wrong;
  }
}

}  // namespace
}  // namespace lucid
