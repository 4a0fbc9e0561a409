// The list of architectures. Adding one: a file with its ArchSpec and a row here (CONTRIBUTING.md).
#include <array>

#include "models/arch.h"

namespace lucid {

extern const ArchSpec kLlama;
extern const ArchSpec kQwen2;
extern const ArchSpec kGemma3;
extern const ArchSpec kMixtral;
extern const ArchSpec kQwen2Moe;
extern const ArchSpec kQwen3Moe;
extern const ArchSpec kOlmoe;
extern const ArchSpec kGraniteMoe;
extern const ArchSpec kGlm4Moe;
extern const ArchSpec kGptOss;
extern const ArchSpec kDeepseek2;
extern const ArchSpec kDeepseek3;

namespace {

constexpr std::array kArchs = {&kLlama,    &kQwen2,    &kGemma3,    &kMixtral,
                               &kQwen2Moe, &kQwen3Moe, &kOlmoe,     &kGraniteMoe,
                               &kGlm4Moe,  &kGptOss,   &kDeepseek2, &kDeepseek3};

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
