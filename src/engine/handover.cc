#include "engine/handover.h"

#include <utility>

#include "engine/engine.h"

namespace lucid {

Status InProcessTransport::Send(SequenceHandover& handover) {
  LUCID_RETURN_IF_ERROR(target_.CheckAccept(handover));
  target_.Accept(std::move(handover));
  return {};
}

}  // namespace lucid
