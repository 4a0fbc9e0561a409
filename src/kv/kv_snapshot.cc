#include "kv/kv_snapshot.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>

#include "base/check.h"
#include "base/output_file.h"
#include "base/unique_fd.h"

namespace lucid {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the file is written as it lies in memory");

constexpr std::array<char, 8> kMagic = {'L', 'U', 'C', 'I', 'D', 'K', 'V', '\0'};
constexpr uint32_t kVersion = 1;

// The file: header, n_groups x FileGroup, n_tokens x int32, block_bytes bytes, and the XXH3 of all
// that as a uint64. Little-endian.
struct FileHeader {
  std::array<char, 8> magic = kMagic;
  uint32_t version = kVersion;
  uint32_t n_groups = 0;
  uint64_t fingerprint = 0;
  uint64_t n_tokens = 0;
  uint64_t n_prompt = 0;
  uint64_t block_bytes = 0;
};
static_assert(sizeof(FileHeader) == 48);
using FileGroup = KvSnapshot::Group;
static_assert(sizeof(FileGroup) == 16);
using Checksum = uint64_t;

int64_t BlockBytes(const KvLayout& layout, size_t group) {
  return layout.pools()[static_cast<size_t>(layout.groups()[group].pool)].block_bytes;
}

struct SnapshotBlock {
  size_t group = 0;
  int64_t logical = 0;
  int32_t pool = 0;
  int32_t physical = 0;
};

// Calls visit(SnapshotBlock) for the blocks of a snapshot, in its order.
template <typename Visit>
void ForEachBlock(const KvCache& cache, SequenceHandle sequence, const KvSnapshot& snapshot,
                  const Visit& visit) {
  for (size_t g = 0; g < snapshot.groups.size(); ++g) {
    const std::span<const int32_t> table = cache.Table(sequence, g);
    const auto [first, count] = snapshot.groups[g];
    for (int64_t logical = first; logical < first + count; ++logical) {
      const auto entry = static_cast<size_t>(logical);
      LUCID_CHECK(entry < table.size() && table[entry] >= 0, "block {} is not there", logical);
      visit(SnapshotBlock{.group = g,
                          .logical = logical,
                          .pool = cache.layout().groups()[g].pool,
                          .physical = table[entry]});
    }
  }
}

// Zeroes the places of a block from `n_used` on: what its earlier owners left there belongs to
// nobody who reads the snapshot. Only blocks of single positions are ever used in part.
void ClearUnused(const KvLayout& layout, size_t group, int64_t n_used, std::byte* block) {
  const int64_t n_unused = layout.block_size() - n_used;
  for (const int32_t layer : layout.groups()[group].layers) {
    const KvSpec& spec = layout.layers()[static_cast<size_t>(layer)];
    const bool recent =
        layout.place(static_cast<size_t>(layer)).group != static_cast<int32_t>(group);
    const KvPages pages = layout.Pages(static_cast<size_t>(layer), recent);
    const auto clear = [&](KvType type, int64_t dim, std::byte* rows) {
      if (dim == 0) return;
      const int64_t row_bytes = KvRowBytes(type, dim);
      for (int64_t head = 0; head < spec.heads; ++head, rows += layout.block_size() * row_bytes)
        std::memset(rows + n_used * row_bytes, 0, static_cast<size_t>(n_unused * row_bytes));
    };
    clear(pages.k_type, spec.k_dim, block);
    clear(pages.v_type, spec.v_dim, block + pages.v_offset);
    block += pages.page_bytes;
  }
}

struct FreeHash {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

// XXH3, 64 bits, of what it is fed.
class Hash {
 public:
  Hash() : state_(XXH3_createState()) {
    LUCID_CHECK(state_ != nullptr && XXH3_64bits_reset(state_.get()) == XXH_OK);
  }
  void Add(std::span<const std::byte> bytes) {
    LUCID_CHECK(XXH3_64bits_update(state_.get(), bytes.data(), bytes.size()) == XXH_OK);
  }
  Checksum Digest() const { return XXH3_64bits_digest(state_.get()); }

 private:
  std::unique_ptr<XXH3_state_t, FreeHash> state_;
};

// A regular file, read from its start to its end.
class SnapshotReader {
 public:
  static Result<SnapshotReader> Open(const std::string& path) {
    SnapshotReader reader;
    reader.path_ = path;
    LUCID_ASSIGN_OR_RETURN(reader.file_, OpenRegularFile(path, ErrorCode::kInvalidFile));
    return reader;
  }

