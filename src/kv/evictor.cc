// Evictor: one sequence's eviction policy through its life. Which places stay is the business of
// PlacesToKeep (eviction.cc); here rows and scores are moved, sinks rotated, and the bill kept.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/buffer.h"
#include "base/check.h"
#include "kv/eviction.h"

namespace lucid {
namespace {

// Far beyond any length, yet sums with lengths do not overflow.
constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max() / 4;

// The rows of one KV head of one layer, as a sequence's block table leads to them.
class HeadRows {
 public:
  HeadRows(const KvView& view, std::span<const int32_t> table, int64_t head)
      : view_(view), table_(table), head_(head) {}

  int64_t key_bytes() const { return KvRowBytes(view_.pages.k_type, view_.k_dim); }
  int64_t value_bytes() const { return KvRowBytes(view_.pages.v_type, view_.v_dim); }
  std::byte* Key(int64_t place) const {
    return Page(place) +
           head_ * KvHeadBytes(view_.pages.k_type, true, view_.k_dim, view_.block_size) +
           place % view_.block_size * key_bytes();
  }
  std::byte* Value(int64_t place) const {
    return Page(place) + view_.pages.v_offset +
           head_ * KvHeadBytes(view_.pages.v_type, false, view_.v_dim, view_.block_size) +
           place % view_.block_size * value_bytes();
  }

 private:
  std::byte* Page(int64_t place) const {
    const auto block = static_cast<size_t>(place / view_.block_size);
    LUCID_CHECK(block < table_.size() && table_[block] >= 0, "place {} has no block", place);
    return view_.pages.data + table_[block] * view_.pages.page_bytes;
  }

  const KvView& view_;
  std::span<const int32_t> table_;
  int64_t head_;
};

// Row keep[i] goes to place i. `keep` ascends, so no row is overwritten before it has moved.
void MoveRows(const HeadRows& rows, std::span<const int32_t> keep) {
  const auto key_bytes = static_cast<size_t>(rows.key_bytes());
  const auto value_bytes = static_cast<size_t>(rows.value_bytes());
  for (size_t i = 0; i < keep.size(); ++i) {
    const auto to = static_cast<int64_t>(i);
    const int64_t from = keep[i];
    if (from == to) continue;
    std::memcpy(rows.Key(to), rows.Key(from), key_bytes);
    if (value_bytes > 0) std::memcpy(rows.Value(to), rows.Value(from), value_bytes);
  }
}

// Moves the sums like the rows, the places that became free start at zero. Returns the sum over
// what was dropped.
double MoveScores(std::span<float> scores, std::span<const int32_t> keep) {
  double dropped = 0;
  size_t next = 0;  // in keep
  for (size_t place = 0; place < scores.size(); ++place) {
    if (next < keep.size() && static_cast<size_t>(keep[next]) == place) {
      scores[next++] = scores[place];
    } else if (std::isfinite(scores[place])) {
      dropped += double{scores[place]};
    }
  }
  std::fill(scores.begin() + static_cast<std::ptrdiff_t>(next), scores.end(), 0.0f);
  return dropped;
}

// Rotates one key further, as if its position were `distance` higher (RoFormer, Su et al. 2021).
void RotateKey(const KeyRotation& rotation, int64_t distance, std::span<float> key) {
  const size_t n_pairs = rotation.inv_freq.size();
  const bool half_split = rotation.style == RopeStyle::kHalfSplit;
  for (size_t i = 0; i < n_pairs; ++i) {
    const double angle = static_cast<double>(distance) * double{rotation.inv_freq[i]};
    const double c = std::cos(angle);
    const double s = std::sin(angle);
    float& x = key[half_split ? i : 2 * i];
    float& y = key[half_split ? i + n_pairs : 2 * i + 1];
    const double old_x = x;
    const double old_y = y;
    x = static_cast<float>(old_x * c - old_y * s);
    y = static_cast<float>(old_x * s + old_y * c);
  }
}

}  // namespace

struct Evictor::Impl {
  EvictionOptions options;
  const KvStorage* storage = nullptr;
  std::span<const KeyRotation> rotations;
  int64_t n_prompt = 0;

  std::vector<size_t> layers;  // KV layers without a window
  int64_t capacity = 0;        // see KeyScores
  int64_t layer_stride = 0;
  Buffer sums;

  int64_t places = 0;   // as of the last AfterStep
  int64_t dropped = 0;  // places, per layer and head
  bool voted = false;   // kSnapKv: the prompt is computed, scores have served their purpose
  double dropped_mass = 0;
  int64_t evictions = 0;
  std::vector<float> sinks;  // as first stored: [layers][heads][kAttentionSinks][k_dim]

