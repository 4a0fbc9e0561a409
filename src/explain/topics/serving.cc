// Many requests at once: batching and paged attention.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "account/predict.h"
#include "account/units.h"
#include "explain/topics/topics.h"
#include "kv/kv_cache.h"
#include "kv/kv_storage.h"

namespace lucid::topics {
namespace {

double Real(int64_t n) {
  return static_cast<double>(n);
}

// `streams` sequences that each decode a token behind `context` others, and a chunk of a new
// prompt.
Workload MixedWork(const Subject& subject, int64_t streams, int64_t chunk) {
  Workload work = DecodeWork(std::max<int64_t>(1, streams), subject.context(), subject.types());
  if (streams == 0) work.sequences.clear();
  if (chunk > 0) {
    work.sequences.push_back({.start = 0, .count = chunk});
    work.outputs += 1;
  }
  return work;
}

// One sequence's blocks of a group as cells: the physical block of each logical one.
Cells::Row TableRow(const std::string& name, std::span<const int32_t> table,
                    std::span<const int32_t> shared) {
  Cells::Row row{name, {}};
  for (const int32_t block : table) {
    const bool both = std::find(shared.begin(), shared.end(), block) != shared.end();
    row.cells.push_back({block < 0 ? "-" : std::to_string(block), both ? 2 : 1});
  }
  return row;
}

// The cache's own bookkeeping, for three sequences of the prompt's length and less.
Status BlockTables(const Subject& subject, Page& page) {
  constexpr int64_t kBlock = 4;  // tokens: small, so that a short prompt has several blocks
  LUCID_ASSIGN_OR_RETURN(
      const KvLayout layout,
      KvLayout::Make(subject.plan().kv_layers,
                     {.k_type = KvType::kF16, .v_type = KvType::kF16, .block_size = kBlock}));
  std::vector<TokenId> prompt = subject.ids();
  while (std::ssize(prompt) < 3 * kBlock + 1) prompt.push_back(prompt.back());
  const KvCacheOptions options{.n_blocks =
                                   layout.BlocksForAll(4, std::ssize(prompt) + 2 * kBlock, kBlock)};
  LUCID_ASSIGN_OR_RETURN(KvStorage storage, KvStorage::Create(layout, options.n_blocks));
  LUCID_ASSIGN_OR_RETURN(const std::unique_ptr<lucid::KvCache> cache,
                         lucid::KvCache::Create(layout, options, storage));
  const auto fill = [&](const std::vector<TokenId>& tokens) {
    const SequenceHandle sequence = cache->Open();
    const int64_t found = cache->Attach(sequence, tokens, std::ssize(tokens) - 1);
    if (cache->Reserve(sequence, std::ssize(tokens))) {
      cache->Commit(sequence, tokens, std::ssize(tokens), std::ssize(tokens));
    }
    return std::pair{sequence, found};
  };
  // The same beginning with another end, and a text that shares nothing.
  std::vector<TokenId> other(prompt.begin(), prompt.begin() + 2 * kBlock);
  for (int i = 0; i < 3; ++i) other.push_back(prompt.front());
  const std::vector<TokenId> third(prompt.rbegin(), prompt.rbegin() + kBlock + 2);
  const auto [a, found_a] = fill(prompt);
  const auto [b, found_b] = fill(other);
  const auto [c, found_c] = fill(third);
  std::vector<int32_t> shared;
  for (const int32_t block : cache->Table(a, 0)) {
    const std::span<const int32_t> mine = cache->Table(b, 0);
    if (block >= 0 && std::find(mine.begin(), mine.end(), block) != mine.end()) {
      shared.push_back(block);
    }
  }
  Cells cells;
  cells.rows = {TableRow(fmt::format("A: {} tokens", prompt.size()), cache->Table(a, 0), shared),
                TableRow(fmt::format("B: {} tokens", other.size()), cache->Table(b, 0), shared),
                TableRow(fmt::format("C: {} tokens", third.size()), cache->Table(c, 0), {})};
  page.Draw(
      {fmt::format("Block tables in blocks of {} tokens (group 0 of {}): the physical block of "
                   "each logical one. Blocks that stand in the tables of A and B both are shared.",
                   kBlock, layout.groups().size()),
       cells});
  const KvCacheStats stats = cache->stats();
  page.Facts(
      {{"found of A, B, C", fmt::format("{}, {}, {} tokens were there already and are not computed "
                                        "again",
                                        found_a, found_b, found_c)},
       {"places in use", fmt::format("{} of {} reserved ones, over sequences and groups",
                                     stats.used_positions, stats.reserved_positions)},
       {"waste", fmt::format("{} places of a sequence at most: less than a block of {}",
                             stats.worst_waste, kBlock)}});
  return cache->CheckInvariants();
}

}  // namespace

Status Batching(Subject& subject, Page& page) {
  page.Text(
      "A decode step reads all weights for one token of one request. For thirty requests it reads "
      "them once as well. So a server puts the tokens of all running requests into one step. "
      "Continuous batching decides anew at every step who is in it: a request joins when it comes "
      "and leaves when it ends, nobody waits for the longest. Each request's result is its own: "
      "here not even the bits depend on who else is in the step.");
  page.Formula(
      "time of a step ~ max( (weights + B x cache of one) / bandwidth,\n"
      "                     B x FLOPs of one / peak )",
      {{"B", "sequences of the step: weights are shared, caches are not"}});
  LUCID_ASSIGN_OR_RETURN(const Hardware* hardware, subject.hardware());
  page.Heading(fmt::format("Decode steps of this model on {}", hardware->name));
  std::vector<std::vector<std::string>> rows;
  Plot plot;
  plot.x_title = "sequences";
  plot.log_x = true;
  Plot::Line all{"tokens/s, all", {}};
  for (const int64_t batch : {1, 2, 4, 8, 16, 32, 64}) {
    const Workload work = DecodeWork(batch, subject.context(), subject.types());
    const StepTime time = PredictStep(*hardware, subject.plan(), work);
    const double intensity = MakeLedger(subject.plan(), work).intensity();
    rows.push_back({std::to_string(batch), units::Seconds(time.seconds), Fixed(intensity, 2),
                    time.by_memory() ? "memory" : "compute",
                    fmt::format("{:.0f}", Real(batch) / time.seconds),
                    fmt::format("{:.0f}", 1 / time.seconds)});
    all.points.emplace_back(Real(batch), Real(batch) / time.seconds);
  }
  plot.lines = {all};
  page.Table({"sequences", "a step", "FLOP/byte", "bound by", "tok/s, all", "tok/s, each"},
             std::move(rows), 0);
  page.Draw({fmt::format("Tokens a second at most, behind {} tokens each.",
                         units::Thousands(subject.context())),
             plot});
  page.Heading("Chunked prefill");
  page.Text(
      "A long prompt in one step would stop all streams for as long as it takes. Cut into "
      "chunks that ride along with the decoding sequences, it takes a little longer itself, "
      "and the streams go on. Both phases in one step are possible because they are one plan "
      "(docs/adr/0007). Below: 8 streams and a chunk of a new prompt.");
  std::vector<std::vector<std::string>> chunks;
  for (const int64_t chunk : {0, 64, 128, 256, 512, 2048}) {
    const StepTime time = PredictStep(*hardware, subject.plan(), MixedWork(subject, 8, chunk));
    chunks.push_back({std::to_string(chunk), units::Seconds(time.seconds),
                      fmt::format("{:.0f}", Real(chunk) / time.seconds)});
  }
  page.Table({"prompt tokens in the step", "a stream waits", "prompt tok/s"}, std::move(chunks), 0);
  page.Text(
      "`--itl-target-ms` of `lucid batch` lets the scheduler choose chunks so that no stream "
      "waits longer than that. Two engines can split the work altogether: one computes "
      "prompts and hands the cache over, the other decodes (`SetHandover`).");
  return {};
}

Status PagedAttention(Subject& subject, Page& page) {
  page.Text(
      "Nobody knows how long a reply becomes. A cache that reserves the longest possible text in "
      "one piece for every request wastes most of it. Paging does what operating systems do: "
      "memory is cut into blocks of a few tokens, and every sequence has a table that says which "
      "physical block holds its logical one. Blocks come when they are needed and need not lie "
      "side by side, so only the last one has unused places. And two sequences with the same "
      "beginning can point to the same blocks; a block that others know is copied before it is "
      "written.");
  page.Formula(
      "place of position p = table[p / block], p mod block\n"
      "waste of a sequence < block tokens a group",
      {{"block", "tokens of a block: `--kv-block-size`, 32 by default"},
       {"group", "layers that share a table: those with one window and one page size"}});
  page.Heading("With the prompt, in this engine's own bookkeeping");
  LUCID_RETURN_IF_ERROR(BlockTables(subject, page));
  page.Heading("What it saves");
  const Workload types = subject.types();
  LUCID_ASSIGN_OR_RETURN(
      const KvLayout layout,
      KvLayout::Make(
          subject.plan().kv_layers,
          {.k_type = types.k_type, .v_type = types.v_type, .block_size = types.kv_block_size}));
  const int64_t most = subject.config().context_length;
  const int64_t typical = std::min<int64_t>(300, most);
  const auto whole = Real(layout.BytesFor(most)), paged = Real(layout.BytesFor(typical));
  page.Table({"a request of 300 tokens reserves", "bytes", "in 1 GB"},
             {{fmt::format("the whole context of {}", units::Thousands(most)), units::Bytes(whole),
               fmt::format("{:.0f}", std::floor(1e9 / whole))},
              {fmt::format("blocks of {}", types.kv_block_size), units::Bytes(paged),
               fmt::format("{:.0f}", std::floor(1e9 / paged))}});
  page.Text(
      "Twenty requests behind one system prompt of 200 tokens keep its blocks once: `lucid "
      "batch` reports how many prompt tokens were found. docs/kv-cache.md has the rules.");
  return {};
}

}  // namespace lucid::topics
