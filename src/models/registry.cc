// The list of architectures. Adding one: a file with its ArchSpec and a row here (CONTRIBUTING.md).
#include <array>

#include "models/arch.h"

namespace lucid {

// clang-format off
#define LUCID_ARCHS(X) \
  X(kLlama) \
  X(kMistral) \
  X(kQwen2) \
  X(kQwen3) \
  X(kGemma) \
  X(kGemma2) \
  X(kGemma3) \
  X(kPhi) \
  X(kPhi3) \
  X(kGranite) \
  X(kOlmo) \
  X(kOlmo2) \
  X(kSmollm3) \
  X(kGlm4) \
  X(kExaone4) \
  X(kCohere) \
  X(kCohere2) \
  X(kStablelm) \
  X(kStarcoder2) \
  X(kNemotron) \
  X(kGpt2) \
  X(kGptNeox) \
  X(kGptj) \
  X(kOpt) \
  X(kBloom) \
  X(kMpt) \
  X(kFalcon) \
  X(kMixtral) \
  X(kQwen2Moe) \
  X(kQwen3Moe) \
  X(kOlmoe) \
  X(kGraniteMoe) \
  X(kGlm4Moe) \
  X(kGptOss) \
  X(kDeepseek2) \
  X(kDeepseek3)
// clang-format on

#define LUCID_DECLARE_ARCH(spec) extern const ArchSpec spec;
LUCID_ARCHS(LUCID_DECLARE_ARCH)

namespace {

#define LUCID_ARCH_ROW(spec) &spec,
constexpr std::array kArchs = {LUCID_ARCHS(LUCID_ARCH_ROW)};

}  // namespace

std::span<const ArchSpec* const> AllArchs() {
  return kArchs;
}

Result<const ArchSpec*> FindArchByGguf(std::string_view architecture) {
  std::string known;
  for (const ArchSpec* arch : kArchs) {
    if (arch->gguf.empty()) continue;
    if (arch->gguf == architecture) return arch;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", arch->gguf);
  }
  return Err(ErrorCode::kUnsupported, "architecture '{}' is not supported; this build runs {}",
             architecture, known);
}

Result<const ArchSpec*> FindArchByHf(std::string_view architecture) {
  std::string known;
  for (const ArchSpec* arch : kArchs) {
    for (const std::string_view name : arch->hf) {
      if (name.empty()) continue;
      if (name == architecture) return arch;
      known += fmt::format("{}{}", known.empty() ? "" : ", ", name);
    }
  }
  return Err(ErrorCode::kUnsupported, "architecture '{}' is not supported; this build runs {}",
             architecture, known);
}

Plan BuildPlan(const ArchSpec& arch, const ModelConfig& config) {
  Builder b{std::string(arch.name)};
  Value x = b.Named(arch.embed(b, config), "embed");
  for (int layer = 0; layer < config.n_layers; ++layer) {
    x = b.Named(arch.block(b, config, layer, x), fmt::format("blk.{}.out", layer));
  }
  return b.Finish(arch.head(b, config, x));
}

}  // namespace lucid
