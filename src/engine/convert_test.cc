// Conversion to GGUF: every reference model gives the logits of its folder when it is read back,
// every tokenizer the same ids; what GGUF files cannot say is refused by name.
#include "engine/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/engine.h"
#include "engine/engine_test_util.h"
#include "engine/tokenizer_export.h"
#include "format/gguf.h"
#include "format/safetensors.h"
#include "format/test_util.h"

namespace lucid {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kFixtures = std::string(LUCID_SHARED_DIR) + "/fixtures";
const std::string kModels = kFixtures + "/models";

#define LUCID_NEEDS_FIXTURES() \
  if (!fs::exists(kFixtures)) GTEST_SKIP() << "no fixtures at " << kFixtures

// Settings that GGUF files cannot say, by fixture: words of the refusal, and a change of
// config.json with which the rest of the model can be compared (none: there is no such change).
struct Unsayable {
  std::string refusal;
  Json change;
};

const std::map<std::string, Unsayable>& Unsayables() {
  static const auto* const kMap = new std::map<std::string, Unsayable>{
      {"bloom_8h", {"blk.0", {{"apply_residual_connection_post_layernorm", false}}}},
      {"deepseek_v2", {"eps=", {{"rms_norm_eps", 1e-6}}}},
      {"deepseek_v2_lite", {"eps=", {{"rms_norm_eps", 1e-6}}}},
      {"deepseek_v3", {"eps=", {{"rms_norm_eps", 1e-6}}}},
      {"deepseek_v3_noqlora", {"eps=", {{"rms_norm_eps", 1e-6}}}},
      {"exaone4", {"some layers do not rotate", {{"sliding_window", nullptr}}}},
      {"falcon_alibi", {"blk.0.", {}}},  // its halves are not parallel either
      {"gemma2", {"scale=", {{"query_pre_attn_scalar", 32}}}},
      {"gemma3_text", {"scale=", {{"query_pre_attn_scalar", 32}}}},
      {"gpt2_oldnames",
       {"act=gelu}",
        {{"activation_function", "gelu_new"}, {"scale_attn_by_inverse_layer_idx", false}}}},
      {"gptj", {"architecture gptj has no form in GGUF files", {}}},
      {"llama_biases", {"act=gelu}", {{"hidden_act", "silu"}}}},
      {"llama_rope_dynamic", {"rope scaling is 'dynamic'", {{"rope_scaling", nullptr}}}},
      {"mpt_8h", {"scale=", {{"attn_config", {{"alibi", true}, {"alibi_bias_max", 8}}}}}},
      {"opt", {"architecture opt has no form in GGUF files", {}}},
      {"qwen3_moe", {"blk.1.", {{"mlp_only_layers", Json::array()}, {"num_hidden_layers", 1}}}},
      {"smollm3", {"rope", {{"no_rope_layers", {1, 1, 1}}}}},
  };
  return *kMap;
}

// The tensors of a folder but for those of the layers from `n_layers` on.
void WriteFewerLayers(const std::string& from, int64_t n_layers, const std::string& to) {
  const auto checkpoint = SafetensorsCheckpoint::Open(from).value();
  constexpr std::string_view kLayers = "model.layers.";
  std::vector<SafetensorsTensor> kept;
  for (const TensorEntry& entry : checkpoint->tensors()) {
    if (entry.name.starts_with(kLayers) &&
        std::stoll(entry.name.substr(kLayers.size())) >= n_layers) {
      continue;
    }
    kept.push_back({entry.name, entry.tensor});
  }
  ASSERT_TRUE(WriteSafetensors(to, kept).has_value());
}

// A copy of a folder with a changed config.json; weights and tokenizer are links. Of fewer layers
// the weights are a copy, too: tensors that nothing reads are refused.
void CopyFolder(const std::string& from, const Json& change, const std::string& to) {
  fs::create_directories(to);
  const bool shorter = !change.is_null() && change.contains("num_hidden_layers");
  for (const auto& entry : fs::directory_iterator(from)) {
    const std::string name = entry.path().filename();
    if (name == "config.json" || (shorter && name == "model.safetensors")) continue;
    fs::create_symlink(entry.path(), fs::path(to) / name);
  }
  if (shorter) WriteFewerLayers(from, change["num_hidden_layers"], to + "/model.safetensors");
  Json config = Json::parse(std::ifstream(from + "/config.json"));
  if (!change.is_null()) config.update(change);
  std::ofstream(to + "/config.json") << config.dump();
}

std::unique_ptr<Engine> Start(const std::string& model) {
  EngineConfig config;
  config.model = model;
  config.backend = BackendKind::kReference;
  config.cache_type_k = config.cache_type_v = KvType::kF32;
  config.context = 128;
  auto engine = Engine::Load(config);
  EXPECT_TRUE(engine.has_value()) << engine.error().message;
  return engine ? *std::move(engine) : nullptr;
}

// The logits of every position of a prompt.
std::vector<float> LogitsOf(const std::string& model, const std::vector<TokenId>& ids) {
  const auto engine = Start(model);
  std::vector<float> all;
  if (engine == nullptr) return all;
  Request request;
  request.prompt = ids;
  request.max_tokens = 0;
  request.logits_from = 0;
  request.on_logits = [&](int64_t, std::span<const float> logits) {
    all.insert(all.end(), logits.begin(), logits.end());
  };
  auto stream = engine->Submit(std::move(request));
  EXPECT_TRUE(stream.has_value()) << stream.error().message;
  if (stream) TakeAll(*std::move(stream));
  return all;
}

float LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  float largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    largest = std::max(largest, std::abs(a[i] - b[i]));
  }
  return largest;
}

