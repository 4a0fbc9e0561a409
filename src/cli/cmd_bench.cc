// lucid bench: tokens per second of prompts and of generation, in llama-bench's terms.
//
//   lucid bench -m MODEL -p 512 -n 128 -d 0,4096 --batch 1,8,32 -o json
//
// bench_measure.h says what is on the clock, bench_report.h what is printed.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "cli/bench_measure.h"
#include "cli/bench_report.h"
#include "cli/command.h"
#include "cli/engine_flags.h"
#include "cli/model_flags.h"

namespace lucid::cli {
namespace {

struct BenchFlags {
  ModelFlags model;  // its lists are below
  EngineFlags engine;
  std::vector<int> threads = {0};
  std::vector<int64_t> prompts = {512}, gens = {128}, depths = {0}, batches = {512};
  std::vector<std::string> kv = {"f16"}, kv_k = {""}, kv_v = {""};  // "": as kv
  std::vector<int32_t> sequences = {1};
  int repetitions = 5;
  bool no_warmup = false, verbose = false;
  std::string format = "md";
};

std::vector<BenchTest> Tests(const BenchFlags& flags) {
  std::vector<BenchTest> tests;
  for (const int64_t depth : flags.depths) {
    for (const int32_t n_seqs : flags.sequences) {
      for (const int64_t n : flags.prompts) {
        if (n > 0) tests.push_back({.n_prompt = n, .n_depth = depth, .n_seqs = n_seqs});
      }
      for (const int64_t n : flags.gens) {
        if (n > 0) tests.push_back({.n_gen = n, .n_depth = depth, .n_seqs = n_seqs});
      }
    }
  }
  return tests;
}

// Measures all tests on one engine.
Status RunTests(const BenchFlags& flags, ModelFlags model, const std::vector<BenchTest>& tests,
                PeakSource& peaks, BenchPrinter& printer) {
  EngineFlags engine_flags = flags.engine;
  for (const BenchTest& test : tests) {
    model.context = std::max(model.context, ContextOf(test));
    engine_flags.parallel = std::max(engine_flags.parallel, test.n_seqs);
  }
  engine_flags.max_queue = engine_flags.parallel;
  LUCID_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, LoadEngine(model, engine_flags));
  engine->FinishPackCache();  // or it would be measured too
  BenchRow row = DescribeEngine(*engine, model.model);
  if (flags.verbose) fmt::print(stderr, "{}\n", KernelTableText(*engine));
  BenchDriver driver(*engine);
  for (const BenchTest& test : tests) {
    row.test = test;
    row.test_time = UtcNow();
    LUCID_ASSIGN_OR_RETURN(row.samples, driver.Measure(test, flags.repetitions, !flags.no_warmup));
    LUCID_RETURN_IF_ERROR(FindLimit(*engine, peaks, row));
    printer.Print(row);
  }
  return {};
}

Status Run(const BenchFlags& flags) {
  const std::vector<BenchTest> tests = Tests(flags);
  if (tests.empty()) {
    return Err(ErrorCode::kInvalidArgument,
               "there is nothing to measure: -p and -n name no test of at least one token");
  }
  BenchPrinter printer(flags.format == "json"  ? BenchFormat::kJson
                       : flags.format == "csv" ? BenchFormat::kCsv
                                               : BenchFormat::kMarkdown);
  PeakSource peaks =
      PeakSource::Open([](const std::string& message) { fmt::print(stderr, "{}\n", message); });
  ModelFlags model = flags.model;
  Status status;
  for (const int threads : flags.threads) {
    for (const int64_t batch : flags.batches) {
      for (const std::string& kv : flags.kv) {
        for (const std::string& kv_k : flags.kv_k) {
          for (const std::string& kv_v : flags.kv_v) {
            model.threads = threads;
            model.batch = batch;
            model.kv = kv;
            model.cache_type_k = kv_k;
            model.cache_type_v = kv_v;
            if (status) status = RunTests(flags, model, tests, peaks, printer);
          }
        }
      }
    }
  }
  printer.Finish();
  return status;
}

// A list with commas. Every item is checked, and an empty one is an error, not passed over.
template <typename T>
void AddList(CLI::App& command, const char* name, std::vector<T>& values, const std::string& help,
             const CLI::Validator& check) {
  const auto read = [&values, check, name](const std::string& text) {
    values.clear();
    for (size_t at = 0; at <= text.size();) {
      const size_t end = std::min(text.find(',', at), text.size());
      std::string item = text.substr(at, end - at);
      at = end + 1;
      const std::string problem =
          item.empty() ? fmt::format("'{}' has an empty item", text) : check(item);
      if (!problem.empty()) throw CLI::ValidationError(name, problem);
      T value{};
      if (!CLI::detail::lexical_cast(item, value)) throw CLI::ConversionError(item, name);
      values.push_back(std::move(value));
    }
  };
  command.add_option_function<std::string>(name, read, help + "; a list")
      ->type_name("LIST")
      ->default_str(fmt::format("{}", fmt::join(values, ",")));
}

std::vector<std::string> KvNames() {
  std::vector<std::string> names;
  for (const KvType type : AllKvTypes()) names.emplace_back(Name(type));
  return names;
}

}  // namespace

