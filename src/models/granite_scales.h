// The factors of Granite models, on embedding, residual branches, scores and logits, as both kinds
// of files have them.
#pragma once

#include "models/config_readers.h"
#include "models/gguf_key_writer.h"

namespace lucid {

void ReadGraniteScales(GgufHparams& h, ModelConfig& c);
void ReadGraniteScales(HfConfigReader& h, ModelConfig& c);
void WriteGraniteScales(const ModelConfig& c, GgufKeyWriter& keys);

}  // namespace lucid
