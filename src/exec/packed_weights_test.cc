#include "exec/packed_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "format/gguf_writer.h"
#include "format/test_util.h"
#include "kernels/packed.h"

namespace lucid {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

struct TensorSpec {
  const char* name;
  DType type;
  std::vector<int64_t> shape;
};

// A small model of random bytes: packing moves bits, whatever they mean. Tied embeddings, rows that
// fill no whole strip, and a plain type among quantised ones.
void WriteModel(const std::string& path, uint32_t seed) {
  const std::vector<TensorSpec> tensors = {
      {"token_embd.weight", DType::kQ6_K, {37, 256}},
      {"output_norm.weight", DType::kF32, {256}},
      {"blk.0.attn_norm.weight", DType::kF32, {256}},
      {"blk.0.attn_q.weight", DType::kQ4_K, {256, 256}},
      {"blk.0.attn_k.weight", DType::kQ4_K, {128, 256}},
      {"blk.0.attn_v.weight", DType::kBF16, {128, 256}},
      {"blk.0.attn_output.weight", DType::kQ5_K, {256, 256}},
      {"blk.0.ffn_norm.weight", DType::kF32, {256}},
      {"blk.0.ffn_gate.weight", DType::kQ4_0, {288, 256}},
      {"blk.0.ffn_up.weight", DType::kQ4_0, {288, 256}},
      {"blk.0.ffn_down.weight", DType::kQ8_0, {256, 288}},
  };
  GgufWriter writer;
  ASSERT_TRUE(writer.AddString("general.architecture", "llama"));
  for (const auto& [key, value] :
       std::initializer_list<std::pair<const char*, uint32_t>>{{"llama.block_count", 1},
                                                               {"llama.embedding_length", 256},
                                                               {"llama.feed_forward_length", 288},
                                                               {"llama.attention.head_count", 4},
                                                               {"llama.attention.head_count_kv", 2},
                                                               {"llama.context_length", 64}}) {
    ASSERT_TRUE(writer.AddUint32(key, value));
  }
  ASSERT_TRUE(writer.AddFloat32("llama.attention.layer_norm_rms_epsilon", 1e-5f));
  for (const TensorSpec& t : tensors) ASSERT_TRUE(writer.AddTensor(t.name, t.type, t.shape));
  ASSERT_TRUE(writer.Begin(path));
  std::mt19937 random(seed);
  for (const TensorSpec& t : tensors) {
    int64_t rows = 1;
    for (size_t i = 0; i + 1 < t.shape.size(); ++i) rows *= t.shape[i];
    std::vector<std::byte> bytes(static_cast<size_t>(rows * RowBytes(t.type, t.shape.back())));
    if (t.type != DType::kF32) {
      for (std::byte& b : bytes) b = static_cast<std::byte>(random());
    }
    ASSERT_TRUE(writer.Write(bytes));
  }
  ASSERT_TRUE(writer.Finish());
}

// A loaded model and all that packing it needs.
struct Loaded {
  explicit Loaded(const std::string& path) : model(LoadModel(path).value()) {
    plan = FusedPlan(model);
  }
  PackedWeights Pack() { return PackedWeights::Pack(plan, model, pool).value(); }
  Result<PackedWeights> Open(const std::string& file) {
    return PackedWeights::Open(plan, model, pool, file);
  }
  Result<PackedWeights> Verify(const std::string& file) {
    return PackedWeights::Verify(plan, model, pool, file);
  }

  Model model;
  Plan plan;
  ThreadPool pool{2};
};

class PackedWeightsTest : public testing::Test {
 protected:
  PackedWeightsTest() { WriteModel(path_, 1); }

  void WritePack() {
    Loaded loaded(path_);
    ASSERT_TRUE(loaded.Pack().Write(file_, [](size_t) { return true; }));
  }
  std::string Complaint() {
    Loaded loaded(path_);
    const auto opened = loaded.Open(file_);
    return opened ? "" : opened.error().message;
  }
  void FlipByte(uint64_t offset) {
    std::fstream file(file_, std::ios::in | std::ios::out | std::ios::binary);
    const auto at = static_cast<std::streamoff>(offset);
    const int byte = file.seekg(at).get();
    file.seekp(at).put(static_cast<char>(byte ^ 0x10));
  }

