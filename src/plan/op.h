// What a plan is made of: values, ops and their attributes.
//
// Everything an op reads or writes is an operand: activations, weights, the KV cache of a layer and
// the arrays of the batch. A value is written once (SSA); writing to a KV cache gives a new version
// of that value, so dataflow is visible.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "plan/dim.h"
#include "plan/rope_spec.h"
#include "tensor/op_enums.h"

namespace lucid {

// A handle of a value in its plan; -1 where an optional operand (a bias) is absent.
struct Value {
  int32_t id = -1;
  bool present() const { return id >= 0; }
  bool operator==(const Value&) const = default;
};

enum class ValueKind : int8_t {
  kActivation,  // float32, lives within a step
  kWeight,      // read-only; its dtype is known once a checkpoint is bound
  kKv,          // keys and values of one layer, lives across steps
  kBatch,       // int32 array that the step brings: token ids, positions, ...
};

// Which index of a weight tensor parallelism may cut.
enum class Axis : int8_t { kNone, kHead, kKvHead, kFfn, kVocab, kExpert };

struct Extent {
  int64_t size = 0;
  Axis axis = Axis::kNone;
  constexpr Extent() = default;
  constexpr Extent(int64_t n, Axis a = Axis::kNone)
      : size(n), axis(a) {}  // NOLINT: a number is an extent
};

// The cache that one layer needs.
struct KvSpec {
  int64_t heads = 0;
  int64_t k_dim = 0;
  int64_t v_dim = 0;   // 0: a latent cache, whose values are made of its keys
  int64_t window = 0;  // 0: every position is kept; else older ones may be dropped
};

struct ValueInfo {
  ValueKind kind = ValueKind::kActivation;
  std::string name;  // "blk.3.attn_q", "positions"
  Shape shape;
  int32_t producer =
      -1;  // index of the op that writes it; -1 for weights, batch arrays and the initial KV
  int32_t kv_layer = -1;        // kKv: index into Plan::kv_layers
  std::vector<Extent> extents;  // kWeight: same sizes as shape, with what may be cut
};

enum class OpKind : int8_t {
  kEmbed,
  kRmsNorm,
  kLayerNorm,
  kLinear,
  kRope,
  kKvStore,
  kAttention,
  kAdd,
  kGlu,
  kActivate,
  kScale,
  kClamp,
  kSoftcap,
  kGatherRows,
  kRoute,
  kExpertGlu,
  kExpertLinear,
  kMixExperts,
  kHeadLinear,
  kConcat,
  kMlaAttention,
  kByPhase,
  // Made by the fuse pass only.
  kLinearGroup,
  kGluLinear,
  kAddRmsNorm,
  kNormRope,
};

struct EmbedAttrs {
  float scale = 1.0f;
  int64_t offset = 0;  // added to every index: learned positions of OPT begin at row 2
};
struct NormAttrs {
  float eps = 0;
  int64_t dim = 0;
};  // dim: values normalised together
struct LinearAttrs {
  bool exact = false;  // activations are not rounded: routers, where a little tips the choice
};
struct RopeAttrs {
  RopeSpec spec;
  int64_t head_dim = 0;
  int64_t first = 0;  // of a head's values, the first that is rotated
};
struct KvStoreAttrs {};
struct AttentionAttrs {
  float scale = 0;
  int32_t window = 0;
  float softcap = 0;
  int64_t n_heads = 0;
  float alibi_max_bias = 0;  // 0: no ALiBi; see AlibiSlopes
  float alibi_factor = 1;
  // Above 0: values are the first v_in_k numbers of the keys, of a cache that keeps no others.
  int64_t v_in_k = 0;
  bool generated_only = false;  // rows of given tokens are not computed
};
struct AddAttrs {};
struct GluAttrs {  // gate may be [T, 1], one for the whole row
  Activation act = Activation::kSilu;
};
struct ActivateAttrs {
  Activation act = Activation::kSilu;
};
struct ScaleAttrs {
  float factor = 1.0f;
};
struct ClampAttrs {
  float limit = 0;
};
struct SoftcapAttrs {
  float cap = 0;
};
struct GatherRowsAttrs {};
struct RouteAttrs {
  RoutingRule rule;
};
struct ExpertGluAttrs {
  GluRule glu;
};
struct ExpertLinearAttrs {};
struct MixExpertsAttrs {};
struct HeadLinearAttrs {
  bool generated_only = false;
};
struct ConcatAttrs {
  int64_t parts = 1;  // rows of a token
  int64_t b_dim = 0;  // how many of the last values of a row of b
  bool generated_only = false;
};
struct MlaAttrs {
  float scale = 0;
  int64_t n_heads = 0;
  int64_t rope_dim = 0;  // the rotated part of queries and of the cache
};
struct ByPhaseAttrs {};
// Fused ops. Operand order is given in op_table.cc.
struct LinearGroupAttrs {
  int32_t count = 0;
};
struct GluLinearAttrs {
  Activation act = Activation::kSilu;
};
struct NormRopeAttrs {
  NormAttrs norm;
  RopeAttrs rope;
};

using OpAttrs =
    std::variant<EmbedAttrs, NormAttrs, LinearAttrs, RopeAttrs, KvStoreAttrs, AttentionAttrs,
                 AddAttrs, GluAttrs, ActivateAttrs, ScaleAttrs, ClampAttrs, SoftcapAttrs,
                 GatherRowsAttrs, RouteAttrs, ExpertGluAttrs, ExpertLinearAttrs, MixExpertsAttrs,
                 HeadLinearAttrs, ConcatAttrs, MlaAttrs, ByPhaseAttrs, LinearGroupAttrs,
                 GluLinearAttrs, NormRopeAttrs>;

struct Op {
  OpKind kind = OpKind::kEmbed;
  std::string name;           // "blk.3.attn_q": what --dump, trace and errors call it
  std::vector<Value> inputs;  // fixed order per kind (op_table.cc); absent optional ones have id -1
  std::vector<Value> outputs;
  OpAttrs attrs;
  std::source_location where;  // the line of the architecture's function that emitted it
};

}  // namespace lucid
