#include "engine/pack_writer.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "base/log.h"
#include "store/pack_cache.h"

namespace lucid {
namespace {

// The end of a process is held up for this long to see how fast the disk is, and then by this much
// at most.
constexpr std::chrono::seconds kLook{1};
constexpr double kMostSeconds = 5;

}  // namespace

PackWriter::PackWriter(const PackedWeights& weights, std::string file)
    : weights_(weights), file_(std::move(file)), thread_([this] { Write(); }) {}

PackWriter::~PackWriter() {
  const size_t before = written_;
  std::unique_lock lock(mutex_);
  if (!ended_.wait_for(lock, kLook, [this] { return done_; })) {
    const auto rate =
        static_cast<double>(written_ - before) / std::chrono::duration<double>(kLook).count();
    const auto left = static_cast<double>(weights_.bytes() - written_);
    if (left > rate * kMostSeconds) {
      LogInfo(
          "the packed weights were not kept, the disk is slow; 'lucid pack' does it in its own "
          "time");
      stop_ = true;
    }
  }
  lock.unlock();
  thread_.join();
}

void PackWriter::Wait() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return done_; });
}

void PackWriter::Write() {
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), 19);  // of this thread
  const Status status = [&]() -> Status {
    const uint64_t bytes = weights_.file_bytes();
    LUCID_ASSIGN_OR_RETURN(const uint64_t limit, PackCacheLimit());
    if (bytes > limit) {
      LogInfo("packed weights of {} bytes are not kept: LUCID_PACK_GB allows {}", bytes, limit);
      return {};
    }
    LUCID_RETURN_IF_ERROR(MakePackRoom(file_, bytes, limit));
    LUCID_ASSIGN_OR_RETURN(const bool written, weights_.Write(file_, [&](size_t done) {
      written_ = done;
      return !stop_;
    }));
    if (written) LogInfo("packed weights are kept in {}", file_);
    return {};
  }();
  if (!status && status.error().code != ErrorCode::kCancelled) {
    LogWarn("the packed weights are not kept for the next start: {}; --no-pack-cache does not try",
            status.error().message);
  }
  const std::lock_guard lock(mutex_);
  done_ = true;
  ended_.notify_all();
}

}  // namespace lucid