  const KvLayout& layout() const { return storage->layout(); }
  // [places] of one head.
  std::span<float> Scores(size_t layer, int64_t head) const {
    auto* all = reinterpret_cast<float*>(sums.data());
    return {all + static_cast<int64_t>(layer) * layer_stride + head * capacity,
            static_cast<size_t>(places)};
  }
  std::span<const int32_t> Table(const KvCache& cache, SequenceHandle sequence,
                                 size_t layer) const {
    return cache.Table(sequence, static_cast<size_t>(layout().place(layer).group));
  }
  void Start();
  void Evict(KvCache& cache, SequenceHandle sequence, int64_t n_keep);
  // Calls visit(row, type, key, layer) for every sink of every full layer and head: its row in the
  // cache and its key in `sinks`.
  template <typename Visit>
  void ForEachSink(const KvCache& cache, SequenceHandle sequence, const Visit& visit);
  void SaveSinks(const KvCache& cache, SequenceHandle sequence);
  void WriteSinks(const KvCache& cache, SequenceHandle sequence);
};

void Evictor::Impl::Start() {
  places = dropped = evictions = 0;
  dropped_mass = 0;
  voted = options.policy == KvPolicy::kSnapKv && n_prompt == 0;
  sinks.clear();
}

void Evictor::Impl::Evict(KvCache& cache, SequenceHandle sequence, int64_t n_keep) {
  // Until now the sinks lie where and as they were stored.
  if (options.policy == KvPolicy::kWindowSink && sinks.empty()) SaveSinks(cache, sequence);
  for (const size_t layer : layers) {
    const KvView view = storage->Layer(layer);
    const std::span<const int32_t> table = Table(cache, sequence, layer);
    for (int64_t head = 0; head < view.n_heads; ++head) {
      const std::span<float> scores = Scores(layer, head);
      const std::vector<int32_t> keep = PlacesToKeep(options.policy, scores, places, n_keep);
      LUCID_CHECK(std::ssize(keep) == n_keep);
      MoveRows(HeadRows(view, table, head), keep);
      dropped_mass += MoveScores(scores, keep);
    }
  }
  dropped += places - n_keep;
  places = n_keep;
  ++evictions;
  if (options.policy == KvPolicy::kWindowSink) WriteSinks(cache, sequence);
  cache.DropPlaces(sequence, n_keep);
}

template <typename Visit>
void Evictor::Impl::ForEachSink(const KvCache& cache, SequenceHandle sequence, const Visit& visit) {
  size_t first = 0;
  for (const size_t layer : layers) {
    const KvView view = storage->Layer(layer);
    const auto k_dim = static_cast<size_t>(view.k_dim);
    for (int64_t head = 0; head < view.n_heads; ++head) {
      const HeadRows rows(view, Table(cache, sequence, layer), head);
      for (int64_t place = 0; place < kAttentionSinks; ++place, first += k_dim)
        visit(rows.Key(place), view.pages.k_type, std::span(sinks).subspan(first, k_dim), layer);
    }
  }
}

void Evictor::Impl::SaveSinks(const KvCache& cache, SequenceHandle sequence) {
  size_t n_values = 0;
  for (const size_t layer : layers) {
    const KvSpec& spec = layout().layers()[layer];
    n_values += static_cast<size_t>(spec.heads * kAttentionSinks * spec.k_dim);
  }
  sinks.resize(n_values);
  ForEachSink(cache, sequence,
              [](const std::byte* row, KvType type, std::span<float> key, size_t /*layer*/) {
                DecodeKvRow(type, row, key.data(), std::ssize(key));
              });
}

void Evictor::Impl::WriteSinks(const KvCache& cache, SequenceHandle sequence) {
  ForEachSink(cache, sequence,
              [this](std::byte* row, KvType type, std::span<float> key, size_t layer) {
                if (rotations[layer].inv_freq.empty()) return;
                std::vector<float> rotated(key.begin(), key.end());
                RotateKey(rotations[layer], dropped, rotated);
                EncodeKvRow(type, rotated.data(), row, std::ssize(rotated));
              });
}

Evictor::Evictor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Evictor::~Evictor() = default;

Result<std::unique_ptr<Evictor>> Evictor::Create(const EvictionOptions& options,
                                                 const KvStorage& storage,
                                                 std::span<const KeyRotation> rotations,
                                                 int64_t n_prompt) {
  const KvLayout& layout = storage.layout();
  LUCID_CHECK(options.policy != KvPolicy::kFull && n_prompt >= 0);
  LUCID_RETURN_IF_ERROR(CheckEviction(options, layout));
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  impl->storage = &storage;
  impl->rotations = rotations;
  impl->n_prompt = n_prompt;

  const std::span<const KvSpec> specs = layout.layers();
  int64_t most_heads = 0;
  int64_t most_places = 0;  // that the storage can hold: a budget beyond it takes no memory
  for (size_t layer = 0; layer < specs.size(); ++layer) {
    most_heads = std::max(most_heads, specs[layer].heads);
    const KvGroup& group = layout.groups()[static_cast<size_t>(layout.place(layer).group)];
    if (group.kind != KvGroupKind::kFull) continue;
    impl->layers.push_back(layer);
    const int64_t n_blocks = storage.n_blocks()[static_cast<size_t>(group.pool)];
    most_places = std::max(most_places, n_blocks * layout.block_size());
    if (options.policy != KvPolicy::kWindowSink) continue;
    LUCID_CHECK(layer < rotations.size());
    LUCID_CHECK(2 * std::ssize(rotations[layer].inv_freq) <= specs[layer].k_dim);
  }
  const int64_t wanted = options.policy == KvPolicy::kSnapKv ? n_prompt : options.budget;
  impl->capacity = std::min(wanted, most_places);
  impl->layer_stride = most_heads * impl->capacity;
  const auto n_sums = static_cast<size_t>(std::ssize(specs) * impl->layer_stride);
  LUCID_ASSIGN_OR_RETURN(impl->sums, Buffer::Allocate(n_sums * sizeof(float)));
  impl->Start();
  return std::unique_ptr<Evictor>(new Evictor(std::move(impl)));
}

int64_t Evictor::Room(int64_t n_computed) const {
  if (impl_->options.policy == KvPolicy::kSnapKv)
    return n_computed < impl_->n_prompt ? impl_->n_prompt - n_computed : kUnlimited;
  const int64_t room = impl_->options.budget - (n_computed - impl_->dropped);
  LUCID_CHECK(room >= 1, "{} tokens computed, {} dropped, budget {}", n_computed, impl_->dropped,
              impl_->options.budget);
  return room;
}

void Evictor::AfterStep(KvCache& cache, SequenceHandle sequence, int64_t n_computed) {
  Impl& s = *impl_;
  const int64_t places = n_computed - s.dropped;
  if (s.options.policy == KvPolicy::kSnapKv) {
    if (s.voted) return;
    s.places = places;
    if (n_computed < s.n_prompt) return;
    LUCID_CHECK(n_computed == s.n_prompt, "a step went {} tokens past the prompt",
                n_computed - s.n_prompt);
    s.voted = true;
    if (places > s.options.budget) s.Evict(cache, sequence, s.options.budget);
    return;
  }
  LUCID_CHECK(places <= s.options.budget, "{} places, budget {}", places, s.options.budget);
  s.places = places;
  if (places == s.options.budget)
    s.Evict(cache, sequence, s.options.budget - s.layout().block_size());
}

KeyScores Evictor::scores() const {
  const Impl& s = *impl_;
  if (s.voted) return {};
  return {.sums = reinterpret_cast<float*>(s.sums.data()),
          .layer_stride = s.layer_stride,
          .capacity = s.capacity,
          .first_position = s.options.policy == KvPolicy::kSnapKv
                                ? std::max<int64_t>(0, s.n_prompt - kSnapKvWindow)
                                : 0};
}

EvictionBill Evictor::bill() const {
  const Impl& s = *impl_;
  EvictionBill bill{.evicted_tokens = s.dropped,
                    .evictions = s.evictions,
                    .attention_seen = s.dropped_mass,
                    .attention_dropped = s.dropped_mass};
  for (const size_t layer : s.layers) {
    for (int64_t head = 0; head < s.layout().layers()[layer].heads; ++head) {
      for (const float score : s.Scores(layer, head)) {
        if (std::isfinite(score)) bill.attention_seen += double{score};
      }
    }
  }
  return bill;
}

void Evictor::Reset() {
  impl_->Start();
  std::memset(impl_->sums.data(), 0, impl_->sums.size());
}

int64_t Evictor::MostPlaces(int64_t n_tokens) const {
  const Impl& s = *impl_;
  if (s.options.policy != KvPolicy::kSnapKv) return std::min(s.options.budget, n_tokens);
  if (n_tokens <= s.n_prompt) return n_tokens;
  // The whole prompt, or what is kept of it and all that follows.
  return std::max(s.n_prompt, std::min(s.options.budget, s.n_prompt) + n_tokens - s.n_prompt);
}

}  // namespace lucid
