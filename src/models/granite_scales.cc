#include "models/granite_scales.h"

namespace lucid {

void ReadGraniteScales(GgufHparams& h, ModelConfig& c) {
  c.embed_scale = h.FloatOr("embedding_scale", 1.0);
  c.residual_scale = h.FloatOr("residual_scale", 1.0);
  c.attn_scale = h.FloatOr("attention.scale", c.attn_scale);
  c.logit_scale = 1.0 / h.PositiveOr("logit_scale", 1.0);
}

void ReadGraniteScales(HfConfigReader& h, ModelConfig& c) {
  c.embed_scale = h.Float("embedding_multiplier", 1.0);
  c.residual_scale = h.Float("residual_multiplier", 1.0);
  c.attn_scale = h.Float("attention_multiplier", 1.0);
  c.logit_scale = 1.0 / h.Positive("logits_scaling", 1.0);
}

void WriteGraniteScales(const ModelConfig& c, GgufKeyWriter& k) {
  k.Float("embedding_scale", c.embed_scale);
  k.Float("residual_scale", c.residual_scale);
  k.Float("attention.scale", c.attn_scale);
  k.Float("logit_scale", 1.0 / c.logit_scale);
}

}  // namespace lucid
