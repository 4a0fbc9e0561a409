#include "cli/bench_report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>

#include "account/kernel_use.h"
#include "cli/build_commit.h"
#include "cli/command.h"
#include "cli/engine_flags.h"
#include "cli/limits_report.h"
#include "engine/version.h"

namespace lucid::cli {
namespace {

using Json = nlohmann::ordered_json;

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

// Of a sample; 0 for fewer than two values.
double StandardDeviation(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const double mean = Mean(values);
  double sum = 0;
  for (const double v : values) sum += (v - mean) * (v - mean);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::vector<double> Rates(const BenchRow& row) {
  std::vector<double> rates;
  for (const BenchSample& sample : row.samples) rates.push_back(sample.rate());
  return rates;
}

// "135M", "7.62B"
std::string Params(int64_t n) {
  const auto value = static_cast<double>(n);
  return n >= 1'000'000'000 ? fmt::format("{:.2f}B", value / 1e9)
                            : fmt::format("{:.2f}M", value / 1e6);
}

// "pp512", "tg128 @ d4096": llama-bench's names.
std::string TestName(const BenchTest& test) {
  std::string name =
      test.n_prompt > 0 ? fmt::format("pp{}", test.n_prompt) : fmt::format("tg{}", test.n_gen);
  if (test.n_depth > 0) name += fmt::format(" @ d{}", test.n_depth);
  return name;
}

// "2", or "2/4": of steps of one token and of others.
std::string ThreadsName(const BenchRow& row) {
  return row.n_threads == row.n_threads_batch
             ? fmt::format("{}", row.n_threads)
             : fmt::format("{}/{}", row.n_threads, row.n_threads_batch);
}

std::string KvName(const BenchRow& row) {
  return row.type_k == row.type_v ? row.type_k : row.type_k + "/" + row.type_v;
}

Json ToJson(const BenchRow& row) {
  std::vector<double> nanoseconds;
  std::vector<int64_t> samples_ns;
  for (const BenchSample& sample : row.samples) {
    nanoseconds.push_back(sample.seconds * 1e9);
    samples_ns.push_back(std::llround(sample.seconds * 1e9));
  }
  const std::vector<double> rates = Rates(row);
  return {{"build_commit", LUCID_BUILD_COMMIT},
          {"build_version", Version()},
          {"cpu_info", CpuModelName()},
          {"isa", row.isa},
          {"numerics", row.numerics},
          {"model_filename", row.model_filename},
          {"model_type", row.model_type},
          {"model_size", row.model_size},
          {"model_n_params", row.model_n_params},
          {"n_batch", row.n_batch},
          {"n_threads", row.n_threads},
          {"n_threads_batch", row.n_threads_batch},
          {"type_k", row.type_k},
          {"type_v", row.type_v},
          {"kv_block_size", row.kv_block_size},
          {"n_prompt", row.test.n_prompt},
          {"n_gen", row.test.n_gen},
          {"n_depth", row.test.n_depth},
          {"n_seqs", row.test.n_seqs},
          {"test_time", row.test_time},
          {"avg_ns", std::llround(Mean(nanoseconds))},
          {"stddev_ns", std::llround(StandardDeviation(nanoseconds))},
          {"avg_ts", Mean(rates)},
          {"stddev_ts", StandardDeviation(rates)},
          {"median_ts", Median(rates)},
          {"samples_ns", samples_ns},
          {"samples_ts", rates},
          {"limit_ts", row.limit.tokens_per_second},
          {"limit_fraction", Median(rates) / row.limit.tokens_per_second},
          {"limit_by", row.limit.by_memory ? "memory" : "arithmetic"},
          {"limit_weight_bytes", row.limit.needs.weight_bytes},
          {"limit_kv_bytes", row.limit.needs.kv_bytes},
          {"limit_macs", row.limit.needs.macs},
          {"read_bytes_per_second", row.read.bytes_per_second},
          {"peak_macs_per_second", row.arithmetic.macs_per_second},
          {"peak_unit", row.arithmetic.unit},
          {"limit_assumes", row.activations},
          {"limit_disturbance", row.disturbance}};
}

std::string Dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

// Nothing, or why the limit may be too low.
std::string DisturbanceText(const BenchRow& row) {
  if (row.disturbance <= kMostDisturbance) return "";
  return fmt::format("; measured while {:.0f} % of the CPU time went elsewhere",
                     row.disturbance * 100);
}

// "99.1 MB + 12.6 MB of cache at 49.8 GB/s", or "68.9 GMAC at 487 GMAC/s (int8 avx512vnni,
// activations of 8 bits)": what a step, or a whole prompt, needs of what bounds it.
std::string LimitInputs(const BenchRow& row) {
  const StepNeeds& needs = row.limit.needs;
  if (row.limit.by_memory) {
    const std::string cache =
        needs.kv_bytes == 0
            ? ""
            : fmt::format(" + {} of cache", DecimalBytes(static_cast<double>(needs.kv_bytes)));
    return fmt::format("{}{} at {:.1f} GB/s", DecimalBytes(static_cast<double>(needs.weight_bytes)),
                       cache, row.read.bytes_per_second / 1e9) +
           DisturbanceText(row);
  }
  return fmt::format("{:.3g} GMAC at {:.0f} GMAC/s ({}, {})", static_cast<double>(needs.macs) / 1e9,
                     row.arithmetic.macs_per_second / 1e9, row.arithmetic.unit, row.activations) +
         DisturbanceText(row);
}

void PrintMarkdown(const BenchRow& row, bool first) {
  if (first) {
    fmt::print(
        "| model | size | params | isa | numerics | threads | batch | kv | seqs | test | t/s | "
        "median | limit | of limit | limit follows from |\n"
        "| --- | ---: | ---: | --- | --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | "
        "---: | --- |\n");
  }
  const std::vector<double> rates = Rates(row);
  fmt::print(
      "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {:.2f} ± {:.2f} | {:.2f} | {:.2f} | "
      "{:.1f} % | {} |\n",
      row.model_type, FormatBytes(row.model_size), Params(row.model_n_params), row.isa,
      row.numerics, ThreadsName(row), row.n_batch, KvName(row), row.test.n_seqs, TestName(row.test),
      Mean(rates), StandardDeviation(rates), Median(rates), row.limit.tokens_per_second,
      Median(rates) / row.limit.tokens_per_second * 100, LimitInputs(row));
}

// Every field of the JSON but the samples; text in quotes, as llama-bench does.
void PrintCsv(const BenchRow& row, bool first) {
  Json json = ToJson(row);
  json.erase("samples_ns");
  json.erase("samples_ts");
  std::string names, values;
  for (const auto& [name, value] : json.items()) {
    std::string text = value.is_string() ? value.get<std::string>() : Dump(value, -1);
    for (size_t at = text.find('"'); at != std::string::npos; at = text.find('"', at + 2)) {
      text.insert(at, 1, '"');
    }
    names += (names.empty() ? "" : ",") + name;
    values += (values.empty() ? "\"" : ",\"") + text + "\"";
  }
  if (first) fmt::print("{}\n", names);
  fmt::print("{}\n", values);
}

// "llama Q4_K": the architecture, and the type of most of its bytes.
std::string ModelType(const Engine& engine) {
  std::map<DType, uint64_t> bytes;
  for (const TensorEntry& entry : engine.model().checkpoint->tensors()) {
    bytes[entry.tensor.dtype] += static_cast<uint64_t>(entry.tensor.bytes());
  }
  const auto most = std::max_element(
      bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  std::string type = engine.model().config.arch;
  if (most != bytes.end()) type += fmt::format(" {}", Name(most->first));
  return type;
}

// The first step of a test that brings tokens to the cache, or the whole prompt of one as one step.
Workload FirstStep(const Engine& engine, const BenchTest& test) {
  Workload work;
  // A generation's first token needs a prompt of one token at least.
  const SequenceSpan span = test.n_prompt > 0 ? SequenceSpan{test.n_depth, test.n_prompt}
                                              : SequenceSpan{std::max<int64_t>(test.n_depth, 1), 1};
  work.sequences.assign(static_cast<size_t>(test.n_seqs), span);
  work.outputs = test.n_seqs;
  work.k_type = engine.config().cache_type_k;
  work.v_type = engine.config().cache_type_v;
  work.kv_block_size = engine.kv_layout().block_size();
  work.weight_dtypes = engine.model().weights.dtypes();
  return work;
}

}  // namespace

BenchRow DescribeEngine(const Engine& engine, const std::string& model_name) {
  BenchRow row;
  row.model_filename = model_name;
  row.model_type = ModelType(engine);
  for (const TensorEntry& entry : engine.model().checkpoint->tensors()) {
    row.model_size += entry.tensor.bytes();
    row.model_n_params += entry.tensor.elements();
  }
  row.isa = engine.runner().isa();
  row.numerics = engine.config().backend == BackendKind::kReference
                     ? "reference"
                     : Name(engine.runner().numerics());
  row.n_threads = engine.runner().n_threads();
  row.n_threads_batch = engine.runner().n_threads(2);
  row.n_batch = engine.config().batch;
  row.kv_block_size = engine.kv_layout().block_size();
  row.type_k = Name(engine.config().cache_type_k);
  row.type_v = Name(engine.config().cache_type_v);
  return row;
}

Status FindLimit(const Engine& engine, PeakSource& peaks, BenchRow& row) {
  const Plan& plan = engine.runner().plan();
  const Workload work = FirstStep(engine, row.test);
  const StepNeeds needs = NeedsOf(plan, work);
  const int threads = engine.runner().n_threads(work.sizes().tokens);
  LUCID_ASSIGN_OR_RETURN(row.read, peaks.Read(needs.weight_bytes + needs.kv_bytes, threads));
  const Factors factors =
      FactorsOf(engine.runner(), engine.model().weights, work, row.test.n_prompt > 0);
  row.arithmetic = peaks.Arithmetic(threads, factors);
  // Activations have a second plane of 8 bits only where their error budget asks for it, which may
  // be nowhere.
  row.activations = fmt::format("activations of {} bits", factors == Factors::kInt8       ? 8
                                                          : factors == Factors::kBfloat16 ? 16
                                                                                          : 32);
  row.disturbance = peaks.disturbance();
  const MachineSpeed speed{row.read.bytes_per_second, row.arithmetic.macs_per_second};
  row.limit = row.test.n_prompt > 0 ? PromptLimit(plan, work, speed)
                                    : GenerationLimit(plan, work, row.test.n_gen, speed);
  return {};
}

std::string KernelTableText(const Engine& engine) {
  std::string text =
      "| matrix | type | rows x columns | layers | kernel | refused by |\n"
      "| --- | --- | ---: | ---: | --- | --- |\n";
  for (const MatrixKernel& row : MatrixKernels(engine.runner(), engine.model().weights)) {
    text += fmt::format("| {} | {} | {} x {} | {} | {} | {} |\n", row.name, row.dtype, row.n_out,
                        row.n_in, row.count, row.kernel, row.refused);
  }
  text += "\n| op | in a step | kernel | refused by |\n| --- | ---: | --- | --- |\n";
  for (const OpKernel& row : OpKernels(engine.runner())) {
    text += fmt::format("| {} | {} | {} | {} |\n", row.op, row.count, row.kernel, row.refused);
  }
  return text;
}

std::string UtcNow() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

void BenchPrinter::Print(const BenchRow& row) {
  const bool first = n_rows_++ == 0;
  switch (format_) {
    case BenchFormat::kMarkdown:
      PrintMarkdown(row, first);
      break;
    case BenchFormat::kCsv:
      PrintCsv(row, first);
      break;
    case BenchFormat::kJson:
      fmt::print("{}{}", first ? "[\n" : ",\n", Dump(ToJson(row), 2));
      break;
  }
  std::fflush(stdout);
}

void BenchPrinter::Finish() {
  if (format_ == BenchFormat::kJson) fmt::print("{}\n]\n", n_rows_ == 0 ? "[" : "");
}

}  // namespace lucid::cli
