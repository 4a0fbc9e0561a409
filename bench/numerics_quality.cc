// What each way of computing with quantised weights costs in quality: mean KL divergence against
// float32 activations, weights and cache, for docs/performance.md.
//
//   numerics_quality -m MODEL -f TEXT [-c 512] [--chunks 4]
//
// Windows of -c tokens, the second half of each scored twice: as part of a prompt, and as a reply
// that is forced on the model after the first half.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "bench_util.h"
#include "engine/engine.h"
#include "engine/kv_audit.h"

namespace lucid {
namespace {

struct Flags {
  std::string model, file;
  int64_t context = 512, chunks = 4, threads = 0;
};

std::unique_ptr<Engine> Load(const Flags& flags, Numerics numerics) {
  EngineConfig config;
  config.model = flags.model;
  config.n_threads = static_cast<int>(flags.threads);
  config.context = flags.context;
  config.cache_type_k = config.cache_type_v =
      numerics == Numerics::kFloat ? KvType::kF32 : KvType::kF16;
  config.numerics = numerics;
  config.n_parallel = 1;
  config.prefix_sharing = false;
  return Get(Engine::Load(config));
}

std::vector<TokenId> ReadIds(const Flags& flags, const Engine& engine) {
  std::ifstream file(flags.file);
  if (!file) Fail({ErrorCode::kNotFound, flags.file + " cannot be read"});
  std::ostringstream text;
  text << file.rdbuf();
  return Get(engine.tokenizer())->Encode(text.str());
}

using Rows = std::vector<std::vector<float>>;

// The logits after the tokens at positions [first, size - 1) of a window.
Rows Score(Engine& engine, const std::vector<TokenId>& window, int64_t first, bool as_reply) {
  const auto size = std::ssize(window);
  Rows rows(static_cast<size_t>(size - 1 - first));
  Request request;
  request.prompt.assign(window.begin(), as_reply ? window.begin() + first : window.end());
  if (as_reply) request.forced_reply.assign(window.begin() + first, window.end());
  if (!as_reply) request.max_tokens = 0;
  request.logits_from = first;
  request.on_logits = [&](int64_t position, std::span<const float> logits) {
    if (position < first || position + 1 >= size) return;
    rows[static_cast<size_t>(position - first)].assign(logits.begin(), logits.end());
  };
  Stream stream = Get(engine.Submit(std::move(request)));
  while (std::optional<TokenOutput> out = stream.Next()) {
    if (out->error) Fail(*out->error);
  }
  return rows;
}

int64_t Best(const std::vector<float>& logits) {
  return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

struct Tally {
  Numerics numerics;
  bool as_reply;
  std::unique_ptr<Engine>& engine;
  double nll = 0, kl = 0;
  std::vector<double> all = {};
  int64_t same = 0;
};

void Run(const Flags& flags) {
  std::unique_ptr<Engine> exact = Load(flags, Numerics::kFloat);
  std::unique_ptr<Engine> standard = Load(flags, Numerics::kDefault);
  std::unique_ptr<Engine> fast = Load(flags, Numerics::kFast);
  std::vector<Tally> tallies;
  tallies.push_back({Numerics::kFloat, true, exact});
  tallies.push_back({Numerics::kDefault, false, standard});
  tallies.push_back({Numerics::kDefault, true, standard});
  tallies.push_back({Numerics::kFast, false, fast});
  tallies.push_back({Numerics::kFast, true, fast});
  std::vector<TokenId> ids = ReadIds(flags, *exact);
  const std::vector<TokenId> bos = Get(exact->tokenizer())->Encode("");
  const int64_t first = flags.context / 2;
  double nll = 0;
  for (int64_t c = 0; c < flags.chunks && (c + 1) * flags.context <= std::ssize(ids); ++c) {
    std::vector<TokenId> window(ids.begin() + c * flags.context,
                                ids.begin() + (c + 1) * flags.context);
    if (!bos.empty()) window[0] = bos[0];
    const auto loss = [&](const std::vector<float>& logits, size_t i) {
      const TokenId next = window[static_cast<size_t>(first) + i + 1];
      return -static_cast<double>(RawLogprobs(logits, next, 0).chosen);
    };
    const Rows base = Score(*exact, window, first, false);
    for (size_t i = 0; i < base.size(); ++i) nll += loss(base[i], i);
    for (Tally& tally : tallies) {
      const Rows rows = Score(*tally.engine, window, first, tally.as_reply);
      for (size_t i = 0; i < rows.size(); ++i) {
        tally.all.push_back(KlDivergence(base[i], rows[i]));
        tally.kl += tally.all.back();
        tally.nll += loss(rows[i], i);
        tally.same += Best(base[i]) == Best(rows[i]);
      }
    }
  }
  const auto n = static_cast<double>(tallies[0].all.size());
  fmt::print("| numerics | tokens | PPL | mean KL | 99 % | largest | same top token |\n");
  fmt::print("|---|---|---|---|---|---|---|\n");
  fmt::print("| float | prompt | {:.4f} | 0 | 0 | 0 | 100 % |\n", std::exp(nll / n));
  for (Tally& tally : tallies) {
    std::sort(tally.all.begin(), tally.all.end());
    fmt::print("| {} | {} | {:.4f} | {:.7f} | {:.6f} | {:.6f} | {:.2f} % |\n", Name(tally.numerics),
               tally.as_reply ? "reply" : "prompt", std::exp(tally.nll / n), tally.kl / n,
               tally.all[tally.all.size() * 99 / 100], tally.all.back(),
               100.0 * static_cast<double>(tally.same) / n);
  }
}

int Main(int argc, char** argv) {
  CLI::App app("KL divergence of each --numerics against float32");
  Flags flags;
  app.add_option("-m,--model", flags.model)->required();
  app.add_option("-f,--file", flags.file)->required();
  app.add_option("-c,--ctx-size", flags.context)->check(CLI::Range(8, 1 << 20));
  app.add_option("--chunks", flags.chunks)->check(CLI::Range(1, 1 << 20));
  app.add_option("-t,--threads", flags.threads);
  CLI11_PARSE(app, argc, argv);
  Run(flags);
  return 0;
}

}  // namespace
}  // namespace lucid

int main(int argc, char** argv) {
  return lucid::Main(argc, argv);
}
