// Times a tokenizer: loading it, and encoding files on one thread, each as one text and line by
// line.
//
//   build/release/bench/tokenizer_bench TOKENIZER TEXT... [--rounds=N] [--ids=FILE]
//
// TOKENIZER is whatever `lucid tokenize -m` takes as a path. Prints one JSON object with the times
// of all rounds in seconds; --ids writes the ids of the first text, one a line.
// tokenizer_compare.py runs it beside the Python `tokenizers` package.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "base/mmap_file.h"
#include "bench_util.h"
#include "engine/tokenizer_loader.h"

namespace lucid {
namespace {

struct Args {
  std::string tokenizer;
  std::vector<std::string> texts;
  int rounds = 5;
  std::string ids;
};

Args ParseArgs(int argc, char** argv) {
  Args args;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg.starts_with("--rounds=")) {
      const std::string_view number = arg.substr(9);
      const auto end = std::from_chars(number.begin(), number.end(), args.rounds);
      if (end.ptr != number.end() || args.rounds < 1)
        Fail({ErrorCode::kInvalidArgument, "--rounds is not a count"});
    } else if (arg.starts_with("--ids=")) {
      args.ids = arg.substr(6);
    } else if (args.tokenizer.empty()) {
      args.tokenizer = arg;
    } else {
      args.texts.emplace_back(arg);
    }
  }
  if (args.texts.empty())
    Fail({ErrorCode::kInvalidArgument, "usage: TOKENIZER TEXT... [--rounds=N] [--ids=FILE]"});
  return args;
}

// Seconds of each round of work().
template <typename Work>
std::vector<double> Time(int rounds, const Work& work) {
  std::vector<double> seconds;
  for (int i = 0; i < rounds; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return seconds;
}

std::vector<std::string_view> Lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return lines;
}

void Run(const Args& args) {
  LoadedTokenizer loaded;
  const auto load = Time(args.rounds, [&] { loaded = Get(LoadTokenizer(args.tokenizer)); });
  const Tokenizer& tokenizer = *loaded.tokenizer;
  fmt::print("{{\"load\": [{:.6f}], \"texts\": [", fmt::join(load, ", "));
  for (size_t i = 0; i < args.texts.size(); ++i) {
    const MmapFile file = Get(MmapFile::Open(args.texts[i]));
    const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                                file.bytes().size());
    std::vector<TokenId> ids;
    EncodeOptions options;
    options.add_special = false;
    const auto whole = Time(args.rounds, [&] { ids = tokenizer.Encode(text, options); });
    const auto lines = Lines(text);
    size_t n_in_lines = 0;
    const auto by_line = Time(args.rounds, [&] {
      n_in_lines = 0;
      for (const std::string_view line : lines)
        n_in_lines += tokenizer.Encode(line, options).size();
    });
    fmt::print(
        "{}{{\"bytes\": {}, \"ids\": {}, \"ids_by_line\": {}, \"whole\": [{:.6f}], \"by_line\": "
        "[{:.6f}]}}",
        i == 0 ? "" : ", ", text.size(), ids.size(), n_in_lines, fmt::join(whole, ", "),
        fmt::join(by_line, ", "));
    if (i == 0 && !args.ids.empty()) {
      std::FILE* out = std::fopen(args.ids.c_str(), "w");
      if (out == nullptr) Fail({ErrorCode::kIo, args.ids + " cannot be written"});
      fmt::print(out, "{}\n", fmt::join(ids, "\n"));
      std::fclose(out);
    }
  }
  fmt::print("]}}\n");
}

}  // namespace
}  // namespace lucid

int main(int argc, char** argv) {
  lucid::Run(lucid::ParseArgs(argc, argv));
  return 0;
}
