// Handing a sequence from one engine to another: its cache blocks and all that its reply depends
// on.
//
// The transport is an interface; InProcessTransport connects two engines of one process. The engine
// that takes a sequence restores its blocks; where its cache has no room, the sequence waits and
// its tokens are computed again, each in its own phase, so that the reply is the same.
#pragma once

#include <memory>
#include <vector>

#include "engine/request.h"
#include "kv/kv_snapshot.h"

namespace lucid {

class Engine;
class StreamChannel;

// One running sequence. The reply's state (sampler, stop strings, half characters) follows from its
// tokens, so it is rebuilt, not sent.
struct SequenceHandover {
  Request request;
  std::vector<TokenId> reply;  // so far; already told to the stream
  RequestStats stats;          // so far
  int64_t max_length = 0;      // of prompt and reply
  double age_seconds = 0;      // since Submit
  KvSnapshot cache;            // of all tokens but the newest
  std::shared_ptr<StreamChannel> stream;
};

// The way to the other engine: within this process, later over a network.
class SequenceSender {
 public:
  virtual ~SequenceSender() = default;
  // Takes the sequence over, or says why it cannot; then the sender's engine goes on with it.
  virtual Status Send(SequenceHandover& handover) = 0;
};

// To an engine of the same process, which must outlive the transport.
class InProcessTransport final : public SequenceSender {
 public:
  explicit InProcessTransport(Engine& target) : target_(target) {}
  Status Send(SequenceHandover& handover) override;

 private:
  Engine& target_;
};

}  // namespace lucid
