// The numbers of a trace as people read them, for the text and the page of `lucid trace`.
#pragma once

#include <string>
#include <vector>

#include "engine/shape_flow.h"
#include "engine/values.h"

namespace lucid::cli {

// "prefill", "decode".
const char* PhaseWord(size_t phase);
// "2 sequences x 10 tokens, 10 keys each".
std::string PhaseSizes(const ShapeFlow& flow, size_t phase);
// Of weights and cache, each byte once.
double MemoryBytes(const Cost& cost);
// "671 MFLOP, 33.6 MB"; "" of a step that costs neither, "-" where the phase does not run it.
std::string CostWords(const FlowStep& step, size_t phase);
// "token_embd BF16 [128256, 4096]".
std::string WeightWords(const FlowWeight& weight);

// "[20, 64]  min -1.2  max 3.4  mean 0.01  rms 0.5", and a line for each row that is kept: "row 0
// 0.1 0.2 ... 0.9".
std::vector<std::string> ValueLines(const ValueSummary& summary);
// The weights of the first sequence's queries in one head, a row a line, of at most so many rows
// and keys.
std::vector<std::string> AttentionLines(const AttentionMap& map, int64_t head);

}  // namespace lucid::cli
