// Reading hyperparameters: small readers that remember the first error, so an architecture's reader
// is a list of keys.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "format/gguf.h"
#include "models/model_config.h"

namespace lucid {

// Keys of a GGUF file under its architecture's prefix: Int("block_count") reads
// "llama.block_count". Notes which keys were asked for, since status() refuses those of the format
// that change results and that the reader does not know.
class GgufHparams {
 public:
  GgufHparams(const GgufFile& file, std::string_view prefix);

  int64_t Int(std::string_view key);  // required
  int64_t IntOr(std::string_view key, int64_t absent);
  double FloatOr(std::string_view key, double absent);
  double Float(std::string_view key);  // required
  double PositiveOr(std::string_view key, double absent);
  std::string StringOr(std::string_view key, std::string_view absent);
  bool BoolOr(std::string_view key, bool absent);
  // The `n` numbers of a float32 tensor; empty if the file lacks it.
  std::vector<float> Floats(std::string_view tensor, int64_t n);
  // Whether any layer has a tensor of one of these names ("attn_q.bias"). What an architecture may
  // or may not have is decided so: a layer that then lacks its own is found when weights are
  // loaded.
  bool LayersHave(std::initializer_list<std::string_view> names) const;
  bool Has(std::string_view key) const;
  const GgufFile& file() const { return file_; }
  const GgufValue* Get(std::string_view key) const;  // nullptr where absent
  void Fail(Error error);
  // The first error; else kUnsupported for a key that nothing has asked for, unless it says what a
  // model without it does.
  Status status() const;

 private:
  std::string Key(std::string_view key) const { return prefix_ + "." + std::string(key); }
  // As above, and notes that the reader knows the key.
  std::string Asked(std::string_view key) const;
  template <typename T>
  auto Keep(Result<T> value, T fallback);

  const GgufFile& file_;
  std::string prefix_;
  std::optional<Error> error_;
  mutable std::set<std::string, std::less<>> asked_;  // without the prefix
  std::set<std::string_view> layer_tensors_;          // of any layer, without "blk.<i>."
};

// What GGUF files share: sizes, epsilon, rope with its scaling; biases, learned positions and tied
// embeddings by the tensors that exist, since no key speaks of them: what an architecture always
// has is for its own reader to say. A norm of kind kLayer reads layer_norm_epsilon.
ModelConfig ReadGgufCommon(GgufHparams& h, std::string_view arch, RopeStyle style,
                           NormKind norm = NormKind::kRms);
// The rotations of the layers that see all positions: rope.* and the tensors of frequencies.
RopeSpec ReadGgufRope(GgufHparams& h, const ModelConfig& c, RopeStyle style);
// Which layers have a window: attention.sliding_window_pattern, by layer or as the n of "every n-th
// layer has none"; `absent` is that n where the file does not say.
std::vector<bool> ReadGgufSlidingLayers(GgufHparams& h, const ModelConfig& c, int64_t absent);

// Windows of architectures without a pattern of their own: every layer has
// attention.sliding_window, unless the file has a pattern.
void ReadGgufWindows(GgufHparams& h, ModelConfig& c);

// Keys of a config.json. An absent or null key gives the fallback: the default of the Hugging Face
// config class.
class HfConfigReader {
 public:
  // `where`: of an object within config.json, its key, for errors.
  explicit HfConfigReader(const nlohmann::ordered_json& config, std::string where = {})
      : config_(config), where_(std::move(where)) {}

  int64_t Int(const char* key, int64_t absent);
  double Float(const char* key, double absent);
  double Positive(const char* key, double absent);
  // Where null means none: 0 for null, the default only for a key that is not there.
  int64_t IntOrNull(const char* key, int64_t absent);
  double FloatOrNull(const char* key, double absent);
  bool Bool(const char* key, bool absent);
  std::string String(const char* key, std::string_view absent);
  bool Has(const char* key) const;  // present and not null
  // kUnsupported unless the key is absent, null or has this value, which is all that an
  // architecture can do.
  void Only(const char* key, bool value);
  void Only(const char* key, double value);
  void Only(const char* key, const char* value);
  // The first of the names that is there, else the first.
  const char* Pick(std::initializer_list<const char*> names) const;
  const nlohmann::ordered_json& json() const { return config_; }
  std::string Where(const char* key) const;  // "config.json: rope_scaling.factor"
  void Fail(Error error);
  Status status() const;

 private:
  void OnlyJson(const char* key, const nlohmann::ordered_json& value);

  const nlohmann::ordered_json& config_;
  std::string where_;
  std::optional<Error> error_;
};

// Sizes and flags, under whichever of their names a family's configs use (hidden_size, n_embd,
// d_model, ...). `layers` is left to the caller. Refuses quantization_config unless the caller
// reads it.
struct HfDefaults {
  // An intermediate_size of 0 is four times hidden_size.
  int64_t hidden_size = 4096, intermediate_size = 11008, num_hidden_layers = 32,
          num_attention_heads = 32;
  int64_t num_key_value_heads = 0;  // 0: as many as heads
  int64_t head_dim = 0;             // 0: hidden_size / heads
  int64_t vocab_size = 32000, max_position_embeddings = 2048;
  NormKind norm = NormKind::kRms;
  const char* eps_key = "rms_norm_eps";
  double norm_eps = 1e-6;
  bool tie_word_embeddings = false;
  const char* act_key = "hidden_act";
  std::string_view act = "silu";
  bool reads_quantization = false;
};
ModelConfig ReadHfCommon(HfConfigReader& h, std::string_view arch, const HfDefaults& defaults);

// Rope from rope_parameters (transformers 5; `group` picks "full_attention" or "sliding_attention"
// where it is keyed by layer type) or rope_theta, partial_rotary_factor and rope_scaling (before).
struct HfRopeDefaults {
  double theta = 10000.0;
  double partial = 1.0;         // of head_dim
  int64_t rotary_dim = 0;       // instead, where above 0
  double original_context = 0;  // 0: max_position_embeddings
  RopeStyle style = RopeStyle::kHalfSplit;
  const char* group = nullptr;
};
RopeSpec ReadHfRope(HfConfigReader& h, const ModelConfig& c, const HfRopeDefaults& defaults = {});

// The same rope and window for every layer.
void SetLayers(ModelConfig& c, const RopeSpec& rope, int64_t window = 0);
// No layer rotates.
void SetNoRope(ModelConfig& c);
// Which layers have a window: layer_types, where the config names them.
std::optional<std::vector<bool>> ReadHfSlidingLayers(HfConfigReader& h, const ModelConfig& c);
// Qwen's switch: use_sliding_window puts sliding_window on the layers from max_window_layers on.
void SetQwenWindows(HfConfigReader& h, ModelConfig& c);

}  // namespace lucid
