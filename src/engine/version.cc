#include "engine/version.h"

namespace lucid {

const char* Version() {
  return LUCID_VERSION;
}

}  // namespace lucid