std::vector<std::string> Models() {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(kModels, ignored)) {
    names.push_back(entry.path().filename());
  }
  std::ranges::sort(names);
  return names;
}

class Converted : public testing::TestWithParam<std::string> {
 protected:
  // The fixture, or a copy that can be converted; "" if there is none.
  std::string Folder() {
    const auto found = Unsayables().find(GetParam());
    if (found == Unsayables().end()) return kModels + "/" + GetParam();
    if (found->second.change.is_null()) return "";
    CopyFolder(kModels + "/" + GetParam(), found->second.change, folder_.File("copy"));
    return folder_.File("copy");
  }

  TempFolder folder_;
};

TEST_P(Converted, GivesTheLogitsOfTheFolder) {
  const std::string folder = Folder();
  if (folder.empty()) return;
  const auto ids = Json::parse(std::ifstream(kModels + "/" + GetParam() + "/reference.json"))
                       .at("prompts")
                       .at("long")
                       .at("ids")
                       .get<std::vector<TokenId>>();
  const std::vector<float> want = LogitsOf(folder, ids);
  ASSERT_FALSE(want.empty());
  const auto convert = [&](std::optional<DType> type) {
    const std::string file = folder_.File("m.gguf");
    ConvertOptions options;
    options.type = type;
    options.overwrite = true;
    const auto report = ConvertModel(folder, file, options);
    EXPECT_TRUE(report.has_value()) << report.error().message;
    return report ? LogitsOf(file, ids) : std::vector<float>();
  };
  // Rotated pairs lie in another order in some files: sums of float32 in another order.
  EXPECT_LE(LargestDifference(convert(std::nullopt), want), 1e-5f) << "as stored";
  EXPECT_LE(LargestDifference(convert(DType::kF32), want), 1e-5f) << "f32";
  // How far rounding the weights moves logits, whose standard deviation is 3; a wrong layout moves
  // them by much more. Routers may choose another expert, of which these models have few.
  const bool experts = GetParam().find("moe") != std::string::npos ||
                       GetParam().find("mixtral") != std::string::npos ||
                       GetParam().find("deepseek") != std::string::npos ||
                       GetParam().find("gpt_oss") != std::string::npos;
  if (experts) {
    EXPECT_FALSE(convert(DType::kF16).empty());
    EXPECT_FALSE(convert(DType::kQ8_0).empty());
    return;
  }
  EXPECT_LE(LargestDifference(convert(DType::kF16), want), 0.1f) << "f16";
  EXPECT_LE(LargestDifference(convert(DType::kBF16), want), 0.5f) << "bf16";
  EXPECT_LE(LargestDifference(convert(DType::kQ8_0), want), 2.5f) << "q8_0";
}

TEST_P(Converted, IsRefusedWhereGgufCannotSayIt) {
  const auto found = Unsayables().find(GetParam());
  if (found == Unsayables().end()) return;
  const auto report = ConvertModel(kModels + "/" + GetParam(), folder_.File("m.gguf"), {});
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(report.error().message, HasSubstr(found->second.refusal));
  EXPECT_THAT(report.error().message, HasSubstr(GetParam()));
  EXPECT_FALSE(fs::exists(folder_.File("m.gguf")));
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Converted);
INSTANTIATE_TEST_SUITE_P(Models, Converted, testing::ValuesIn(Models()),
                         [](const auto& test) { return test.param; });

