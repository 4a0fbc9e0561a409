// A file of distributions: what a model thought of every scored token of a text, to compare another
// model with (lucid perplexity --save-base, --kl-base).
//
// Little-endian. "LUCIDKL1"; int64 vocab, context, stride, windows, tokens; int32 text[tokens],
// padded to 8 bytes; then for each scored token a row: double log-probability of the token, float
// lowest, float step, uint16 level[vocab], padded to 8 bytes. log p(i) = lowest + step * level[i];
// level 0 stands for everything 16 or more below the largest.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/mmap_file.h"
#include "base/output_file.h"
#include "engine/text_scorer.h"

namespace lucid {

struct DistributionHeader {
  int64_t vocab = 0;
  WindowOptions windows;  // with the number that there are
  std::vector<TokenId> text;
};

class DistributionWriter {
 public:
  // kIo.
  static Result<DistributionWriter> Create(const std::string& path,
                                           const DistributionHeader& header);
  // `log_sum`: of exp(logits). Rows come in the order of the text.
  Status Add(std::span<const float> logits, double log_sum, TokenId token);
  // Without it nothing is left behind.
  Status Commit() { return file_.Commit(); }

 private:
  explicit DistributionWriter(OutputFile file) : file_(std::move(file)) {}
  OutputFile file_;
  std::vector<std::byte> row_;
};

struct SavedRow {
  double token_log_prob = 0;
  float lowest = 0, step = 0;
  std::span<const uint16_t> levels;  // [vocab]
  double LogProb(size_t i) const { return static_cast<double>(lowest) + double{step} * levels[i]; }
};

class DistributionReader {
 public:
  // kInvalidFile for a file that is none, cut off or contradicts itself.
  static Result<DistributionReader> Open(const std::string& path);
  const DistributionHeader& header() const { return header_; }
  // The next row; kInvalidFile behind the last.
  Result<SavedRow> Next();

 private:
  MmapFile file_;
  DistributionHeader header_;
  size_t at_ = 0;
};

}  // namespace lucid
