#include "kv/kv_layout.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/check.h"

namespace lucid {
namespace {

// How one layer's positions are stored: types and bytes of a page.
struct PageShape {
  KvType k_type = KvType::kF16;
  KvType v_type = KvType::kF16;
  int64_t k_bytes = 0;  // of all heads
  int64_t v_bytes = 0;
  int64_t bytes() const { return k_bytes + v_bytes; }
};

PageShape ShapeOf(const KvSpec& spec, KvType k_type, KvType v_type, int64_t block_size) {
  PageShape shape{.k_type = k_type, .v_type = v_type};
  shape.k_bytes = spec.heads * KvHeadBytes(k_type, /*keys=*/true, spec.k_dim, block_size);
  if (spec.v_dim > 0) {
    shape.v_bytes = spec.heads * KvHeadBytes(v_type, /*keys=*/false, spec.v_dim, block_size);
  }
  return shape;
}

// The pages of a layer. Under kivi2 those of layers with a window, and the recent ones, are
// float16.
PageShape ShapeOf(const KvSpec& spec, const KvOptions& options, bool recent) {
  const bool half = options.k_type == KvType::kKivi2 && (recent || spec.window > 0);
  return ShapeOf(spec, half ? KvType::kF16 : options.k_type, half ? KvType::kF16 : options.v_type,
                 options.block_size);
}

Status CheckOptions(std::span<const KvSpec> layers, const KvOptions& options) {
  if (options.block_size < 1 || options.block_size > 1024) {
    return Err(ErrorCode::kInvalidArgument, "a KV block of {} positions: choose 1 to 1024",
               options.block_size);
  }
  const bool k_kivi = options.k_type == KvType::kKivi2;
  if (k_kivi != (options.v_type == KvType::kKivi2)) {
    return Err(ErrorCode::kInvalidArgument,
               "kivi2 is a type for keys and values together; keys are {} and values {}",
               Name(options.k_type), Name(options.v_type));
  }
  if (!k_kivi) return {};
  if (options.block_size % 4 != 0) {
    return Err(ErrorCode::kInvalidArgument,
               "kivi2 needs KV blocks of a multiple of 4 positions, not {}", options.block_size);
  }
  bool any_full = false;
  for (const KvSpec& spec : layers) {
    any_full = any_full || spec.window == 0;
    if (spec.v_dim == 0) {
      return Err(ErrorCode::kInvalidArgument,
                 "kivi2 cannot store the latent cache of this model; choose f16, int8 or fp8");
    }
  }
  if (!any_full) {
    return Err(ErrorCode::kInvalidArgument,
               "kivi2 has nothing to pack: every layer of this model has a sliding window");
  }
  return {};
}

// Layers of one kind and page size, before they are cut into groups.
struct Part {
  KvGroupKind kind = KvGroupKind::kFull;
  int64_t window = 0;
  int64_t page_bytes = 0;
  std::vector<int32_t> layers;
};

void AddLayer(std::vector<Part>& parts, KvGroupKind kind, int64_t window, int64_t page_bytes,
              int32_t layer) {
  for (Part& part : parts) {
    if (part.kind == kind && part.window == window && part.page_bytes == page_bytes) {
      part.layers.push_back(layer);
      return;
    }
  }
  parts.push_back({.kind = kind, .window = window, .page_bytes = page_bytes, .layers = {layer}});
}

std::vector<Part> PartsOf(std::span<const KvSpec> layers, const KvOptions& options) {
  std::vector<Part> parts;
  for (size_t i = 0; i < layers.size(); ++i) {
    const KvSpec& spec = layers[i];
    LUCID_CHECK(spec.heads > 0 && spec.k_dim > 0 && spec.v_dim >= 0 && spec.window >= 0,
                "KV layer {} has an impossible shape", i);
    const bool kivi = options.k_type == KvType::kKivi2 && spec.window == 0;
    const int32_t layer = static_cast<int32_t>(i);
    const KvGroupKind kind = kivi              ? KvGroupKind::kPacked
                             : spec.window > 0 ? KvGroupKind::kWindow
                                               : KvGroupKind::kFull;
    AddLayer(parts, kind, spec.window, ShapeOf(spec, options, false).bytes(), layer);
    if (kivi) {
      // One position more than the residual: a block is packed, from these pages, in the step whose
      // query no longer reads them.
      AddLayer(parts, KvGroupKind::kWindow, kKiviResidual + 1, ShapeOf(spec, options, true).bytes(),
               layer);
    }
  }
  return parts;
}

}  // namespace

Result<KvLayout> KvLayout::Make(std::span<const KvSpec> layers, const KvOptions& options) {
  LUCID_RETURN_IF_ERROR(CheckOptions(layers, options));
  KvLayout layout;
  layout.options_ = options;
  layout.layers_.assign(layers.begin(), layers.end());
  layout.places_.resize(layers.size());
  const std::vector<Part> parts = PartsOf(layers, options);

  std::vector<int64_t> sizes;  // page bytes by pool
  for (const Part& part : parts) {
    if (std::find(sizes.begin(), sizes.end(), part.page_bytes) == sizes.end()) {
      sizes.push_back(part.page_bytes);
    }
  }
  if (sizes.size() > size_t{kMaxKvPools}) {
    return Err(ErrorCode::kUnsupported,
               "the layers of this model need KV pages of {} sizes; at most {} are possible",
               sizes.size(), kMaxKvPools);
  }
  for (size_t pool = 0; pool < sizes.size(); ++pool) {
    int64_t group_size = 0;
    for (const Part& part : parts) {
      if (part.page_bytes == sizes[pool]) {
        group_size = std::gcd(group_size, static_cast<int64_t>(part.layers.size()));
      }
    }
    layout.pools_.push_back(
        {.page_bytes = std::vector<int64_t>(static_cast<size_t>(group_size), sizes[pool]),
         .block_bytes = group_size * sizes[pool]});
  }
  for (const Part& part : parts) {
    const auto pool = std::find(sizes.begin(), sizes.end(), part.page_bytes) - sizes.begin();
    layout.AddPart(part.kind, part.window, part.layers, part.page_bytes,
                   std::ssize(layout.pools_[static_cast<size_t>(pool)].page_bytes),
                   static_cast<int32_t>(pool));
  }
  if (layout.rules_.size() > size_t{kMaxKvRules}) {
    return Err(ErrorCode::kUnsupported,
               "the layers of this model have windows of {} sizes; at most {} are possible",
               layout.rules_.size(), kMaxKvRules);
  }
  return layout;
}

// Cuts `layers` into groups of group_size.
void KvLayout::AddPart(KvGroupKind kind, int64_t window, std::span<const int32_t> layers,
                       int64_t page_bytes, int64_t group_size, int32_t pool) {
  LUCID_CHECK(page_bytes > 0 && std::ssize(layers) % group_size == 0);
  size_t rule = 0;
  while (rule < rules_.size() && (rules_[rule].kind != kind || rules_[rule].window != window)) {
    ++rule;
  }
  if (rule == rules_.size()) rules_.push_back({.kind = kind, .window = window, .groups = {}});

  // The recent pages of a kivi2 layer may share their rule with a layer whose window is as long.
  for (size_t i = 0; i < layers.size(); ++i) {
    const int32_t slot = static_cast<int32_t>(i) % static_cast<int32_t>(group_size);
    if (slot == 0) {
      rules_[rule].groups.push_back(static_cast<int32_t>(groups_.size()));
      groups_.push_back({.kind = kind,
                         .window = window,
                         .pool = pool,
                         .rule = static_cast<int32_t>(rule),
                         .layers = {}});
    }
    const int32_t layer = layers[i];
    groups_.back().layers.push_back(layer);
    KvPlace& place = places_[static_cast<size_t>(layer)];
    const bool recent =
        kind == KvGroupKind::kWindow && layers_[static_cast<size_t>(layer)].window == 0;
    const int32_t group = static_cast<int32_t>(groups_.size()) - 1;
    if (recent) {
      place.recent_group = group;
      place.recent_slot = slot;
    } else {
      place.group = group;
      place.slot = slot;
    }
  }
}

BlockRange KvLayout::Needed(const KvRule& rule, int64_t n_computed, int64_t n_tokens) const {
  const int64_t size = options_.block_size;
  switch (rule.kind) {
    case KvGroupKind::kFull:
      return {0, CeilDiv(n_tokens, size)};
    case KvGroupKind::kWindow:
      return {std::max<int64_t>(0, n_computed + 1 - rule.window) / size, CeilDiv(n_tokens, size)};
    case KvGroupKind::kPacked:
      return {0, std::max<int64_t>(0, n_tokens - kKiviResidual) / size};
  }
  return {};
}

PoolCounts KvLayout::BlocksFor(int64_t n_computed, int64_t n_tokens) const {
  PoolCounts blocks{};
  for (size_t g = 0; g < groups_.size(); ++g) {
    blocks[static_cast<size_t>(groups_[g].pool)] += Needed(g, n_computed, n_tokens).size();
  }
  return blocks;
}

int64_t KvLayout::BytesFor(int64_t n_tokens) const {
  return Bytes(BlocksFor(n_tokens, n_tokens));
}

int64_t KvLayout::Bytes(const PoolCounts& blocks) const {
  int64_t bytes = 0;
  for (size_t p = 0; p < pools_.size(); ++p) bytes += blocks[p] * pools_[p].block_bytes;
  return bytes;
}

int64_t KvLayout::BytesPerToken() const {
  int64_t bytes = 0;
  for (const KvSpec& spec : layers_) bytes += ShapeOf(spec, options_, false).bytes();
  return bytes / options_.block_size;
}

KvPages KvLayout::Pages(size_t layer, bool recent) const {
  const PageShape shape = ShapeOf(layers_[layer], options_, recent);
  KvPages pages;
  pages.page_bytes = shape.bytes();
  pages.v_offset = shape.k_bytes;
  pages.k_type = shape.k_type;
  pages.v_type = shape.v_type;
  pages.table = recent ? places_[layer].recent_group : places_[layer].group;
  return pages;
}

// The most blocks of a group that n_sequences sequences of up to `context` tokens hold, while one
// step computes max_step_tokens of theirs. With t_i tokens in the step a sequence touches
// window - 1 + t_i places in a row, which lie in at most (window + t_i - 3) / size + 2 blocks.
int64_t KvLayout::MostBlocks(const KvGroup& group, int64_t n_sequences, int64_t context,
                             int64_t max_step_tokens) const {
  const int64_t size = options_.block_size;
  const KvRule& rule = rules_[static_cast<size_t>(group.rule)];
  const int64_t all = n_sequences * Needed(rule, 0, context).size();
  if (group.kind != KvGroupKind::kWindow) return all;
  return std::min(all, CeilDiv(n_sequences * (rule.window + 2 * size) + max_step_tokens, size));
}

Result<PoolCounts> KvLayout::Fit(int64_t bytes, int64_t max_sequences,
                                 int64_t max_step_tokens) const {
  // No pool goes without a block for each of its groups.
  PoolCounts blocks{};
  PoolCounts growing{};  // groups whose blocks grow with a sequence
  PoolCounts wanted{};   // what windows can use at most
  // Windows are far shorter than this; the product with any number of sequences fits 64 bits.
  constexpr int64_t kLong = int64_t{1} << 40;
  const int64_t sequences = std::clamp<int64_t>(max_sequences, 1, 1 << 20);
  for (const KvGroup& group : groups_) {
    const size_t p = static_cast<size_t>(group.pool);
    ++blocks[p];
    if (group.kind == KvGroupKind::kWindow) {
      wanted[p] += MostBlocks(group, sequences, kLong, max_step_tokens);
    } else {
      ++growing[p];
    }
  }
  int64_t left = bytes - Bytes(blocks);
  if (left < 0) {
    return Err(ErrorCode::kCapacity,
               "{} bytes of KV memory hold not one block of {} positions; that takes {} bytes",
               bytes, options_.block_size, Bytes(blocks));
  }

  PoolCounts extra{};
  for (size_t p = 0; p < pools_.size(); ++p) {
    if (growing[p] == 0) extra[p] = std::max<int64_t>(0, wanted[p] - blocks[p]);
  }
  const bool only_windows = growing == PoolCounts{};
  const int64_t most = only_windows ? left : left / 2;
  const int64_t asked = Bytes(extra);
  // Where windows ask for more than they may have (or are all there is), each pool gets its share.
  const double scale = asked > most || (only_windows && asked > 0)
                           ? static_cast<double>(most) / static_cast<double>(asked)
                           : 1.0;
  for (size_t p = 0; p < pools_.size(); ++p) {
    extra[p] = std::min(static_cast<int64_t>(static_cast<double>(extra[p]) * scale),
                        left / pools_[p].block_bytes);
    left -= extra[p] * pools_[p].block_bytes;
    blocks[p] += extra[p];
  }

  int64_t row_bytes = 0;  // one more block for every group that grows
  for (size_t p = 0; p < pools_.size(); ++p) row_bytes += growing[p] * pools_[p].block_bytes;
  if (row_bytes == 0) return blocks;
  const int64_t rows = left / row_bytes;
  left -= rows * row_bytes;
  for (size_t p = 0; p < pools_.size(); ++p) {
    blocks[p] += rows * growing[p];
    if (growing[p] == 0) continue;
    const int64_t rest = std::min(left / pools_[p].block_bytes, growing[p]);
    blocks[p] += rest;
    left -= rest * pools_[p].block_bytes;
  }
  for (size_t p = 0; p < pools_.size(); ++p) {
    // Tables are 32-bit.
    blocks[p] = std::min<int64_t>(blocks[p], std::numeric_limits<int32_t>::max());
  }
  return blocks;
}

PoolCounts KvLayout::BlocksForAll(int64_t n_sequences, int64_t context,
                                  int64_t max_step_tokens) const {
  PoolCounts blocks{};
  for (const KvGroup& group : groups_) {
    blocks[static_cast<size_t>(group.pool)] +=
        MostBlocks(group, n_sequences, context, max_step_tokens);
  }
  return blocks;
}

}  // namespace lucid