void AddBenchCommand(CLI::App& root, CommandContext& context) {
  CLI::App* command = root.add_subcommand("bench", "Measure tokens per second");
  auto flags = std::make_shared<BenchFlags>();
  AddModelFlag(*command, flags->model.model);
  const CLI::Range tokens(int64_t{0}, int64_t{1} << 24);
  AddList(*command, "-t,--threads", flags->threads, "threads; 0: one per physical core",
          CLI::Range(0, 1024));
  AddList(*command, "-p,--n-prompt", flags->prompts, "prompt tokens; 0: no such test", tokens);
  AddList(*command, "-n,--n-gen", flags->gens, "generated tokens; 0: no such test", tokens);
  AddList(*command, "-d,--n-depth", flags->depths, "tokens that are in the cache before", tokens);
  AddList(*command, "-b,--batch-size", flags->batches, "most tokens computed in one step",
          CLI::Range(int64_t{1}, int64_t{65536}));
  AddList(*command, "--kv", flags->kv, "type of the cache: " + KvTypeNames(),
          CLI::IsMember(KvNames()));
  AddList(*command, "--cache-type-k", flags->kv_k, "type of cached keys beside --kv (also -ctk)",
          CLI::IsMember(KvNames()));
  AddList(*command, "--cache-type-v", flags->kv_v, "type of cached values beside --kv (also -ctv)",
          CLI::IsMember(KvNames()));
  AddList(*command, "--batch", flags->sequences, "sequences at once, each with tokens of its own",
          CLI::Range(1, 4096));
  command->add_option("-r,--repetitions", flags->repetitions, "samples of each test")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command->add_flag("--no-warmup", flags->no_warmup, "no untimed run before the samples");
  command->add_flag("-v,--verbose", flags->verbose,
                    "also print, on stderr, which kernel runs each kind of matrix, and which "
                    "kernels refused it and why");
  command->add_option("-o,--output", flags->format, "md, json or csv")
      ->check(CLI::IsMember({"md", "json", "csv"}))
      ->capture_default_str();
  AddPlacementFlags(*command, flags->model);
  AddBackendFlags(*command, flags->model);
  AddCacheFlags(*command, flags->engine);
  command->footer(
      "pp N: the time from submitting a prompt of N random tokens until the last step of it is "
      "done,\n"
      "its one row of logits included. tg N: N steps of one token after the first token. Both run "
      "on\n"
      "the loop that serves requests, with its scheduling; replies are forced, so sampling is off "
      "the\n"
      "clock. No test finds tokens in the cache but those of its depth. With --batch B, B "
      "sequences\n"
      "run at once and the rate is that of all of them. t/s: mean and standard deviation.\n"
      "limit: what the machine could reach, from the bytes and multiply-adds of the test and what\n"
      "lucid limits measured; without its figures both are measured first, which takes a second.");
  command->callback([flags, &context] {
    if (const Status status = Run(*flags); !status) ReportError(status.error(), context);
  });
}

}  // namespace lucid::cli
