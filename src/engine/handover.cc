#include "engine/handover.h"

#include <utility>

#include "engine/engine.h"

namespace lucid {

Status InProcessTransport::Send(SequenceHandover& handover) {
  if (handover.cache.fingerprint != target_.fingerprint()) {
    return Err(ErrorCode::kInvalidArgument,
               "the decode engine has another model, other kernels or another cache type");
  }
  target_.Accept(std::move(handover));
  return {};
}

}  // namespace lucid
