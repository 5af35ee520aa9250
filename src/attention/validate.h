// What every attention call must hold before a kernel touches memory.
#pragma once

#include <cstddef>

#include "windrow/attention.h"
#include "windrow/kv_read.h"
#include "windrow/status.h"

namespace windrow::internal {

// kInvalidArgument, naming what is wrong, unless: the read's dims, the layouts of the storages in use and
// the descriptors agree with each other (kv_read.h) and every visible slot has its page; q_heads is a
// multiple of kv_heads; scale, softcap and sinks are numbers that mean something; q and out have their exact
// sizes. O(rows + tokens + visible pages), no allocation when all is well.
Status validate_attention(const KvRead& read, std::size_t q_size, const AttentionParams& params,
                          std::size_t out_size);

}  // namespace windrow::internal
