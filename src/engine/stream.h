// Stream: the outputs of one request, in order.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "engine/request.h"

namespace lucid {

class StreamChannel;

// Move-only. Dropping a stream before its end aborts the request. The engine must outlive it. A
// default-made or moved-from stream is one that has ended.
class Stream {
 public:
  Stream() = default;
  explicit Stream(std::shared_ptr<StreamChannel> channel);
  Stream(Stream&&) noexcept = default;
  Stream& operator=(Stream&&) noexcept;
  ~Stream();

  RequestId id() const;
  // The next output; nothing after the last. Waits for the engine's worker; an engine without one,
  // or whose worker was stopped, is stepped by this call.
  std::optional<TokenOutput> Next();
  // The next output if one is there.
  std::optional<TokenOutput> TryNext();
  // `ready` is called after each output, and once nothing more will come, on the thread that made
  // it; it must be quick. At once, where there is something already. nullptr: no more, and no call
  // is under way any more when this one comes back.
  void OnOutput(std::function<void()> ready);
  // Every reply has ended and every output was taken.
  bool ended() const;
  // Ends the request within one step; what it did so far comes as its last output (kAborted).
  void Abort();

 private:
  std::shared_ptr<StreamChannel> channel_;
};

}  // namespace lucid