  uint64_t size() const { return static_cast<uint64_t>(file_.bytes); }
  Checksum checksum() const { return hash_.Digest(); }  // of all that was read

  template <typename T>
  Status ReadInto(std::span<T> items) {
    std::span<std::byte> bytes = std::as_writable_bytes(items);
    while (!bytes.empty()) {
      // In pieces that stay in the processor's cache until they are hashed.
      const ssize_t got =
          ::read(file_.fd.get(), bytes.data(), std::min<size_t>(bytes.size(), size_t{1} << 18));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return Err(ErrorCode::kIo, "cannot read {}: {}", path_, std::strerror(errno));
      if (got == 0)
        return Err(ErrorCode::kInvalidFile, "{} was cut short while it was read", path_);
      hash_.Add(bytes.first(static_cast<size_t>(got)));
      bytes = bytes.subspan(static_cast<size_t>(got));
    }
    return {};
  }

 private:
  SnapshotReader() = default;

  OpenedFile file_;
  std::string path_;
  Hash hash_;
};

// What is wrong with the header of a file of `size` bytes.
Status CheckHeader(const FileHeader& header, uint64_t size, const std::string& path) {
  if (header.magic != kMagic) return Err(ErrorCode::kInvalidFile, "{} is not a saved cache", path);
  if (header.version != kVersion) {
    return Err(ErrorCode::kInvalidFile,
               "{} is a saved cache of format {}; this program reads format {}", path,
               header.version, kVersion);
  }
  // Each part is compared with the file first, so that the sum cannot overflow.
  const uint64_t fixed = sizeof(FileHeader) + sizeof(Checksum);
  const bool parts_fit = header.n_groups <= size / sizeof(FileGroup) &&
                         header.n_tokens <= size / sizeof(int32_t) && header.block_bytes <= size;
  if (!parts_fit || fixed + header.n_groups * sizeof(FileGroup) +
                            header.n_tokens * sizeof(int32_t) + header.block_bytes !=
                        size) {
    return Err(ErrorCode::kInvalidFile, "{} is cut short or damaged: {} bytes are not what it says",
               path, size);
  }
  if (header.n_prompt > header.n_tokens) {
    return Err(ErrorCode::kInvalidFile, "{} is damaged: {} prompt tokens of {}", path,
               header.n_prompt, header.n_tokens);
  }
  return {};
}

template <typename T>
std::span<const std::byte> Bytes(const T& items) {
  return std::as_bytes(std::span(items));
}

// kCapacity if the cache cannot give the blocks that n_tokens computed tokens hold.
Status CheckRoom(const KvCache& cache, int64_t n_tokens) {
  const PoolCounts need = cache.layout().BlocksFor(n_tokens, n_tokens);
  const PoolCounts available = cache.available();
  for (size_t pool = 0; pool < cache.layout().pools().size(); ++pool) {
    if (need[pool] > available[pool]) {
      return Err(ErrorCode::kCapacity,
                 "the saved cache of {} tokens needs {} cache blocks; {} are available", n_tokens,
                 need[pool], available[pool]);
    }
  }
  return {};
}

// Whether the snapshot has the blocks that a sequence of its length holds.
bool HasShapeOf(const KvLayout& layout, const KvSnapshot& snapshot) {
  const int64_t n_tokens = std::ssize(snapshot.tokens);
  if (snapshot.groups.size() != layout.groups().size()) return false;
  if (snapshot.n_prompt < 0 || snapshot.n_prompt > n_tokens) return false;
  int64_t bytes = 0;
  for (size_t g = 0; g < snapshot.groups.size(); ++g) {
    const BlockRange needed = layout.Needed(g, n_tokens, n_tokens);
    if (snapshot.groups[g].n_blocks != needed.size()) return false;
    if (needed.size() > 0 && snapshot.groups[g].first_block != needed.first) return false;
    bytes += needed.size() * BlockBytes(layout, g);
  }
  return std::ssize(snapshot.blocks) == bytes;
}

}  // namespace

KvSnapshot TakeSnapshot(const KvCache& cache, SequenceHandle sequence,
                        std::span<const int32_t> tokens, uint64_t fingerprint) {
  const KvLayout& layout = cache.layout();
  const int64_t n_tokens = std::ssize(tokens);
  LUCID_CHECK(n_tokens == cache.length(sequence) && cache.dropped(sequence) == 0 &&
              !cache.swapped(sequence));
  KvSnapshot snapshot{.fingerprint = fingerprint,
                      .tokens = {tokens.begin(), tokens.end()},
                      .n_prompt = cache.prompt_length(sequence)};
  int64_t bytes = 0;
  for (size_t g = 0; g < layout.groups().size(); ++g) {
    const BlockRange needed = layout.Needed(g, n_tokens, n_tokens);
    snapshot.groups.push_back({.first_block = needed.first, .n_blocks = needed.size()});
    bytes += needed.size() * BlockBytes(layout, g);
  }
  snapshot.blocks.resize(static_cast<size_t>(bytes));
  std::byte* next = snapshot.blocks.data();
  ForEachBlock(cache, sequence, snapshot, [&](const SnapshotBlock& block) {
    cache.memory().ReadBlock(block.pool, block.physical, next);
    const int64_t n_used = n_tokens - block.logical * layout.block_size();
    if (n_used < layout.block_size()) ClearUnused(layout, block.group, n_used, next);
    next += BlockBytes(layout, block.group);
  });
  return snapshot;
}

Status RestoreSnapshot(KvCache& cache, SequenceHandle sequence, const KvSnapshot& snapshot,
                       uint64_t fingerprint) {
  LUCID_CHECK(cache.length(sequence) == 0);
  if (snapshot.fingerprint != fingerprint || !HasShapeOf(cache.layout(), snapshot)) {
    return Err(ErrorCode::kInvalidArgument,
               "the saved cache belongs to another model or another cache type");
  }
  const int64_t n_tokens = std::ssize(snapshot.tokens);
  LUCID_RETURN_IF_ERROR(CheckRoom(cache, n_tokens));
  LUCID_CHECK(cache.ReserveRestored(sequence, n_tokens));
  const std::byte* next = snapshot.blocks.data();
  ForEachBlock(cache, sequence, snapshot, [&](const SnapshotBlock& block) {
    cache.memory().WriteBlock(block.pool, block.physical, next);
    next += BlockBytes(cache.layout(), block.group);
  });
  cache.Commit(sequence, snapshot.tokens, n_tokens, snapshot.n_prompt);
  return {};
}

Status WriteSnapshotFile(const std::string& path, const KvSnapshot& snapshot) {
  const FileHeader header{.n_groups = static_cast<uint32_t>(snapshot.groups.size()),
                          .fingerprint = snapshot.fingerprint,
                          .n_tokens = snapshot.tokens.size(),
                          .n_prompt = static_cast<uint64_t>(snapshot.n_prompt),
                          .block_bytes = snapshot.blocks.size()};
  LUCID_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path));
  Hash hash;
  for (const std::span<const std::byte> part :
       {std::as_bytes(std::span(&header, 1)), Bytes(snapshot.groups), Bytes(snapshot.tokens),
        Bytes(snapshot.blocks)}) {
    hash.Add(part);
    LUCID_RETURN_IF_ERROR(file.Write(part));
  }
  const Checksum checksum = hash.Digest();
  LUCID_RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(&checksum, 1))));
  return file.Commit();
}

