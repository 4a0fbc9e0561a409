// OnWorker: what takes long (parsing, rendering, tokenising a long prompt) off the server's thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <type_traits>
#include <utility>

namespace lucid::server {

// Runs `work` on a thread of `pool`; the caller goes on with its result on its own executor.
template <typename Work>
boost::asio::awaitable<std::invoke_result_t<Work>> OnWorker(boost::asio::thread_pool& pool,
                                                            Work work) {
  using Value = std::invoke_result_t<Work>;
  co_return co_await boost::asio::co_spawn(
      pool, [&work]() -> boost::asio::awaitable<Value> { co_return work(); },
      boost::asio::use_awaitable);
}

}  // namespace lucid::server
