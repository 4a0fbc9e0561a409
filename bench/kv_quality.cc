// What compressed and bounded caches cost in quality: tables for docs/kv-cache.md.
//
//   kv_quality types  -m MODEL -f TEXT [-c 512] [--chunks 16]    perplexity and KL of every cache
//   type kv_quality text   -m MODEL -f TEXT [-c 4096] [--budgets ..]  loss along a long text, per
//   policy kv_quality needle -m MODEL -f TEXT [--lengths ..]            a number hidden in a long
//   text
//
// Perplexity as llama-perplexity counts it: windows of -c tokens, the first replaced by BOS where
// the vocabulary wants one, the second half of each window scored.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

#include "bench_util.h"
#include "engine/engine.h"
#include "engine/kv_audit.h"

namespace lucid {
namespace {

struct Flags {
  std::string model, file;
  int64_t context = 512, chunks = 16, threads = 0;
  std::vector<int64_t> budgets = {256, 512};
  std::vector<int64_t> lengths = {512, 1024, 2048};
  std::vector<std::string> types;  // beside f32 and f16; empty: all
};

std::unique_ptr<Engine> Load(const Flags& flags, KvType type, int64_t context) {
  EngineConfig config;
  config.model = flags.model;
  config.n_threads = static_cast<int>(flags.threads);
  config.context = context;
  config.cache_type_k = config.cache_type_v = type;
  config.n_parallel = 1;
  return Get(Engine::Load(config));
}

std::vector<TokenId> ReadIds(const Flags& flags, const Engine& engine) {
  std::ifstream file(flags.file);
  if (!file) Fail({ErrorCode::kNotFound, flags.file + " cannot be read"});
  std::ostringstream text;
  text << file.rdbuf();
  return Get(engine.tokenizer())->Encode(text.str());
}

bool AddsBos(const Engine& engine, TokenId* bos) {
  const std::vector<TokenId> ids = Get(engine.tokenizer())->Encode("");
  if (ids.empty()) return false;
  *bos = ids[0];
  return true;
}

double NegativeLogLikelihood(std::span<const float> logits, TokenId id) {
  return -static_cast<double>(RawLogprobs(logits, id, 0).chosen);
}

TokenOutput Finish(Engine& engine, Request request) {
  Stream stream = Get(engine.Submit(std::move(request)));
  std::optional<TokenOutput> last;
  while (std::optional<TokenOutput> out = stream.Next()) last = std::move(out);
  if (last->error) Fail(*last->error);
  return *std::move(last);
}

// --- types ---

struct TypeRow {
  KvType type;
  std::unique_ptr<Engine> engine;
  double nll = 0, kl = 0;
  int64_t same = 0;
};

double DecodeSpeed(Engine& engine, int64_t depth) {
  Request request;
  for (int64_t i = 0; i < depth; ++i)
    request.prompt.push_back(static_cast<TokenId>(100 + i % 1000));
  request.forced_reply.assign(64, 100);
  return Finish(engine, std::move(request)).stats.decode_tokens_per_second();
}

void RunTypes(const Flags& flags) {
  std::vector<TypeRow> rows;
  for (const KvType type : AllKvTypes()) {
    const bool base_type = type == KvType::kF32 || type == KvType::kF16;
    const bool wanted =
        flags.types.empty() || std::count(flags.types.begin(), flags.types.end(), Name(type)) > 0;
    if (!base_type && !wanted) continue;
    rows.push_back(
        {.type = type, .engine = Load(flags, type, std::max<int64_t>(flags.context, 2048))});
  }
  std::vector<TokenId> ids = ReadIds(flags, *rows[0].engine);
  TokenId bos = 0;
  const bool adds_bos = AddsBos(*rows[0].engine, &bos);
  const int64_t first = flags.context / 2;
  int64_t scored = 0;
  std::vector<std::vector<float>> base(static_cast<size_t>(flags.context - first));
  for (int64_t c = 0; c < flags.chunks && (c + 1) * flags.context <= std::ssize(ids); ++c) {
    std::vector<TokenId> window(ids.begin() + c * flags.context,
                                ids.begin() + (c + 1) * flags.context);
    if (adds_bos) window[0] = bos;
    for (TypeRow& row : rows) {
      Request request;
      request.prompt = window;
      request.max_tokens = 0;
      request.logits_from = first;
      request.on_logits = [&](int64_t position, std::span<const float> logits) {
        if (position + 1 >= flags.context) return;
        row.nll += NegativeLogLikelihood(logits, window[static_cast<size_t>(position + 1)]);
        std::vector<float>& kept = base[static_cast<size_t>(position - first)];
        if (row.type == KvType::kF32) {
          kept.assign(logits.begin(), logits.end());
          ++scored;
        } else {
          row.kl += KlDivergence(kept, logits);
          row.same += std::max_element(kept.begin(), kept.end()) - kept.begin() ==
                      std::max_element(logits.begin(), logits.end()) - logits.begin();
        }
      };
      Finish(*row.engine, std::move(request));
    }
    fmt::print(stderr, "window {} of {}: PPL {:.4f}\n", c + 1, flags.chunks,
               std::exp(rows[0].nll / static_cast<double>(scored)));
  }
  const auto n = static_cast<double>(scored);
  const double f16 = rows[1].nll / n;
  fmt::print(
      "| cache | bytes a token | of f16 | PPL | to f16 | mean KL to f32 | same top token | decode "
      "at 1,024, tok/s |\n");
  fmt::print("|---|---|---|---|---|---|---|---|\n");
  for (TypeRow& row : rows) {
    const int64_t bytes = row.engine->kv_layout().BytesPerToken();
    fmt::print("| {} | {} | {:.1f} % | {:.4f} | {:+.3f} % | {:.6f} | {:.2f} % | {:.0f} |\n",
               Name(row.type), bytes,
               100.0 * static_cast<double>(bytes) /
                   static_cast<double>(rows[1].engine->kv_layout().BytesPerToken()),
               std::exp(row.nll / n), 100.0 * (std::exp(row.nll / n - f16) - 1.0), row.kl / n,
               row.type == KvType::kF32 ? 100.0 : 100.0 * static_cast<double>(row.same) / n,
               DecodeSpeed(*row.engine, 1024));
  }
}

// --- text: loss by position for one long text ---

EvictionOptions Eviction(KvPolicy policy, int64_t budget) {
  return {.policy = policy, .budget = policy == KvPolicy::kFull ? 0 : budget};
}

void RunText(const Flags& flags) {
  auto engine = Load(flags, KvType::kF16, flags.context);
  std::vector<TokenId> ids = ReadIds(flags, *engine);
  ids.resize(static_cast<size_t>(std::min(std::ssize(ids), flags.context)));
  constexpr int64_t kParts = 8;
  const int64_t part = (std::ssize(ids) + kParts - 1) / kParts;
  fmt::print("PPL by part of {} tokens; each policy sees the whole text\n", std::ssize(ids));
  fmt::print("| policy | budget |");
  for (int64_t i = 0; i < kParts; ++i) fmt::print(" {}-{} |", i * part, (i + 1) * part);
  fmt::print(" all | attention dropped | KV bytes |\n|---|---|");
  for (int64_t i = 0; i < kParts + 3; ++i) fmt::print("---|");
  fmt::print("\n");
  const auto row = [&](KvPolicy policy, int64_t budget) {
    std::vector<double> nll(kParts), count(kParts);
    Request request;
    request.prompt = ids;
    request.max_tokens = 0;
    request.logits_from = 0;
    request.eviction = Eviction(policy, budget);
    request.on_logits = [&](int64_t position, std::span<const float> logits) {
      if (position + 1 >= std::ssize(ids)) return;
      const auto p = static_cast<size_t>((position + 1) / part);
      nll[p] += NegativeLogLikelihood(logits, ids[static_cast<size_t>(position + 1)]);
      count[p] += 1;
    };
    const TokenOutput last = Finish(*engine, std::move(request));
    fmt::print("| {} | {} |", Name(policy),
               policy == KvPolicy::kFull ? "-" : std::to_string(budget));
    double sum = 0, all = 0;
    for (size_t i = 0; i < kParts; ++i) {
      fmt::print(" {:.2f} |", std::exp(nll[i] / std::max(count[i], 1.0)));
      sum += nll[i];
      all += count[i];
    }
    fmt::print(" {:.2f} | {:.1f} % | {} |\n", std::exp(sum / all),
               100 * last.stats.eviction.dropped_share(), last.stats.kv_bytes);
    std::fflush(stdout);
  };
  row(KvPolicy::kFull, 0);
  for (const int64_t budget : flags.budgets) {
    row(KvPolicy::kWindowSink, budget);
    row(KvPolicy::kH2o, budget);
  }
  // SnapKV compresses a prompt: the last eighth is the reply to the rest.
  fmt::print("\nPPL and KL of the last {} tokens after a prompt of {}\n", part,
             std::ssize(ids) - part);
  fmt::print(
      "| policy | budget | PPL | mean KL to full | attention dropped |\n|---|---|---|---|---|\n");
  const auto reply = [&](KvPolicy policy, int64_t budget) {
    double nll = 0;
    Request request;
    request.prompt.assign(ids.begin(), ids.end() - part);
    request.forced_reply.assign(ids.end() - part, ids.end());
    request.eviction = Eviction(policy, budget);
    request.kv_audit = policy != KvPolicy::kFull;
    request.on_logits = [&](int64_t position, std::span<const float> logits) {
      nll += NegativeLogLikelihood(logits, ids[static_cast<size_t>(position + 1)]);
    };
    const TokenOutput last = Finish(*engine, std::move(request));
    fmt::print("| {} | {} | {:.3f} | {:.5f} | {:.1f} % |\n", Name(policy),
               policy == KvPolicy::kFull ? "-" : std::to_string(budget),
               std::exp(nll / static_cast<double>(part)),
               last.stats.audit ? last.stats.audit->mean_kl : 0.0,
               100 * last.stats.eviction.dropped_share());
    std::fflush(stdout);
  };
  reply(KvPolicy::kFull, 0);
  for (const int64_t budget : flags.budgets) {
    for (const KvPolicy policy : {KvPolicy::kWindowSink, KvPolicy::kH2o, KvPolicy::kSnapKv}) {
      reply(policy, budget);
    }
  }
}

// --- needle ---

struct Needle {
  std::vector<TokenId> prompt, answer;
};

// `length` tokens of text with a sentence at `depth` (0 to 1) of it, then the question.
Needle Hide(const Tokenizer& tokenizer, std::span<const TokenId> filler, int64_t length,
            double depth, int number) {
  EncodeOptions plain;
  plain.add_special = false;
  const auto needle = tokenizer.Encode(
      fmt::format("\nThe secret pass key is {}. Remember it: {} is the pass key.\n", number,
                  number),
      plain);
  const auto question =
      tokenizer.Encode("\nWhat is the secret pass key? The secret pass key is", plain);
  Needle n;
  const int64_t room = length - std::ssize(needle) - std::ssize(question) - 8;
  const auto before = static_cast<int64_t>(depth * static_cast<double>(room));
  n.prompt = tokenizer.Encode("");
  n.prompt.insert(n.prompt.end(), filler.begin(), filler.begin() + before);
  n.prompt.insert(n.prompt.end(), needle.begin(), needle.end());
  n.prompt.insert(n.prompt.end(), filler.begin() + before, filler.begin() + room);
  n.prompt.insert(n.prompt.end(), question.begin(), question.end());
  n.answer = tokenizer.Encode(fmt::format(" {}", number), plain);
  return n;
}

void RunNeedle(const Flags& flags) {
  const int64_t longest = *std::max_element(flags.lengths.begin(), flags.lengths.end());
  auto engine = Load(flags, KvType::kF16, longest + 64);
  const Tokenizer& tokenizer = *Get(engine->tokenizer());
  const std::vector<TokenId> filler = ReadIds(flags, *engine);
  const std::vector<double> depths = {0.05, 0.25, 0.5, 0.75, 0.95};
  constexpr int kNumbers = 2;
  fmt::print("share of right answers, mean log-probability of the answer; depth of the needle\n");
  fmt::print("| policy | budget | length |");
  for (const double depth : depths) fmt::print(" {:.0f} % |", 100 * depth);
  fmt::print("\n|---|---|---|");
  for (size_t i = 0; i < depths.size(); ++i) fmt::print("---|");
  fmt::print("\n");
  const auto row = [&](KvPolicy policy, int64_t budget, int64_t length) {
    fmt::print("| {} | {} | {} |", Name(policy),
               policy == KvPolicy::kFull ? "-" : std::to_string(budget), length);
    for (const double depth : depths) {
      double right = 0, logprob = 0;
      for (int i = 0; i < kNumbers; ++i) {
        const Needle needle =
            Hide(tokenizer, std::span(filler).subspan(static_cast<size_t>(i) * 977), length, depth,
                 17389 + 11113 * i);
        bool all_right = true;
        size_t at = 0;
        Request request;
        request.prompt = needle.prompt;
        request.forced_reply = needle.answer;
        request.eviction = Eviction(policy, budget);
        request.on_logits = [&](int64_t, std::span<const float> logits) {
          const TokenId id = needle.answer[at++];
          logprob -= NegativeLogLikelihood(logits, id);
          all_right =
              all_right && std::max_element(logits.begin(), logits.end()) - logits.begin() == id;
        };
        Finish(*engine, std::move(request));
        right += all_right ? 1 : 0;
      }
      fmt::print(" {:.0f} %, {:.2f} |", 100 * right / kNumbers, logprob / kNumbers);
    }
    fmt::print("\n");
    std::fflush(stdout);
  };
  for (const int64_t length : flags.lengths) {
    row(KvPolicy::kFull, 0, length);
    for (const int64_t budget : flags.budgets) {
      if (budget >= length) continue;
      for (const KvPolicy policy : {KvPolicy::kWindowSink, KvPolicy::kH2o, KvPolicy::kSnapKv}) {
        row(policy, budget, length);
      }
    }
  }
}

int Main(int argc, char** argv) {
  CLI::App app("What compressed and bounded caches cost in quality");
  app.require_subcommand(1);
  Flags flags;
  const auto add = [&](const char* name, const char* help, void (*run)(const Flags&)) {
    CLI::App* command = app.add_subcommand(name, help);
    command->add_option("-m,--model", flags.model)->required();
    command->add_option("-f,--file", flags.file, "a text, e.g. wiki.test.raw")->required();
    command->add_option("-t,--threads", flags.threads);
    command->add_option("-c,--ctx-size", flags.context)->check(CLI::Range(64, 1 << 20));
    command->add_option("--chunks", flags.chunks)->check(CLI::Range(1, 1 << 20));
    command->add_option("--types", flags.types)->delimiter(',');
    command->add_option("--budgets", flags.budgets)->delimiter(',');
    command->add_option("--lengths", flags.lengths)->delimiter(',');
    command->callback([&flags, run] { run(flags); });
  };
  add("types", "perplexity and KL divergence of every cache type", RunTypes);
  add("text", "loss along a long text, per policy and budget", RunText);
  add("needle", "a number hidden in a long text, per policy and budget", RunNeedle);
  CLI11_PARSE(app, argc, argv);
  return 0;
}

}  // namespace
}  // namespace lucid

int main(int argc, char** argv) {
  return lucid::Main(argc, argv);
}
