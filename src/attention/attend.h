// The driver of the kernels: cuts a read into tasks and walks each over its pages.
#pragma once

#include <span>

#include "attention/kernel.h"
#include "windrow/attention.h"
#include "windrow/status.h"
#include "windrow/threads.h"

namespace windrow::internal {

// AttentionKernels::attend with an explicit table, arguments checked before (validate_attention).
// Working memory is two buffers a thread (thread_local), grown when a call needs more and kept, so
// concurrent calls and pools don't meet. kResourceExhausted when it can't grow; out is unspecified then.
Status attend_with(const Kernels& kernels, const KvRead& read, std::span<const float> q,
                   const AttentionParams& params, std::span<float> out, ThreadPool* pool);

}  // namespace windrow::internal
