// ModelConfig: the validated numbers of a model, the same whatever file they came from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/op.h"
#include "plan/rope_overrides.h"

namespace lucid {

// Layers with experts; n_experts == 0 where the model has none.
struct MoeConfig {
  int64_t n_experts = 0;
  int64_t expert_dim = 0;  // inner width of an expert
  RoutingRule rule;
  GluRule glu;
  bool router_bias = false;
  bool choice_bias = false;  // a bias that counts for the choice only
  bool expert_bias = false;
  int64_t shared_dim = 0;    // inner width of the expert that all tokens share; 0: none
  bool shared_gate = false;  // which is times sigmoid of a gate
};

enum class NormKind : int8_t { kRms, kLayer };

// Norms of q and k before they are rotated, of the model's kind.
enum class QkNorm : int8_t {
  kNone,
  kPerHead,   // every head by itself, all with one weight [head_dim]
  kOwnHeads,  // every head by itself with a weight of its own
  kWholeRow,  // all heads together
};

// Latent attention (models/mla.h); kv_lora == 0 where the model has none.
struct MlaConfig {
  int64_t q_lora = 0;   // width of q's factor; 0: q is one product
  int64_t kv_lora = 0;  // width of the latent vectors
  int64_t nope = 0;     // of a head: the part of q and k that is not rotated, ...
  int64_t rope = 0;     // the rotated part, ...
  int64_t v_dim = 0;    // and the value
  double norm_eps = 0;  // of the norms of both factors
};

struct LayerConfig {
  int64_t window = 0;    // sliding window of this layer; 0: none
  bool use_rope = true;  // some layers know no positions (NoPE)
  RopeSpec rope;
  double attn_scale = 0;  // factor of the scores; 0: the model's
  bool experts = false;   // the feed-forward half is a mixture of experts
};

struct ModelConfig {
  std::string arch;  // ArchSpec::name
  int64_t n_layers = 0;
  int64_t n_unrun_layers = 0;  // behind the last: they predict further tokens, which nothing asks
  int64_t dim = 0;             // width of the residual stream
  int64_t ffn_dim = 0;
  int64_t n_heads = 0;
  int64_t n_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t vocab_size = 0;      // rows of the embedding
  int64_t context_length = 0;  // positions the model was trained for
  NormKind norm = NormKind::kRms;
  bool norm_weight = true;  // the norms have weights, and biases
  bool norm_bias = false;
  double norm_eps = 0;
  double attn_scale = 0;      // factor of the scores, usually 1 / sqrt(head_dim)
  double embed_scale = 1;     // factor of the embedding
  double residual_scale = 1;  // factor of what a half of a block adds to the residual stream
  double logit_scale = 1;     // factor of the logits
  double attn_softcap = 0;    // 0: none
  double logit_softcap = 0;   // 0: none
  double clip_qkv = 0;        // largest magnitude of q, k and v; 0: any
  double alibi_max_bias = 0;  // 0: no ALiBi; see AlibiSlopes
  double alibi_factor = 1;
  QkNorm qk_norm = QkNorm::kNone;
  int64_t position_rows = 0;    // rows of the learned positions; 0: none
  int64_t position_offset = 0;  // the row of position 0
  Activation act = Activation::kSilu;
  bool tied_embeddings = false;  // the output matrix is the embedding
  bool qkv_bias = false;
  bool attn_out_bias = false;
  bool ffn_bias = false;
  bool output_bias = false;
  bool parallel_block = false;      // attention and FFN read the same residual stream
  bool residual_from_norm = false;  // what a half adds to is its normed input
  bool shared_norm = false;         // a parallel block has one norm for both
  bool attn_sinks = false;          // every head has a score without a value
  MoeConfig moe;
  MlaConfig mla;
  std::vector<LayerConfig> layers;  // n_layers of them
};

// What a layer's rotations are where they depend on how long a sequence is, or nullptr; layers that
// do have the same ones.
const RopeSpec* LengthDependentRope(const ModelConfig& config);

// Changes the rotations of the layers that see every position (of all, where every layer has a
// window). Errors as Override, or that the model does not rotate.
Status OverrideRope(ModelConfig& config, const RopeOverrides& overrides);

// How the model knows positions, for people: a line for each way.
std::vector<std::string> DescribePositions(const ModelConfig& config);

// kInvalidFile naming the number that is out of range or does not fit the others. Afterwards no
// size of the model can overflow 64 bits.
Status ValidateConfig(const ModelConfig& config);

}  // namespace lucid
