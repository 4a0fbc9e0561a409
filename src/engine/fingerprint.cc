#include "engine/fingerprint.h"

#include <xxhash.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <type_traits>

#include "plan/print.h"

namespace lucid {
namespace {

// Of each tensor: enough to tell weights apart, little enough to read at every start.
constexpr size_t kSampleBytes = 256;

class Hash {
 public:
  Hash() : state_(XXH3_createState()) { XXH3_64bits_reset(state_); }
  ~Hash() { XXH3_freeState(state_); }
  Hash(const Hash&) = delete;
  Hash& operator=(const Hash&) = delete;

  void Bytes(const void* data, size_t n) { XXH3_64bits_update(state_, data, n); }
  template <typename T>
  void Number(T value) {
    static_assert(std::is_arithmetic_v<T>);
    Bytes(&value, sizeof(value));
  }
  void Text(std::string_view text) {
    Number(text.size());
    Bytes(text.data(), text.size());
  }
  uint64_t Value() const { return XXH3_64bits_digest(state_); }

 private:
  XXH3_state_t* state_;
};

}  // namespace

uint64_t CacheFingerprint(const Model& model, const Runner& runner) {
  Hash hash;
  hash.Number(kNumericsVersion);
  hash.Number(static_cast<int32_t>(runner.numerics()));
  hash.Text(PrintPlan(model.plan));  // every attribute: rope, windows, scales
  for (const TensorEntry& entry : model.checkpoint->tensors()) {
    const Tensor& tensor = entry.tensor;
    hash.Text(entry.name);
    hash.Number(static_cast<int32_t>(tensor.dtype));
    for (int i = 0; i < tensor.rank; ++i) hash.Number(tensor.shape[static_cast<size_t>(i)]);
    const auto bytes = static_cast<size_t>(tensor.bytes());
    hash.Bytes(tensor.data, std::min(bytes, kSampleBytes));
  }
  for (const BoundOp& op : runner.bound().ops) hash.Text(op.kernel->name);
  const KvOptions& kv = runner.kv().layout().options();
  hash.Number(static_cast<int32_t>(kv.k_type));
  hash.Number(static_cast<int32_t>(kv.v_type));
  hash.Number(kv.block_size);
  return hash.Value();
}

}  // namespace lucid
