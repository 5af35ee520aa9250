// The status of a call that got no memory.
#pragma once

#include "windrow/status.h"

namespace windrow {

inline Status out_of_memory() {  // short enough to need no memory itself
  return Status(StatusCode::kResourceExhausted, "out of memory");
}

}  // namespace windrow
