// What lucid bench prints: a Markdown table, CSV, or JSON with the field names of llama-bench
// (avg_ts, stddev_ts, ...) and ours beside them; each row with the limit of the machine for that
// test, and what the limit follows from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "account/peak_source.h"
#include "cli/bench_measure.h"

namespace lucid::cli {

// A row: what ran, where, and how fast.
struct BenchRow {
  std::string model_filename, model_type;
  int64_t model_size = 0;  // bytes of the tensors
  int64_t model_n_params = 0;
  std::string isa;          // the best of the kernels
  std::string numerics;     // how activations are rounded on their way into a matrix
  int n_threads = 0;        // of steps of one token
  int n_threads_batch = 0;  // of all others
  int64_t n_batch = 0;
  int64_t kv_block_size = 0;
  std::string type_k, type_v;
  BenchTest test;
  std::string test_time;  // when it began, UTC, as 2026-01-31T12:00:00Z
  std::vector<BenchSample> samples;

  SpeedLimit limit;
  ReadSpeed read;             // that the limit assumes
  ArithmeticPeak arithmetic;  // likewise
  std::string activations;    // and what it takes products of: "activations of 8 bits"
  double disturbance = 0;     // while that was measured, see account/machine.h
};

// Model, kernels, threads and cache of a loaded engine.
BenchRow DescribeEngine(const Engine& engine, const std::string& model_name);
std::string UtcNow();
// The fastest that this machine could run row.test; errors as PeakSource::Read.
Status FindLimit(const Engine& engine, PeakSource& peaks, BenchRow& row);
// Which kernel runs which matrix, and which every other op, as two tables.
std::string KernelTableText(const Engine& engine);

enum class BenchFormat { kMarkdown, kJson, kCsv };

// Prints to standard output, row by row as they come.
class BenchPrinter {
 public:
  explicit BenchPrinter(BenchFormat format) : format_(format) {}
  void Print(const BenchRow& row);
  void Finish();

 private:
  BenchFormat format_;
  int64_t n_rows_ = 0;
};

}  // namespace lucid::cli
