// The list of sampling stages. The order of the default chain is the order of this array; to add a
// sampler, write its file in samplers/, declare its row in samplers/stage.h and list it here.
#include <array>
#include <vector>

#include "decode/sampler.h"
#include "decode/samplers/stage.h"

namespace lucid {
namespace {

constexpr std::array<const SamplerStage*, 8> kStages = {
    &kPenaltiesStage, &kLogitBiasStage, &kTopKStage,        &kTypicalPStage,
    &kTopPStage,      &kMinPStage,      &kTemperatureStage, &kGreedyStage,
};

}  // namespace

std::span<const SamplerStage* const> SamplerStages() {
  return kStages;
}

const SamplerStage* FindSamplerStage(std::string_view name) {
  for (const SamplerStage* stage : kStages) {
    if (stage->name == name) return stage;
  }
  return nullptr;
}

std::span<const SamplerInfo> AllSamplers() {
  static const std::vector<SamplerInfo> infos = [] {
    std::vector<SamplerInfo> list;
    for (const SamplerStage* stage : kStages) list.push_back({stage->name, stage->help});
    return list;
  }();
  return infos;
}

}  // namespace lucid
