#include "text/xz.h"

#include <lzma.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace lucid {
namespace {

constexpr unsigned char kMagic[] = {0xFD, '7', 'z', 'X', 'Z', 0x00};
// The dictionary of `xz -9` needs 65 MiB.
constexpr uint64_t kMemoryLimit = uint64_t{128} << 20;
constexpr size_t kStep = 1 << 20;

}  // namespace

bool LooksLikeXz(std::span<const std::byte> bytes) {
  return bytes.size() >= sizeof(kMagic) && std::memcmp(bytes.data(), kMagic, sizeof(kMagic)) == 0;
}

Result<std::string> DecompressXz(std::span<const std::byte> bytes, size_t max_bytes) {
  lzma_stream stream = LZMA_STREAM_INIT;
  if (lzma_stream_decoder(&stream, kMemoryLimit, LZMA_CONCATENATED) != LZMA_OK) {
    return Err(ErrorCode::kCapacity, "cannot start the xz decoder");
  }
  stream.next_in = reinterpret_cast<const uint8_t*>(bytes.data());
  stream.avail_in = bytes.size();
  std::string out;
  size_t used = 0;
  lzma_ret rc = LZMA_OK;
  while (rc == LZMA_OK && used <= max_bytes) {
    if (used == out.size()) out.resize(std::min(max_bytes + 1, std::max(out.size() * 2, kStep)));
    stream.next_out = reinterpret_cast<uint8_t*>(out.data()) + used;
    stream.avail_out = out.size() - used;
    rc = lzma_code(&stream, LZMA_FINISH);
    used = out.size() - stream.avail_out;
    if (used > max_bytes) break;
  }
  lzma_end(&stream);
  if (used > max_bytes)
    return Err(ErrorCode::kCapacity, "it unpacks to more than {} bytes", max_bytes);
  if (rc == LZMA_MEMLIMIT_ERROR)
    return Err(ErrorCode::kCapacity, "unpacking needs more than {} bytes of memory", kMemoryLimit);
  if (rc != LZMA_STREAM_END)
    return Err(ErrorCode::kInvalidFile, "the xz data is damaged or cut off");
  out.resize(used);
  return out;
}

}  // namespace lucid
