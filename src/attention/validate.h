// What every attention call must hold before a kernel touches memory.
#pragma once

#include <cstddef>

#include "windrow/attention.h"
#include "windrow/status.h"
#include "windrow/store.h"

namespace windrow::internal {

// kInvalidArgument, naming what is wrong, unless: the read's dims, layout and descriptors agree with
// each other and every visible position has its page in the table; q_heads is a multiple of kv_heads;
// scale, softcap and sinks are numbers that mean something; q and out have their exact sizes.
// O(rows + tokens), no allocation when all is well.
Status validate_attention(const KvRead& read, std::size_t q_size, const AttentionParams& params,
                          std::size_t out_size);

// The first position that a query at `position` sees.
constexpr int window_begin(int position, int window) { return position < window ? 0 : position - window + 1; }

}  // namespace windrow::internal
