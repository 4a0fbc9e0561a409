// What the engine's tests share.
#pragma once

#include <vector>

#include "engine/engine.h"

namespace lucid {

// Everything that a stream brings, to its end.
inline std::vector<TokenOutput> TakeAll(Stream stream) {
  std::vector<TokenOutput> outputs;
  while (std::optional<TokenOutput> out = stream.Next()) outputs.push_back(*std::move(out));
  return outputs;
}

}  // namespace lucid
