#include "engine/stream.h"

#include <utility>

#include "base/check.h"
#include "engine/stream_channel.h"

namespace lucid {

void StreamChannel::Push(TokenOutput output) {
  {
    const std::lock_guard lock(mutex_);
    output.request = id_;
    output.made = std::chrono::steady_clock::now();
    if (output.cause != StopCause::kNone) --open_replies_;
    outputs_.push_back(std::move(output));
  }
  Notify();
}

void StreamChannel::Notify() {
  changed_.notify_all();
  const std::lock_guard lock(ready_mutex_);
  if (ready_) ready_();
}

void StreamChannel::OnOutput(std::function<void()> ready) {
  const std::lock_guard lock(ready_mutex_);
  ready_ = std::move(ready);
  if (ready_) ready_();
}

void StreamChannel::SetOwner(StreamOwner& owner, RequestId id) {
  const std::lock_guard lock(mutex_);
  owner_ = &owner;
  owner_id_ = id;
}

void StreamChannel::Wake() {
  // Between a reader's look at the owner and its wait the lock is held, so the call is not lost.
  { const std::lock_guard lock(mutex_); }
  changed_.notify_all();
}

void StreamChannel::Abandon() {
  {
    const std::lock_guard lock(mutex_);
    owner_ = nullptr;
    open_replies_ = 0;
  }
  Notify();
}

std::optional<TokenOutput> StreamChannel::TakeLocked() {
  if (outputs_.empty()) return std::nullopt;
  TokenOutput output = std::move(outputs_.front());
  outputs_.pop_front();
  return output;
}

std::optional<TokenOutput> StreamChannel::TryNext() {
  const std::lock_guard lock(mutex_);
  return TakeLocked();
}

std::optional<TokenOutput> StreamChannel::Next() {
  std::unique_lock lock(mutex_);
  while (true) {
    if (!outputs_.empty()) return TakeLocked();
    if (open_replies_ <= 0 || owner_ == nullptr) return std::nullopt;
    if (owner_->has_worker()) {
      changed_.wait(lock);
      continue;
    }
    StreamOwner* owner = owner_;
    lock.unlock();
    const bool worked = owner->PullStep();
    lock.lock();
    LUCID_CHECK(worked || !outputs_.empty() || open_replies_ <= 0,
                "request {} is open, but the engine has nothing to do", id_);
  }
}

bool StreamChannel::abort_requested() const {
  const std::lock_guard lock(mutex_);
  return abort_requested_;
}

bool StreamChannel::ended() const {
  const std::lock_guard lock(mutex_);
  return outputs_.empty() && open_replies_ <= 0;
}

void StreamChannel::Abort() {
  StreamOwner* owner = nullptr;
  RequestId id = 0;
  {
    const std::lock_guard lock(mutex_);
    if (open_replies_ <= 0) return;
    abort_requested_ = true;
    owner = owner_;
    id = owner_id_;
  }
  if (owner != nullptr) owner->AbortRequest(id);
}

Stream::Stream(std::shared_ptr<StreamChannel> channel) : channel_(std::move(channel)) {}

Stream& Stream::operator=(Stream&& other) noexcept {
  if (this == &other) return *this;
  if (channel_ != nullptr) channel_->Abort();
  channel_ = std::move(other.channel_);
  return *this;
}

Stream::~Stream() {
  if (channel_ != nullptr) channel_->Abort();
}

RequestId Stream::id() const {
  return channel_ != nullptr ? channel_->id() : 0;
}
std::optional<TokenOutput> Stream::Next() {
  return channel_ != nullptr ? channel_->Next() : std::nullopt;
}
std::optional<TokenOutput> Stream::TryNext() {
  return channel_ != nullptr ? channel_->TryNext() : std::nullopt;
}
void Stream::OnOutput(std::function<void()> ready) {
  if (channel_ != nullptr) channel_->OnOutput(std::move(ready));
}
bool Stream::ended() const {
  return channel_ == nullptr || channel_->ended();
}
void Stream::Abort() {
  if (channel_ != nullptr) channel_->Abort();
}

}  // namespace lucid
