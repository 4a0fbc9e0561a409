#include "server/async_stream.h"

#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

namespace lucid::server {

namespace asio = boost::asio;

// A timer that never ends: cancelling it wakes who waits for it.
struct AsyncStream::Signal {
  explicit Signal(const asio::any_io_executor& executor)
      : timer(executor, asio::steady_timer::time_point::max()) {}
  asio::steady_timer timer;
};

AsyncStream::AsyncStream(Stream stream, const asio::any_io_executor& executor)
    : stream_(std::move(stream)), signal_(std::make_shared<Signal>(executor)) {
  stream_.OnOutput([signal = signal_] {
    asio::post(signal->timer.get_executor(), [signal] { signal->timer.cancel(); });
  });
}

AsyncStream::~AsyncStream() {
  if (signal_ != nullptr) stream_.OnOutput(nullptr);
}

asio::awaitable<std::optional<TokenOutput>> AsyncStream::Next() {
  while (true) {
    if (std::optional<TokenOutput> output = stream_.TryNext()) co_return output;
    if (stream_.ended()) co_return std::nullopt;
    // What comes between the look above and the wait is not missed: the wake-up is posted to this
    // thread, which comes to it only once the wait has begun.
    boost::system::error_code ignored;
    co_await signal_->timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    const auto cancelled = (co_await asio::this_coro::cancellation_state).cancelled();
    if (cancelled != asio::cancellation_type::none) {
      throw boost::system::system_error(asio::error::operation_aborted);
    }
  }
}

}  // namespace lucid::server
