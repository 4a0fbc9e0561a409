// The list of architectures. Adding one: a file with its ArchSpec and a row here (CONTRIBUTING.md).
#include <array>

#include "models/arch.h"

namespace lucid {

extern const ArchSpec kLlama;
extern const ArchSpec kQwen2;
extern const ArchSpec kGemma3;
extern const ArchSpec kMixtral;

namespace {

constexpr std::array<const ArchSpec*, 4> kArchs = {&kLlama, &kQwen2, &kGemma3, &kMixtral};

std::string KnownNames(std::string_view ArchSpec::*member) {
  std::string names;
  for (const ArchSpec* arch : kArchs) {
    if ((arch->*member).empty()) continue;
    names += (names.empty() ? "" : ", ") + std::string(arch->*member);
  }
  return names;
}

}  // namespace

std::span<const ArchSpec* const> AllArchs() {
  return kArchs;
}

Result<const ArchSpec*> FindArchByGguf(std::string_view architecture) {
  for (const ArchSpec* arch : kArchs) {
    if (!architecture.empty() && arch->gguf == architecture) return arch;
  }
  return Err(ErrorCode::kUnsupported, "architecture '{}' is not supported; this build runs {}",
             architecture, KnownNames(&ArchSpec::gguf));
}

Result<const ArchSpec*> FindArchByHf(std::string_view architecture) {
  for (const ArchSpec* arch : kArchs) {
    if (arch->hf == architecture) return arch;
  }
  return Err(ErrorCode::kUnsupported, "architecture '{}' is not supported; this build runs {}",
             architecture, KnownNames(&ArchSpec::hf));
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
