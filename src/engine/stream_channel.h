// StreamChannel: the queue between the engine's loop and the reader of one request.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>

#include "engine/request.h"

namespace lucid {

// Who works on a request: an engine's loop.
class StreamOwner {
 public:
  virtual ~StreamOwner() = default;
  virtual void AbortRequest(RequestId id) = 0;
  // True if a thread of its own does the work; else readers call PullStep().
  virtual bool has_worker() const = 0;
  virtual bool PullStep() = 0;
};

class StreamChannel {
 public:
  StreamChannel(RequestId id, int32_t n_replies, StreamOwner& owner)
      : id_(id), open_replies_(n_replies), owner_(&owner), owner_id_(id) {}

  RequestId id() const { return id_; }

  // By the loop.
  void Push(TokenOutput output);
  // Another engine goes on with the request, under an id of its own.
  void SetOwner(StreamOwner& owner, RequestId id);
  // The reader asked for the end; an engine that takes the request over must look.
  bool abort_requested() const;
  // Who works on the request has changed: waiting readers look again.
  void Wake();
  // The loop has gone; nothing more will come.
  void Abandon();

  // By the reader.
  std::optional<TokenOutput> Next();
  std::optional<TokenOutput> TryNext();
  void OnOutput(std::function<void()> ready);
  bool ended() const;
  void Abort();

 private:
  void Notify();
  std::optional<TokenOutput> TakeLocked();

  const RequestId id_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<TokenOutput> outputs_;
  int32_t open_replies_;
  StreamOwner* owner_;  // nullptr once nobody works on it
  RequestId owner_id_;
  bool abort_requested_ = false;
  std::mutex ready_mutex_;  // held while ready_ runs; never together with mutex_
  std::function<void()> ready_;
};

}  // namespace lucid
