// What fills the page of every topic; registry.cc lists them. Each reads the subject and writes to
// the page; errors are those of the subject.
#pragma once

#include "explain/numbers.h"
#include "explain/page.h"
#include "explain/subject.h"

namespace lucid::topics {

#define LUCID_TOPIC(name) Status name(Subject& subject, Page& page)

LUCID_TOPIC(Overview);
LUCID_TOPIC(TokenBirth);
LUCID_TOPIC(Tokens);
LUCID_TOPIC(Embedding);
LUCID_TOPIC(Logits);
LUCID_TOPIC(Norm);
LUCID_TOPIC(Qkv);
LUCID_TOPIC(Rope);
LUCID_TOPIC(PositionScaling);
LUCID_TOPIC(Alibi);
LUCID_TOPIC(Attention);
LUCID_TOPIC(Mask);
LUCID_TOPIC(Softmax);
LUCID_TOPIC(Gqa);
LUCID_TOPIC(Mla);
LUCID_TOPIC(OutProjection);
LUCID_TOPIC(Ffn);
LUCID_TOPIC(Moe);
LUCID_TOPIC(Graph);
LUCID_TOPIC(Sampling);
LUCID_TOPIC(Penalties);
LUCID_TOPIC(Perplexity);
LUCID_TOPIC(KvCache);
LUCID_TOPIC(PrefillDecode);
LUCID_TOPIC(Flops);
LUCID_TOPIC(Bandwidth);
LUCID_TOPIC(Roofline);
LUCID_TOPIC(Quantization);
LUCID_TOPIC(Batching);
LUCID_TOPIC(PagedAttention);
LUCID_TOPIC(FlashAttention);
LUCID_TOPIC(KvCompression);
LUCID_TOPIC(Speculative);
LUCID_TOPIC(Distillation);
LUCID_TOPIC(SelfTest);
LUCID_TOPIC(Papers);

#undef LUCID_TOPIC

}  // namespace lucid::topics
