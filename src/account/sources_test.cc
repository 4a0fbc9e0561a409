// The numbers that texts about inference state of real models, from their published config.json
// files (tests/data/configs), recomputed by the ledger. Where a text is wrong, the right value
// stands here, and docs/notes-on-the-sources.md says why.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "account/kv_facts.h"
#include "account/ledger.h"
#include "account/predict.h"
#include "models/outline.h"

namespace lucid {
namespace {

constexpr double kGiga = 1e9, kTera = 1e12;
constexpr int64_t kMiB = int64_t{1} << 20;

Model Published(const std::string& name, std::string_view mix = "") {
  return OutlineModel(std::string(LUCID_SOURCE_DIR) + "/tests/data/configs/" + name + ".json", mix)
      .value();
}

// All weights in 2 bytes, vectors too: as such files are stored.
std::vector<DType> HalfTypes(const Plan& plan) {
  return std::vector<DType>(plan.values.size(), DType::kF16);
}

struct Weighed {
  int64_t params = 0, bytes = 0;
};
Weighed Weigh(const Plan& plan, std::span<const DType> types) {
  Weighed sum;
  for (const LedgerWeight& weight : ListWeights(plan, types)) {
    sum.params += weight.params;
    sum.bytes += weight.bytes;
  }
  return sum;
}

const LedgerRow& Row(const Ledger& ledger, std::string_view name) {
  for (const LedgerRow& row : ledger.rows) {
    if (row.name == name) return row;
  }
  ADD_FAILURE() << "no op " << name;
  return ledger.rows.front();
}

KvFacts Kv(const Plan& plan, int64_t context, KvType type = KvType::kF16) {
  return KvFactsOf(plan, {.k_type = type, .v_type = type, .block_size = 16}, context).value();
}

// FLOPs of the products of one layer (2 per multiply-add), the full square for attention: the sum
// that texts give for a layer.
int64_t LayerProducts(const Plan& plan, const Workload& work, int layer, bool causal) {
  Workload counted = work;
  counted.causal = causal;
  int64_t flops = 0;
  const std::string prefix = "blk." + std::to_string(layer) + ".";
  for (const Op& op : plan.ops) {
    if (op.name.starts_with(prefix)) flops += 2 * Info(op.kind).cost(plan, op, counted).macs;
  }
  return flops;
}

Hardware H100(double bytes_per_second) {
  return {.name = "H100",
          .source = "text",
          .bytes_per_second = bytes_per_second,
          .memory_bytes = 0,
          .peaks = {{"16 bit", 989e12}},
          .kernels = {}};
}

class Llama3 : public testing::Test {
 protected:
  const Model model_ = Published("llama-3-8b");
  const Plan& plan_ = model_.plan;
  const std::vector<DType> half_ = HalfTypes(plan_);
  Workload types_ = [this] {
    Workload work;
    work.weight_dtypes = half_;
    return work;
  }();
};

class Qwen7B : public testing::Test {
 protected:
  const Model model_ = Published("qwen2.5-7b", "q4_k_m");
  const Plan& plan_ = model_.plan;
};

// Row 4: hidden 3584, 28 layers, 28 and 4 heads of 128, 152,064 rows; 64 pairs; sqrt(128).
TEST_F(Qwen7B, HasTheSizesItIsKnownFor) {
  const ModelConfig& c = model_.config;
  EXPECT_EQ(c.dim, 3584);
  EXPECT_EQ(c.n_layers, 28);
  EXPECT_EQ(c.n_heads * c.head_dim, 3584);
  EXPECT_EQ(c.n_kv_heads, 4);
  EXPECT_EQ(c.ffn_dim, 18944);
  EXPECT_EQ(c.vocab_size, 152064);
  EXPECT_EQ(c.layers[0].rope.rotary_dim / 2, 64);
  EXPECT_NEAR(1 / c.attn_scale, 11.31, 0.005);
  EXPECT_EQ(Weigh(plan_, model_.weights.dtypes()).params, 7'615'616'512);
}

// Row 5: [16] -> [16, 3584]; q [S, 28, 128], k and v [S, 4, 128]; [1, 3584] -> [1, 152064].
TEST_F(Qwen7B, ShapesOfAPromptOfSixteen) {
  const Workload work = PromptWork(1, 16, {});
  const Ledger ledger = MakeLedger(plan_, work);
  const auto shape = [&](std::string_view op) {
    return Row(ledger, op).shape.ToString(work.sizes());
  };
  EXPECT_EQ(shape("embed"), "[16, 3584]");
  EXPECT_EQ(shape("blk.0.attn_q.rope"), "[16, 28, 128]");
  EXPECT_EQ(shape("blk.0.attn_k.rope"), "[16, 4, 128]");
  EXPECT_EQ(shape("blk.0.attn_v"), "[16, 512]");
  EXPECT_EQ(shape("blk.27.out"), "[16, 3584]");
  EXPECT_EQ(shape("output_norm"), "[1, 3584]");
  EXPECT_EQ(shape("logits"), "[1, 152064]");
}

// Rows 6 and 7: 117,440,512 bytes at 2,048 tokens; seven times that with a KV head for every query
// head (822,083,584: 821.8 MB comes of a rounded factor); 11.744 GB for 100 requests.
TEST_F(Qwen7B, KeepsASeventhOfMultiHeadAttention) {
  const KvFacts kv = Kv(plan_, 2048);
  EXPECT_EQ(kv.kind, "GQA");
  EXPECT_EQ(kv.bytes_per_token, 28 * 2 * 4 * 128 * 2);
  EXPECT_EQ(kv.sequence_bytes, 117'440'512);
  EXPECT_EQ(kv.saving(), 7);
  EXPECT_EQ(kv.sequence_bytes * static_cast<int64_t>(kv.saving()), 822'083'584);
  EXPECT_NEAR(static_cast<double>(100 * kv.sequence_bytes) / kGiga, 11.744, 0.0005);
}

// Row 8: rebuilt to the byte from shapes and the rule of Q4_K_M; 4.913 bits a weight.
TEST_F(Qwen7B, WeighsWhatItsFileWeighs) {
  const Weighed sum = Weigh(plan_, model_.weights.dtypes());
  EXPECT_EQ(sum.bytes, 4'677'120'000);
  EXPECT_NEAR(8 * static_cast<double>(sum.bytes) / static_cast<double>(sum.params), 4.913, 0.0005);
}

// Rows 9 to 11: tokens a second times bytes is bandwidth. The embedding (306,561,024 bytes) is a
// lookup, so a token streams 4,370,558,976 bytes, 7 % less than the file has.
TEST_F(Qwen7B, StreamsLessThanItsFile) {
  const int64_t streamed = StreamedBytes(plan_, model_.weights.dtypes());
  const int64_t file = Weigh(plan_, model_.weights.dtypes()).bytes;
  EXPECT_EQ(streamed, 4'370'558'976);
  EXPECT_EQ(file - streamed, 306'561'024);
  EXPECT_NEAR(150e9 / static_cast<double>(file), 32.07, 0.005);
  EXPECT_NEAR(150e9 / static_cast<double>(streamed), 34.32, 0.005);
  const double kv = static_cast<double>(Kv(plan_, 2048).sequence_bytes);
  EXPECT_NEAR(kv / static_cast<double>(streamed), 0.0269, 0.0001);
  EXPECT_NEAR(16.99 * static_cast<double>(file) / kGiga, 79.46, 0.005);
  EXPECT_NEAR(16.99 * static_cast<double>(streamed) / kGiga, 74.26, 0.005);
  const double stated[] = {14.87, 18.42, 18.72, 18.69}, bandwidth[] = {69.5, 86.2, 87.6, 87.4};
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(stated[i] * static_cast<double>(file) / kGiga, bandwidth[i], 0.06);
  }
}

// Rows 14 and 29: 8,030,261,248 parameters; 14336 is two thirds of four times the width, times 1.3,
// rounded up to a multiple of 1024.
TEST_F(Llama3, HasTheSizesItIsKnownFor) {
  const Weighed sum = Weigh(plan_, half_);
  EXPECT_EQ(sum.params, 8'030'261'248);
  EXPECT_EQ(sum.bytes, 16'060'522'496);
  const double wanted = std::floor(1.3 * std::floor(2.0 / 3 * 4 * 4096));
  EXPECT_NEAR(wanted, 14199, 1);
  EXPECT_EQ(static_cast<int64_t>(std::ceil(wanted / 1024)) * 1024, model_.config.ffn_dim);
}

// Rows 15 and 16: both phases of a batch of two, whose B and S the plan keeps as one T = B S.
TEST_F(Llama3, ShapesOfBothPhases) {
  const auto shape = [&](const Workload& work, std::string_view op) {
    return Row(MakeLedger(plan_, work), op).shape.ToString(work.sizes());
  };
  const Workload prompt = PromptWork(2, 10, {});
  EXPECT_EQ(shape(prompt, "embed"), "[20, 4096]");
  EXPECT_EQ(shape(prompt, "blk.0.attn_k"), "[20, 1024]");
  EXPECT_EQ(shape(prompt, "blk.0.attn_q.rope"), "[20, 32, 128]");
  EXPECT_EQ(shape(prompt, "blk.0.attn_k.rope"), "[20, 8, 128]");
  EXPECT_EQ(shape(prompt, "blk.0.attn"), "[20, 4096]");
  EXPECT_EQ(shape(prompt, "blk.0.ffn_gate"), "[20, 14336]");
  EXPECT_EQ(shape(prompt, "blk.31.out"), "[20, 4096]");
  EXPECT_EQ(shape(prompt, "output_norm"), "[2, 4096]");
  EXPECT_EQ(shape(prompt, "logits"), "[2, 128256]");
  const Workload token = DecodeWork(2, 11, {});
  EXPECT_EQ(token.sequences[0].start, 10);  // the position of the first token is the cache's length
  EXPECT_EQ(shape(token, "blk.0.attn_q.rope"), "[2, 32, 128]");
  EXPECT_EQ(shape(token, "blk.0.attn_k.rope"), "[2, 8, 128]");
  EXPECT_EQ(shape(token, "logits"), "[2, 128256]");
  // Scores are [2, 32, 10, 10] in full and [2, 32, 1, 11]: their number times 2 d of each product.
  Workload full = prompt;
  full.causal = false;
  EXPECT_EQ(Row(MakeLedger(plan_, full), "blk.0.attn").cost.macs, 2 * 32 * 10 * 10 * 2 * 128);
  EXPECT_EQ(Row(MakeLedger(plan_, token), "blk.0.attn").cost.macs, 2 * 32 * 11 * 2 * 128);
}

// Row 17: 4 KiB a token and layer, 128 KiB a token, 512 MiB for 4,096 tokens.
TEST_F(Llama3, CacheInPowersOfTwo) {
  const KvFacts kv = Kv(plan_, 4096);
  EXPECT_EQ(kv.bytes_per_token / 32, 4 << 10);
  EXPECT_EQ(kv.bytes_per_token, 128 << 10);
  EXPECT_EQ(kv.sequence_bytes, 512 * kMiB);
  EXPECT_EQ(kv.saving(), 4);
}

// Row 18: a layer has 436,207,616 bytes in two-byte numbers: 416 MiB, which is 436.2 MB. Sums of 32
// and 117 mix the two units.
TEST_F(Llama3, BytesOfALayerInOneUnit) {
  int64_t layer = 0;
  for (const LedgerWeight& weight : ListWeights(plan_, half_)) {
    if (weight.name.starts_with("blk.0.") && weight.part != Part::kNorm) layer += weight.bytes;
    if (weight.name == "blk.0.attn_q") {
      EXPECT_EQ(weight.bytes, 32 * kMiB);
    }
    if (weight.name == "blk.0.ffn_gate") {
      EXPECT_EQ(weight.bytes, 112 * kMiB);
    }
  }
  EXPECT_EQ(layer, 436'207'616);
  EXPECT_EQ(layer, 416 * kMiB);
}

// Rows 19 to 21: FLOPs of a layer at 2,048 tokens, B = 1: 5BSH, 2BSH H, 2BSH n_kv d, 2B n_q N L d,
// 2BSHI.
TEST_F(Llama3, FlopsOfALayer) {
  Workload square = PromptWork(1, 2048, types_);
  square.causal = false;
  const Ledger prompt = MakeLedger(plan_, square);
  const Ledger token = MakeLedger(plan_, DecodeWork(1, 2048, types_));
  const auto in_prompt = [&](const char* op) { return Row(prompt, op).cost.flops; };
  const auto in_token = [&](const char* op) { return Row(token, op).cost.flops; };
  EXPECT_EQ(in_prompt("blk.0.attn_norm"), 5ll * 2048 * 4096);  // 41.9 MFLOP
  EXPECT_EQ(in_token("blk.0.attn_norm"), 5 * 4096);
  EXPECT_EQ(in_prompt("blk.0.attn_q"), 2ll * 2048 * 4096 * 4096);  // 68.7 GFLOP
  EXPECT_EQ(in_token("blk.0.attn_q"), 2 * 4096 * 4096);
  EXPECT_EQ(in_prompt("blk.0.attn_k"), 2ll * 2048 * 4096 * 1024);  // 17.2
  EXPECT_EQ(in_token("blk.0.attn_k"), 2 * 4096 * 1024);
  EXPECT_EQ(in_prompt("blk.0.ffn_gate"), 2ll * 2048 * 4096 * 14336);  // 240.5
  EXPECT_EQ(in_token("blk.0.ffn_gate"), 2 * 4096 * 14336);
  // q k^T and the weighted sum of v are one op: 34.4 each, and a softmax of 5 per score (0.67 GFLOP
  // and 0.33 MFLOP; the text takes 4 for a token).
  EXPECT_EQ(in_prompt("blk.0.attn"), 2 * (2ll * 32 * 2048 * 2048 * 128) + 5ll * 32 * 2048 * 2048);
  EXPECT_EQ(in_token("blk.0.attn"), 2 * (2ll * 32 * 2048 * 128) + 5ll * 32 * 2048);
  // Six for a rotated pair, of q and k: 31.5 MFLOP; five for a gated number.
  EXPECT_EQ(in_prompt("blk.0.attn_q.rope") + in_prompt("blk.0.attn_k.rope"),
            6ll * 2048 * (32 + 8) * 64);
  EXPECT_EQ(in_prompt("blk.0.ffn_gate.glu"), 5ll * 2048 * 14336);
}

TEST_F(Llama3, ProductsOfALayerAndOfTheModel) {
  const Workload prompt = PromptWork(1, 2048, types_), token = DecodeWork(1, 2048, types_);
  const double layer = static_cast<double>(LayerProducts(plan_, prompt, 0, false));
  EXPECT_NEAR(layer / kGiga, 962.07, 0.005);
  EXPECT_NEAR(static_cast<double>(LayerProducts(plan_, token, 0, false)) / 1e6, 469.76, 0.005);
  EXPECT_NEAR(32 * layer / kTera, 30.79, 0.005);
  EXPECT_NEAR(32 * static_cast<double>(LayerProducts(plan_, prompt, 0, true)) / kTera, 29.69,
              0.005);
  const Ledger decode = MakeLedger(plan_, token);
  const double head = 2.0 * 4096 * 128256;
  EXPECT_NEAR((2 * static_cast<double>(decode.total.macs) - head) / kGiga, 15.03, 0.005);
  EXPECT_NEAR(2 * static_cast<double>(decode.total.macs) / kGiga, 16.08, 0.005);
}

// Row 22: the FFN has 75.0 % of the FLOPs and 80.8 % of the bytes of a layer, projections 17.9 %,
// attention itself 7.1 %; keys and values are 1.92 % of the weights' bytes.
TEST_F(Llama3, WhereALayersWorkIs) {
  Workload square = PromptWork(1, 2048, types_);
  square.causal = false;
  const Ledger prompt = MakeLedger(plan_, square);
  double ffn = 0, projections = 0, attention = 0;
  for (const LedgerRow& row : prompt.rows) {
    if (row.layer != 0) continue;
    const auto flops = 2 * static_cast<double>(row.cost.macs);
    (row.kind == OpKind::kAttention ? attention
     : row.part == Part::kFfn       ? ffn
                                    : projections) += flops;
  }
  const double all = ffn + projections + attention;
  EXPECT_NEAR(ffn / all, 0.750, 0.0005);
  EXPECT_NEAR(projections / all, 0.179, 0.0005);
  EXPECT_NEAR(attention / all, 0.071, 0.0005);
  EXPECT_NEAR(3.0 * 112 / 416, 0.808, 0.0005);
  const Ledger token = MakeLedger(plan_, DecodeWork(1, 2048, types_));
  const auto kv = static_cast<double>(Row(token, "blk.0.attn").cost.kv_read_bytes);
  EXPECT_NEAR(kv / 436'207'616, 0.0192, 0.00005);
}

// Row 23: 13.96 GB of weights and 268.4 MB of keys and values; 2,164 and 1.057 FLOPs a byte without
// the output matrix, 1.053 with it.
TEST_F(Llama3, ArithmeticIntensity) {
  const double weights = 32 * 436'207'616.0, kv = 2048 * 131'072.0;
  EXPECT_NEAR(weights / kGiga, 13.96, 0.005);
  EXPECT_EQ(kv, 256.0 * kMiB);
  const double prompt =
      32 * static_cast<double>(LayerProducts(plan_, PromptWork(1, 2048, types_), 0, false));
  EXPECT_NEAR(prompt / (weights + kv), 2164, 0.5);
  const double token =
      32 * static_cast<double>(LayerProducts(plan_, DecodeWork(1, 2048, types_), 0, false));
  EXPECT_NEAR(token / (weights + kv), 1.057, 0.0005);
  const Ledger decode = MakeLedger(plan_, DecodeWork(1, 2048, types_));
  const auto bytes = static_cast<double>(decode.total.weight_bytes + decode.total.kv_read_bytes);
  EXPECT_NEAR(2 * static_cast<double>(decode.total.macs) / bytes, 1.053, 0.0005);
}

// Rows 24 and 25: 16 GB over 3 TB/s are 5.3 ms, but the embedding is not streamed: 5.00 ms, with
// keys and values 5.09. The ridge of 989 TFLOP/s is at 330 FLOPs a byte with 3 TB/s, at 295 with
// the data sheet's 3.35; a token is at 0.32 % of it.
TEST_F(Llama3, LeastTimeOfATokenAndTheRidge) {
  const double streamed = static_cast<double>(StreamedBytes(plan_, half_));
  EXPECT_NEAR(streamed / kGiga, 15.01, 0.005);
  EXPECT_NEAR(16.0 / 3000 * 1e3, 5.33, 0.005);
  EXPECT_NEAR(streamed / 3e12 * 1e3, 5.00, 0.005);
  EXPECT_NEAR((streamed + 2048 * 131'072.0) / 3e12 * 1e3, 5.09, 0.005);
  EXPECT_NEAR(H100(3e12).Ridge(), 329.7, 0.05);
  EXPECT_NEAR(H100(3.35e12).Ridge(), 295.2, 0.05);
  EXPECT_NEAR(1.057 / H100(3e12).Ridge(), 0.0032, 0.00005);
  const StepTime step = PredictStep(H100(3e12), plan_, DecodeWork(1, 2048, types_));
  EXPECT_TRUE(step.by_memory());
  EXPECT_NEAR(step.roof * 1e3, 5.09, 0.005);
  EXPECT_FALSE(PredictStep(H100(3e12), plan_, PromptWork(1, 2048, types_)).by_memory());
}

// Row 26: 32 sequences share the weights and not their caches, so that they reach 20.2 times the
// FLOPs a byte, not 32 times.
TEST_F(Llama3, BatchesShareWeightsOnly) {
  const auto intensity = [&](int64_t batch) {
    const Ledger ledger = MakeLedger(plan_, DecodeWork(batch, 2048, types_));
    double flops = 0, bytes = 0;
    for (const LedgerRow& row : ledger.rows) {
      if (row.layer < 0 || row.part == Part::kNorm) continue;
      flops += 2 * static_cast<double>(row.cost.macs);
      bytes += static_cast<double>(row.cost.weight_bytes + row.cost.kv_read_bytes);
    }
    return flops / bytes;
  };
  EXPECT_NEAR(intensity(1), 1.057, 0.0005);
  EXPECT_NEAR(intensity(32), 21.33, 0.005);
  EXPECT_NEAR(intensity(32) / intensity(1), 20.2, 0.05);
}

// Row 27: keys and values pass the layers' weights at 106,496 tokens (the output matrix included at
// 114,512): a context of 64K does not, one of 128K does.
TEST_F(Llama3, KeysAndValuesPassTheWeights) {
  EXPECT_EQ(32 * 436'207'616ll / 131'072, 106'496);
  EXPECT_EQ((32 * 436'207'616ll + 2ll * 4096 * 128256) / 131'072, 114'512);
  // With norms and the row of the embedding a little later.
  const int64_t passes = KvPassesWeights(plan_, types_);
  EXPECT_EQ(passes, 114'517);
  EXPECT_GT(passes, 64 << 10);
  EXPECT_LT(passes, 128 << 10);
}

// Row 28: 2 P N: 32.89 TFLOP with all parameters, where the items sum up to 30.79.
TEST_F(Llama3, TwoFlopsForAParameterAndToken) {
  const double rule = 2 * 8'030'261'248.0 * 2048;
  EXPECT_NEAR(2 * 8e9 * 2048 / kTera, 32.77, 0.005);
  EXPECT_NEAR(rule / kTera, 32.89, 0.005);
  Workload square = PromptWork(1, 2048, types_);
  square.causal = false;
  const double items = 2 * static_cast<double>(MakeLedger(plan_, square).total.macs);
  EXPECT_NEAR(items / rule, 0.94,
              0.005);  // no embedding, one row of logits; attention comes on top
}

// Row 36: a token writes 2,048 bytes of keys and as many of values in a layer, and reads 4 MiB of
// each at 2,048 tokens.
TEST_F(Llama3, BytesOfTheCacheInALayer) {
  const Ledger token = MakeLedger(plan_, DecodeWork(1, 2048, types_));
  EXPECT_EQ(Row(token, "blk.0.kv.store").cost.kv_write_bytes, 2 * 2048);
  EXPECT_EQ(Row(token, "blk.0.attn").cost.kv_read_bytes, 8 * kMiB);
}

// Row 37: 8 bits are half of 16 before their scales, 4 bits a quarter: 8.5 and 5 bits with them.
TEST_F(Llama3, SmallerCachesKeepScales) {
  const auto bits = [&](KvType type) {
    const KvFacts kv = Kv(plan_, 4096, type);
    return 8 * static_cast<double>(kv.bytes_per_token) / static_cast<double>(kv.numbers_per_token);
  };
  EXPECT_EQ(bits(KvType::kF16), 16);
  EXPECT_EQ(bits(KvType::kInt8), 8.5);
  EXPECT_EQ(bits(KvType::kFp8), 8.125);
  EXPECT_EQ(bits(KvType::kInt4), 5);
}

// Row 30: 1,152 bytes a token and layer in bfloat16, not some hundred: 56.9 times less than 128
// heads of 128, 71.1 times less than the 192 and 128 numbers that its own heads have, and not 128
// times.
TEST(DeepSeekV3, KeepsLatentVectors) {
  const Model model = Published("deepseek-v3");
  const KvFacts kv = Kv(model.plan, 4096, KvType::kBF16);
  EXPECT_EQ(kv.kind, "MLA");
  EXPECT_EQ(kv.bytes_per_token, 61 * 1152);
  EXPECT_NEAR(128.0 * (128 + 128) * 2 / 1152, 56.9, 0.05);
  EXPECT_NEAR(kv.saving(), 71.1, 0.05);
}

// 671 billion parameters, of which a token meets 37.
TEST(DeepSeekV3, ParametersOfATokenAndOfAll) {
  const Model model = Published("deepseek-v3");
  double active = 0;
  int64_t params = 0;
  for (const LedgerWeight& weight : ListWeights(model.plan, model.weights.dtypes())) {
    params += weight.params;
    active += weight.used * static_cast<double>(weight.params);
  }
  EXPECT_NEAR(static_cast<double>(params) / kGiga, 671.0, 0.05);
  EXPECT_NEAR(active / kGiga, 37.5, 0.1);
}

TEST(Published, ParametersOfOtherModels) {
  const auto params = [](const char* name) {
    const Model model = Published(name);
    return Weigh(model.plan, model.weights.dtypes()).params;
  };
  EXPECT_EQ(params("llama-3-70b"), 70'553'706'496);
  EXPECT_EQ(params("mistral-7b"), 7'241'732'096);
  EXPECT_EQ(params("falcon-7b"), 6'921'720'704);
  EXPECT_EQ(params("gpt2"), 124'439'808);
}

// The table of variants: what n_q / n_kv saves.
TEST(Published, HeadsAndWindows) {
  EXPECT_EQ(Kv(Published("gpt2").plan, 1024).kind, "MHA");
  EXPECT_EQ(Kv(Published("gpt2").plan, 1024).saving(), 1);
  EXPECT_EQ(Kv(Published("falcon-7b").plan, 1024).kind, "MQA");
  EXPECT_EQ(Kv(Published("falcon-7b").plan, 1024).saving(), 71);
  // min(S, W) positions, in blocks: the window may begin within one.
  const KvFacts mistral = Kv(Published("mistral-7b").plan, 32768);
  EXPECT_EQ(mistral.windowed_layers, 32);
  EXPECT_EQ(mistral.unwindowed_bytes, 32768ll * 131'072);
  EXPECT_GE(mistral.sequence_bytes, 4096ll * 131'072);
  EXPECT_LE(mistral.sequence_bytes, (4096ll + 16) * 131'072);
  EXPECT_EQ(Kv(Published("mistral-7b").plan, 1024).sequence_bytes, 1024ll * 131'072);
}

// Row 33: without a cache every token computes all before it again: 54.6 times the tokens for 100
// behind 10, 1,536 times for 2,048 behind 2,048.
TEST(Complexity, OfGenerationWithAndWithoutACache) {
  const auto ratio = [](double prompt, double reply) {
    double without = 0;
    for (double t = 0; t < reply; ++t) without += prompt + t;
    return without / (prompt + reply - 1);
  };
  EXPECT_NEAR(ratio(10, 100), 54.6, 0.05);
  EXPECT_NEAR(ratio(2048, 2048), 1536, 0.5);
}

// Prompts cost S^2 in attention and S in everything else; a token costs what is before it.
TEST(Complexity, GrowsWithTheStatedPowers) {
  const Model model = Published("llama-3-8b");
  const auto macs = [&](const Workload& work, const char* op) {
    return static_cast<double>(Row(MakeLedger(model.plan, work), op).cost.macs);
  };
  EXPECT_NEAR(
      macs(PromptWork(1, 4096, {}), "blk.0.attn") / macs(PromptWork(1, 2048, {}), "blk.0.attn"), 4,
      0.01);
  EXPECT_EQ(macs(PromptWork(1, 4096, {}), "blk.0.ffn_up"),
            2 * macs(PromptWork(1, 2048, {}), "blk.0.ffn_up"));
  EXPECT_EQ(macs(DecodeWork(1, 4096, {}), "blk.0.attn"),
            2 * macs(DecodeWork(1, 2048, {}), "blk.0.attn"));
  EXPECT_EQ(macs(DecodeWork(1, 4096, {}), "blk.0.ffn_up"),
            macs(DecodeWork(1, 2048, {}), "blk.0.ffn_up"));
}

// Rows 3 and 12: softmax of 2, 1, 0; a perplexity of 6.8790 is a cross-entropy of 1.92847.
TEST(SmallNumbers, OfTheTexts) {
  const double sum = std::exp(2.0) + std::exp(1.0) + 1;
  EXPECT_NEAR(sum, 11.1073, 0.00005);
  EXPECT_NEAR(std::exp(2.0) / sum, 0.66524, 0.000005);
  EXPECT_NEAR(std::exp(1.0) / sum, 0.24473, 0.000005);
  EXPECT_NEAR(1 / sum, 0.09003, 0.000005);
  EXPECT_EQ(1 * 3 + 2 * 4, 11);
  EXPECT_NEAR(std::log(6.8790), 1.92847, 0.000005);
  EXPECT_EQ((512 - 512 / 2 - 1) * 16, 4080);
  EXPECT_NEAR(0.30335 / 6.8790, 0.044, 0.0005);
}

}  // namespace
}  // namespace lucid
