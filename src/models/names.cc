#include "models/names.h"

namespace lucid {

SlotName SplitLayer(std::string_view slot) {
  constexpr std::string_view kPrefix = "blk.";
  const size_t end = slot.starts_with(kPrefix) ? slot.find('.', kPrefix.size()) : slot.npos;
  if (end == slot.npos) return {std::string(slot), ""};
  return {"blk.{}" + std::string(slot.substr(end)),
          std::string(slot.substr(kPrefix.size(), end - kPrefix.size()))};
}

std::string WithLayer(std::string_view pattern, std::string_view layer) {
  std::string name(pattern);
  if (const size_t at = name.find("{}"); at != std::string::npos) name.replace(at, 2, layer);
  return name;
}

}  // namespace lucid