TEST(ConvertTest, TrainedModelsKeepTokensTemplateAndEnds) {
  LUCID_NEEDS_FIXTURES();
  for (const char* name : {"stories_llama", "stories_gpt2"}) {
    TempFolder temp;
    const std::string folder = temp.File("model");
    CopyFolder(kFixtures + "/trained/" + name, {}, folder);
    std::ofstream(folder + "/chat_template.jinja") << "{{ messages[0]['content'] }}<|eos|>";
    std::ofstream(folder + "/generation_config.json") << R"({"eos_token_id": [1, 5]})";
    const auto report = ConvertModel(folder, temp.File("m.gguf"), {});
    ASSERT_TRUE(report.has_value()) << report.error().message;
    EXPECT_THAT(report->notes, IsEmpty());
    const LoadedTokenizer want = LoadTokenizer(folder).value();
    const LoadedTokenizer got = LoadTokenizer(temp.File("m.gguf")).value();
    EXPECT_EQ(got.chat_template, want.chat_template);
    const VocabSpec& a = got.tokenizer->spec();
    const VocabSpec& b = want.tokenizer->spec();
    EXPECT_EQ(a.tokens, b.tokens);
    EXPECT_EQ(a.kinds, b.kinds);
    EXPECT_EQ(a.bos_id, b.bos_id);
    EXPECT_EQ(a.eos_id, b.eos_id);
    EXPECT_EQ(a.prefix_ids, b.prefix_ids);
    EXPECT_EQ(a.suffix_ids, b.suffix_ids);
    for (const TokenId end : {1, 5}) EXPECT_TRUE(got.tokenizer->IsEndOfGeneration(end));
    std::ifstream lines(kFixtures + "/trained/held_out.txt");
    int compared = 0;
    for (std::string line; std::getline(lines, line); ++compared) {
      ASSERT_EQ(got.tokenizer->Encode(line), want.tokenizer->Encode(line)) << line;
    }
    EXPECT_GT(compared, 10);
  }
}

TEST(ConvertTest, PublishedTokenizersKeepTheirIds) {
  const std::string tokenizers = std::string(LUCID_SHARED_DIR) + "/tokenizers";
  if (!fs::exists(tokenizers)) GTEST_SKIP() << "no tokenizers at " << tokenizers;
  const std::map<std::string, std::string> names = {
      {"qwen2.5", "qwen2"}, {"deepseek-v3", "deepseek-v3"}, {"gpt-oss", "gpt-4o"}};
  for (const auto& [name, pre] : names) {
    const LoadedTokenizer want = LoadTokenizer(tokenizers + "/" + name).value();
    // Embeddings have more rows than there are tokens.
    const int64_t rows = want.tokenizer->n_tokens() + 100;
    GgufMetadata metadata;
    std::vector<std::string> notes;
    const Status status = AddTokenizerKeys(want, rows, metadata, notes);
    ASSERT_TRUE(status.has_value()) << name << ": " << status.error().message;
    EXPECT_THAT(notes, IsEmpty()) << name;
    const auto entries = metadata.entries();
    const auto file = GgufFile::Outline({entries.begin(), entries.end()}, {}, name).value();
    EXPECT_EQ(file->GetString("tokenizer.ggml.pre").value(), pre);
    const LoadedTokenizer got = LoadTokenizer(*file).value();
    EXPECT_EQ(got.tokenizer->n_tokens(), rows);
    EXPECT_EQ(got.chat_template, want.chat_template);
    EXPECT_EQ(got.tokenizer->spec().eog_ids, want.tokenizer->spec().eog_ids) << name;
    EXPECT_EQ(got.tokenizer->spec().prefix_ids, want.tokenizer->spec().prefix_ids) << name;
    for (const std::string text :
         {"Today we continue learning AI infrastructure.", "def hello(name): return f\"{name}\"",
          "你好，今天我们继续学习 AI Infra。", "AI Infra 🚀🔥 3.14159 1234567\n\n\t x",
          "<|im_start|>user\nHi<|im_end|>\n<｜begin▁of▁sentence｜><|start|>"}) {
      EXPECT_EQ(got.tokenizer->Encode(text), want.tokenizer->Encode(text)) << name << ": " << text;
    }
  }
}