Result<KvSnapshot> ReadSnapshotFile(const std::string& path) {
  LUCID_ASSIGN_OR_RETURN(SnapshotReader reader, SnapshotReader::Open(path));
  FileHeader header;
  if (reader.size() < sizeof(header) + sizeof(Checksum))
    return Err(ErrorCode::kInvalidFile, "{} is not a saved cache", path);
  LUCID_RETURN_IF_ERROR(reader.ReadInto(std::span(&header, 1)));
  LUCID_RETURN_IF_ERROR(CheckHeader(header, reader.size(), path));

  KvSnapshot snapshot;
  snapshot.fingerprint = header.fingerprint;
  snapshot.n_prompt = static_cast<int64_t>(header.n_prompt);
  try {
    snapshot.groups.resize(header.n_groups);
    snapshot.tokens.resize(header.n_tokens);
    snapshot.blocks.resize(header.block_bytes);
  } catch (const std::bad_alloc&) {
    return Err(ErrorCode::kCapacity, "no memory for the saved cache {} of {} bytes", path,
               reader.size());
  }
  LUCID_RETURN_IF_ERROR(reader.ReadInto(std::span(snapshot.groups)));
  LUCID_RETURN_IF_ERROR(reader.ReadInto(std::span(snapshot.tokens)));
  LUCID_RETURN_IF_ERROR(reader.ReadInto(std::span(snapshot.blocks)));
  const Checksum expected = reader.checksum();
  Checksum stored = 0;
  LUCID_RETURN_IF_ERROR(reader.ReadInto(std::span(&stored, 1)));
  if (stored != expected)
    return Err(ErrorCode::kInvalidFile, "{} is damaged: its checksum does not match", path);
  return snapshot;
}

}  // namespace lucid