  TempFolder folder_;
  const std::string path_ = folder_.File("m.gguf");
  const std::string file_ = folder_.File("m.pack");
};

TEST_F(PackedWeightsTest, AMappedFileHasTheBitsOfPacking) {
  WritePack();
  Loaded loaded(path_);
  const PackedWeights packed = loaded.Pack();
  EXPECT_EQ(packed.file(), "");
  EXPECT_EQ(packed.matrices(), 8);
  const Result<PackedWeights> mapped = loaded.Open(file_);
  ASSERT_TRUE(mapped) << mapped.error().message;
  EXPECT_EQ(mapped->file(), file_);
  EXPECT_EQ(mapped->bytes(), packed.bytes());
  int matrices = 0;
  for (const Value v : loaded.plan.Weights()) {
    ASSERT_EQ(packed[v] == nullptr, (*mapped)[v] == nullptr);
    if (packed[v] == nullptr) continue;
    const auto bytes = static_cast<size_t>(PackedBytes(loaded.model.weights[v]));
    EXPECT_EQ(std::memcmp(packed[v], (*mapped)[v], bytes), 0) << loaded.plan.Info(v).name;
    EXPECT_EQ(reinterpret_cast<uintptr_t>((*mapped)[v]) % 64, 0u);
    ++matrices;
  }
  EXPECT_EQ(matrices, 8);
  EXPECT_TRUE(loaded.Verify(file_));
}

TEST_F(PackedWeightsTest, AFileOfAModelThatWasTouchedIsRefused) {
  WritePack();
  const fs::file_time_type time = fs::last_write_time(path_);
  fs::last_write_time(path_, time + std::chrono::nanoseconds(1));
  EXPECT_THAT(Complaint(), HasSubstr("another version of the model"));
  fs::last_write_time(path_, time);
  EXPECT_EQ(Complaint(), "");
}

TEST_F(PackedWeightsTest, OtherWeightsInAFileOfTheSameSizeAndTimeAreSeen) {
  WritePack();
  const fs::file_time_type time = fs::last_write_time(path_);
  WriteModel(path_, 2);
  fs::last_write_time(path_, time);
  EXPECT_THAT(Complaint(), HasSubstr("does not hold this model's weights"));
}

TEST_F(PackedWeightsTest, ALostPartOfTheImageIsSeen) {
  WritePack();
  const uint64_t size = fs::file_size(file_);
  std::ofstream(file_, std::ios::in | std::ios::out | std::ios::binary)
      .seekp(static_cast<std::streamoff>(kImageOffset))
      .write(std::string(size - kImageOffset, '\0').data(),
             static_cast<std::streamsize>(size - kImageOffset));
  EXPECT_THAT(Complaint(), HasSubstr("does not hold this model's weights"));
}

TEST_F(PackedWeightsTest, AnyChangedByteIsFoundAndVerifyNamesItsMatrix) {
  WritePack();
  Loaded loaded(path_);
  const auto bytes = static_cast<uint64_t>(loaded.Pack().bytes());
  int named = 0, hashed = 0;
  for (uint64_t at = 0; at < bytes; at += 997) {
    FlipByte(kImageOffset + at);
    const Result<PackedWeights> opened = loaded.Open(file_);
    ASSERT_FALSE(opened) << "byte " << at;
    if (opened.error().message.ends_with("is damaged")) ++hashed;
    const Result<PackedWeights> verified = loaded.Verify(file_);
    ASSERT_FALSE(verified) << "byte " << at;
    const std::string& message = verified.error().message;
    if (message.ends_with(" is not what packing the model gives")) ++named;
    FlipByte(kImageOffset + at);
  }
  EXPECT_GT(named, 0);
  EXPECT_GT(hashed, 0);  // else the strips were all of the image
  EXPECT_EQ(Complaint(), "");
}

TEST_F(PackedWeightsTest, LoadTakesTheFirstFileThatFitsAndPacksWithoutAny) {
  WritePack();
  const std::string bad = folder_.Put("bad.pack", "nonsense");
  Loaded loaded(path_);
  const std::vector<std::string> files = {folder_.File("absent"), bad, file_};
  const auto load = [&](size_t n) {
    return PackedWeights::Load(loaded.plan, loaded.model, loaded.pool, std::span(files).first(n))
        .value();
  };
  EXPECT_EQ(load(3).file(), file_);
  const PackedWeights packed = load(2);
  EXPECT_EQ(packed.file(), "");
  EXPECT_GT(packed.bytes(), 0u);
}

TEST_F(PackedWeightsTest, PlainTypesArePackedAloneIfAskedFor) {
  Loaded loaded(path_);
  const PackedWeights packed =
      PackedWeights::Pack(loaded.plan, loaded.model, loaded.pool, /*with_quantised=*/false).value();
  EXPECT_EQ(packed.matrices(), 1);
  for (const Value v : loaded.plan.Weights()) {
    EXPECT_EQ(packed[v] != nullptr, loaded.model.weights[v].dtype == DType::kBF16);
  }
}

TEST_F(PackedWeightsTest, AModelWithoutPackedTypesHasNoImage) {
  Loaded loaded(path_);
  Plan plan = loaded.plan;
  plan.ops.clear();
  const PackedWeights packed = PackedWeights::Pack(plan, loaded.model, loaded.pool).value();
  EXPECT_EQ(packed.bytes(), 0u);
  EXPECT_EQ(packed[Value{0}], nullptr);
}

// A layer with experts, each kind of matrix in one tensor.
void WriteExperts(const std::string& path) {
  constexpr int64_t kExperts = 3, kDim = 64, kInner = 32;
  const std::vector<TensorSpec> tensors = {
      {"token_embd.weight", DType::kF32, {19, kDim}},
      {"output_norm.weight", DType::kF32, {kDim}},
      {"blk.0.attn_norm.weight", DType::kF32, {kDim}},
      {"blk.0.attn_q.weight", DType::kF32, {kDim, kDim}},
      {"blk.0.attn_k.weight", DType::kF32, {kDim, kDim}},
      {"blk.0.attn_v.weight", DType::kF32, {kDim, kDim}},
      {"blk.0.attn_output.weight", DType::kF32, {kDim, kDim}},
      {"blk.0.ffn_norm.weight", DType::kF32, {kDim}},
      {"blk.0.ffn_gate_inp.weight", DType::kF32, {kExperts, kDim}},
      {"blk.0.ffn_gate_exps.weight", DType::kQ8_0, {kExperts, kInner, kDim}},
      {"blk.0.ffn_up_exps.weight", DType::kQ8_0, {kExperts, kInner, kDim}},
      {"blk.0.ffn_down_exps.weight", DType::kQ4_0, {kExperts, kDim, kInner}},
  };
  GgufWriter writer;
  ASSERT_TRUE(writer.AddString("general.architecture", "llama"));
  for (const auto& [key, value] : std::initializer_list<std::pair<const char*, uint32_t>>{
           {"llama.block_count", 1},
           {"llama.embedding_length", kDim},
           {"llama.feed_forward_length", kInner},
           {"llama.attention.head_count", 2},
           {"llama.context_length", 64},
           {"llama.expert_count", kExperts},
           {"llama.expert_used_count", 2}}) {
    ASSERT_TRUE(writer.AddUint32(key, value));
  }
  ASSERT_TRUE(writer.AddFloat32("llama.attention.layer_norm_rms_epsilon", 1e-5f));
  for (const TensorSpec& t : tensors) ASSERT_TRUE(writer.AddTensor(t.name, t.type, t.shape));
  ASSERT_TRUE(writer.Begin(path));
  std::mt19937 random(3);
  for (const TensorSpec& t : tensors) {
    int64_t values = 1;
    for (const int64_t n : t.shape) values *= n;
    std::vector<float> numbers(static_cast<size_t>(values));
    for (float& v : numbers) v = static_cast<float>(random() % 2000) / 1000.0f - 1.0f;
    std::vector<std::byte> bytes(static_cast<size_t>(RowBytes(t.type, values)));
    Info(t.type).encode(numbers.data(), bytes.data(), values);
    ASSERT_TRUE(writer.Write(bytes));
  }
  ASSERT_TRUE(writer.Finish());
}

TEST(PackedExperts, LieOneAfterTheOtherAndAreVerified) {
  TempFolder folder;
  const std::string path = folder.File("m.gguf");
  const std::string file = folder.File("m.pack");
  WriteExperts(path);
  Loaded loaded(path);
  const PackedWeights packed = loaded.Pack();
  ASSERT_TRUE(packed.Write(file, [](size_t) { return true; }));
  int stacks = 0;
  for (const Value v : loaded.plan.Weights()) {
    const Tensor& w = loaded.model.weights[v];
    if (w.rank != 3) continue;
    ++stacks;
    ASSERT_NE(packed[v], nullptr);
    Tensor one = w;
    one.rank = 2;
    one.shape = {w.shape[1], w.shape[2]};
    std::vector<float> got(static_cast<size_t>(w.cols()));
    std::vector<float> want(got.size());
    for (int64_t row = 0; row < w.rows(); ++row) {
      const int64_t expert = row / w.shape[1];
      DecodePackedRow(w.dtype, packed[v] + expert * PackedBytes(one), w.cols(), row % w.shape[1],
                      got.data());
      Info(w.dtype).decode(w.row(row), want.data(), w.cols());
      EXPECT_EQ(got, want) << loaded.plan.Info(v).name << " row " << row;
    }
  }
  EXPECT_EQ(stacks, 3);
  const Result<PackedWeights> mapped = loaded.Open(file);
  ASSERT_TRUE(mapped) << mapped.error().message;
  EXPECT_TRUE(loaded.Verify(file));
}

}  // namespace
}  // namespace lucid