// A tokenizer.json as the SentencePiece models of Llama and Gemma have it.
constexpr const char* kSpmTokenizer = R"({
  "added_tokens": [{"id": 0, "content": "<unk>", "special": true},
                   {"id": 1, "content": "<s>", "special": true},
                   {"id": 2, "content": "</s>", "special": true}],
  "normalizer": {"type": "Sequence", "normalizers": [
    {"type": "Prepend", "prepend": "▁"},
    {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
  "pre_tokenizer": null,
  "post_processor": {"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
  "decoder": {"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
    {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
  "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
    "vocab": {"<unk>": 0, "<s>": 1, "</s>": 2, BYTES
      "▁": 259, "a": 260, "b": 261, "c": 262, "▁a": 263, "ab": 264, "bc": 265, "▁ab": 266, "abc": 267},
    "merges": [["▁", "a"], ["b", "c"], ["a", "b"], ["▁a", "b"], ["▁", "ab"], ["a", "bc"], ["ab", "c"]]}})";

std::string SpmTokenizer() {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += fmt::format("\"<0x{:02X}>\": {},", i, 3 + i);
  std::string json = kSpmTokenizer;
  return json.replace(json.find("BYTES"), 5, bytes);
}

TEST(ConvertTest, SentencePieceMergesBecomeScores) {
  TempFolder temp;
  const LoadedTokenizer want = LoadTokenizer(temp.Put("tokenizer.json", SpmTokenizer())).value();
  GgufMetadata metadata;
  std::vector<std::string> notes;
  const Status status = AddTokenizerKeys(want, 300, metadata, notes);
  ASSERT_TRUE(status.has_value()) << status.error().message;
  const auto entries = metadata.entries();
  const auto file = GgufFile::Outline({entries.begin(), entries.end()}, {}, "spm").value();
  EXPECT_EQ(file->GetString("tokenizer.ggml.model").value(), "llama");
  const LoadedTokenizer got = LoadTokenizer(*file).value();
  for (const std::string text : {"abc ab bca  c", "cab\n日本 abcabc", "", " ", "<s>ab</s> abc"}) {
    EXPECT_EQ(got.tokenizer->Encode(text), want.tokenizer->Encode(text)) << text;
    const auto ids = want.tokenizer->Encode(text);
    EXPECT_EQ(got.tokenizer->Decode(ids), want.tokenizer->Decode(ids)) << text;
  }
}

TEST(ConvertTest, TokenizersThatGgufCannotSayAreRefusedByName) {
  TempFolder temp;
  const auto refusal = [&](const std::string& json) {
    const LoadedTokenizer loaded = LoadTokenizer(temp.Put("tokenizer.json", json)).value();
    GgufMetadata metadata;
    std::vector<std::string> notes;
    const Status status = AddTokenizerKeys(loaded, 300, metadata, notes);
    EXPECT_FALSE(status.has_value());
    return status ? "" : status.error().message;
  };
  const std::string byte_level = R"("model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})";
  EXPECT_THAT(refusal(R"({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": "x+y"}, "behavior": "Isolated"},
                {"type": "ByteLevel", "use_regex": false, "add_prefix_space": false}]},)" +
                      byte_level),
              HasSubstr("x+y"));
  EXPECT_THAT(refusal(R"({"normalizer": {"type": "Lowercase"},
                "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},)" +
                      byte_level),
              HasSubstr("normalizer"));
  EXPECT_THAT(refusal(R"({"model": {"type": "Unigram", "unk_id": 0,
                "vocab": [["<unk>", 0], ["a", -1]]}})"),
              HasSubstr("only byte-level BPE"));
  // A pair that spells a piece must be among the merges.
  std::string spm = SpmTokenizer();
  spm.replace(spm.find(R"(, ["ab", "c"])"), 13, "");
  EXPECT_THAT(refusal(spm), HasSubstr("\"ab\" and \"c\" spell a piece"));
}

TEST(ConvertTest, WrongUseIsOneSentenceAndLeavesNothing) {
  LUCID_NEEDS_FIXTURES();
  TempFolder temp;
  const std::string model = kModels + "/qwen2";
  const std::string file = temp.Put("there.gguf", "old");
  const auto message = [](const Result<ConvertReport>& report) {
    EXPECT_FALSE(report.has_value());
    return report ? "" : report.error().message;
  };
  EXPECT_THAT(message(ConvertModel(model, file, {})), HasSubstr("exists already"));
  EXPECT_EQ(ReadAll(file), "old");
  EXPECT_THAT(message(ConvertModel(model, temp.File("no/m.gguf"), {})), HasSubstr("no/m.gguf"));
  EXPECT_THAT(message(ConvertModel(kFixtures + "/gguf/models/stories_llama.q8_0.gguf",
                                   temp.File("m.gguf"), {})),
              HasSubstr("is a GGUF file already"));
  const std::string folder = temp.File("sentencepiece");
  CopyFolder(model, {}, folder);
  std::ofstream(folder + "/tokenizer.model") << "x";
  EXPECT_THAT(message(ConvertModel(folder, temp.File("m.gguf"), {})),
              HasSubstr("tokenizer.model but no tokenizer.json"));
  EXPECT_FALSE(fs::exists(temp.File("m.gguf")));
  ConvertOptions replace;
  replace.overwrite = true;
  const auto report = ConvertModel(model, file, replace);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(ReadAll(file).substr(0, 4), "GGUF");
  EXPECT_THAT(report->notes, testing::ElementsAre(HasSubstr("no tokenizer.json")));
}

}  // namespace
}  // namespace lucid
