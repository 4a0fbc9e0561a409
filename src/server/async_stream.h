// AsyncStream: the outputs of a request of the engine, for a coroutine to wait for. Between the
// engine's thread, which makes them, and the server's, which sends them.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <memory>
#include <optional>

#include "engine/stream.h"

namespace lucid::server {

// Move-only. Dropping it before its end ends the request within one step; so does a coroutine that
// is cancelled while it waits in Next.
class AsyncStream {
 public:
  // `executor` is the one of the coroutines that call Next, and of one thread.
  AsyncStream(Stream stream, const boost::asio::any_io_executor& executor);
  AsyncStream(AsyncStream&&) noexcept = default;
  AsyncStream& operator=(AsyncStream&&) noexcept = default;
  ~AsyncStream();

  // The next output; nothing after the last. Throws boost::system::system_error if cancelled.
  boost::asio::awaitable<std::optional<TokenOutput>> Next();
  // One that is there already.
  std::optional<TokenOutput> TryNext() { return stream_.TryNext(); }
  RequestId id() const { return stream_.id(); }
  void Abort() { stream_.Abort(); }

 private:
  struct Signal;
  Stream stream_;
  std::shared_ptr<Signal> signal_;
};

}  // namespace lucid::server
