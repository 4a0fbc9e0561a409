// RopeSpec: how a layer turns positions into rotations, and the frequencies that follow from it.
//
// The one place that knows the scaling rules: config readers fill the struct, binding asks for the
// table, `lucid show` for the words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/op_enums.h"

namespace lucid {

// Rotary embedding (Su et al., RoFormer, 2021): frequencies theta^(-2i/rotary_dim), changed by a
// scaling rule.
struct RopeSpec {
  enum class Scaling : int8_t {
    kNone,
    kLinear,    // every frequency divided by `factor` (Chen et al. 2023, arXiv 2306.15595)
    kNtk,       // theta times factor^(d / (d - 2)): high frequencies stay, low ones are stretched
                // (bloc97, 2023; factor is what ExLlama and text-generation-webui call alpha)
    kDynamic,   // kNtk with a factor that grows with the sequence beyond original_context
    kYarn,      // linear below a ramp, kept above it (Peng et al. 2023, arXiv 2309.00071)
    kLlama3,    // by bands of wavelengths (Llama 3.1's published code)
    kLongRope,  // a divisor per frequency, of two lists (Ding et al. 2024, arXiv 2402.13753)
  };
  double theta = 10000.0;
  int64_t rotary_dim = 0;
  RopeStyle style = RopeStyle::kHalfSplit;
  Scaling scaling = Scaling::kNone;
  double factor = 1.0;
  double original_context = 8192;  // positions before stretching; all but kLinear and kNtk
  double attn_factor = 1.0;        // multiplies cos and sin
  double low_freq_factor = 1.0;    // kLlama3
  double high_freq_factor = 4.0;   // kLlama3
  double beta_fast = 32.0;         // kYarn: turns within original_context above which a frequency
  double beta_slow = 1.0;          // stays, and below which it is divided by factor
  double ext_factor = 1.0;         // kYarn: weight of the frequencies that stay
  bool truncate = true;            // kYarn: the ramp's ends are whole dimensions
  std::vector<float> short_factors = {}, long_factors = {};  // kLongRope: [rotary_dim / 2] divisors
  // What divides each frequency before that, [rotary_dim / 2]: how GGUF files keep the bands of
  // Llama 3.1 (rope_freqs.weight). Empty: nothing.
  std::vector<float> divisors = {};

  // Whether the frequencies depend on how long the sequence is.
  bool by_length() const { return scaling == Scaling::kDynamic || scaling == Scaling::kLongRope; }
  bool operator==(const RopeSpec&) const = default;
};

// "none", "linear", "ntk", "dynamic", "yarn", "llama3", "longrope".
std::string_view Name(RopeSpec::Scaling scaling);

// The rotary_dim / 2 frequencies in radians per position, scaling applied, for a sequence of
// `length` tokens (which matters only where by_length).
std::vector<float> InverseFrequencies(const RopeSpec& spec, int64_t length);

// What YaRN multiplies cos and sin with when the context grows by `factor` (arXiv 2309.00071,
// equation 22; `mscale` scales its logarithm).
double YarnAttnFactor(double factor, double mscale = 1.0);
// The same for a spec of kYarn: 1 where no frequency stays (ext_factor 0), which is linear scaling,
// as llama.cpp has it.
double YarnAttnFactor(const RopeSpec& spec);

// One line for people: "theta 10000, 64 of 128 dimensions, yarn by 4 from 32768"; what differs from
// the paper's constants follows.
std::string Describe(const RopeSpec& spec, int64_t head_dim);

// ALiBi (Press et al. 2021, arXiv 2108.12409): head h adds -slope[h] * distance to its scores. The
// slopes are powers of 2^(-max_bias / n) for the largest power of two n <= n_heads, and odd powers
// of its root for the heads beyond n (the paper's published code); all times `factor`.
std::vector<float> AlibiSlopes(int64_t n_heads, double max_bias, double factor);

}  // namespace lucid
