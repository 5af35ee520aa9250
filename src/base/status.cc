#include "windrow/status.h"

namespace windrow {

const char* status_code_name(StatusCode code) noexcept {
  switch (code) {
    case StatusCode::kOk: return "ok";
    case StatusCode::kInvalidArgument: return "invalid argument";
    case StatusCode::kCorrupt: return "corrupt file";
    case StatusCode::kIo: return "input/output error";
    case StatusCode::kUnsupported: return "unsupported";
    case StatusCode::kFailedPrecondition: return "failed precondition";
    case StatusCode::kResourceExhausted: return "resource exhausted";
    case StatusCode::kInternal: return "internal error";
  }
  return "unknown status";
}

}  // namespace windrow
