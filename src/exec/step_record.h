// StepRecorder: the facts of executed steps that the invariants of the source texts speak of, as
// plain numbers: sizes of what ops wrote, which rows of the cache changed, what was rotated, which
// keys each query saw. engine/invariants.h judges them.
//
// Everything is read from the step's own buffers and from the cache; where an op's result is held
// against a formula, that is the reference kernel's (kernels/reference), run on the op's own
// inputs.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "exec/attention_tap.h"
#include "exec/observer.h"

namespace lucid {

// A value that an op of the residual stream wrote, or a part of an attention op: its rows (tokens)
// and what a row holds.
struct RecordedShape {
  std::string op;
  int32_t layer = -1;  // -1: outside of the layers
  int64_t rows = 0;
  int64_t width = 0;
};

// Queries, new keys and new values of one layer. Of a latent cache, keys are the stored vectors and
// there are no values.
struct RecordedHeads {
  std::string op;  // the attention's
  int32_t layer = 0;
  int64_t n_q = 0, n_kv = 0;
  int64_t q_dim = 0, k_dim = 0, v_dim = 0;  // of a head; v_dim 0: latent
  int64_t rows = 0;
  int64_t q_numbers = 0, k_numbers = 0, v_numbers = 0;  // that the buffers have
};

enum class RotatedPart : int8_t { kQuery, kKey, kValue, kNothing };

struct RecordedRotation {
  std::string op;
  int32_t layer = 0;
  RotatedPart part = RotatedPart::kNothing;  // what its result becomes
  // Greatest difference from the reference formula, over the greatest of its results.
  double error = 0;
  bool moved = false;  // some row behind position 0 came out different from how it went in
};

// New values of a layer: what the cache then holds, beside what the layer's values were.
struct RecordedValues {
  std::string op;
  int32_t layer = 0;
  double error = 0;  // greatest difference over the greatest value
};

// What the cache of one layer holds of one sequence after a step: a hash of each place's bytes, of
// all heads; 0 where a sliding window has let the place go.
struct RecordedCache {
  int32_t layer = 0;
  int32_t sequence = 0;
  std::vector<uint64_t> places;
};

// What attention gave, beside the reference's sum over the keys that it sees.
struct RecordedOutput {
  std::string op;
  int32_t layer = 0;
  double error = 0;  // root of mean square, of the difference over that of the reference's
};

struct RecordedSequence {
  int64_t start = 0;  // position of its first token in this step
  int64_t count = 0;
  bool generated = false;
};

struct StepRecord {
  std::vector<RecordedSequence> sequences;
  std::vector<RecordedShape> residual;
  std::vector<RecordedHeads> heads;
  std::vector<RecordedRotation> rotations;
  std::vector<RecordedValues> values;
  std::vector<RecordedCache> cache;
  std::vector<RecordedOutput> outputs;
  std::vector<AttentionMap> attention;

  bool generated() const { return !sequences.empty() && sequences.front().generated; }
};

// A record for every step that it sees. Reads all weights of attention: for short prompts.
class StepRecorder final : public Observer {
 public:
  void AfterOp(const ObservedOp& observed) override;
  const std::vector<StepRecord>& steps() const { return steps_; }

 private:
  void Prepare(const Plan& plan);
  void Begin(const StepView& step);
  void RecordResidual(const ObservedOp& observed);
  void RecordStore(const ObservedOp& observed);
  void RecordAttention(const ObservedOp& observed);
  void RecordRotation(const ObservedOp& observed);
  void RecordCaches(const StepView& step);

  const Plan* plan_ = nullptr;
  std::set<int32_t> residual_;                    // values of the residual stream, by id
  std::map<int32_t, RotatedPart> rotated_;        // what a rotation's result becomes, by value id
  std::map<int32_t, const KvStoreArgs*> stores_;  // of the step, by KV layer
  std::vector<StepRecord> steps_;
};

}  // namespace lucid
