// AttentionKernels: a plan checked against what the kernels serve, and the table it gets.
#include <fmt/format.h>

#include <exception>
#include <string>
#include <utility>

#include "attention/attend.h"
#include "attention/validate.h"
#include "codec/block_layout.h"
#include "codec/slices.h"
#include "windrow/attention.h"

namespace windrow {
namespace internal {

Kernels select_kernels() {
  Kernels kernels;
  select_key_kernels(kernels);
  select_value_kernels(kernels);
  select_softmax_kernels(kernels);
  return kernels;
}

}  // namespace internal

struct AttentionKernels::Impl {
  StatePlan plan;
  internal::Kernels kernels;
  std::string target;
};

namespace {

// Whether the kernels serve a codec of a group; `what` is "keys" or "values".
Status check_codec(int group, const char* what, const Codec& codec, int dim) {
  if (Status s = codec.check(dim); !s.ok()) {
    return Status(StatusCode::kUnsupported,
                  fmt::format("attention kernels: group {}, {}: {}", group, what, s.message()));
  }
  return {};
}

// Whether the kernels convert f16 for every number of some storage of the group.
bool uses_f16(const AttentionGroup& group) {
  const auto is_f16 = [](const Codec& codec) { return codec == Codec::f16(); };
  return is_f16(group.keys) || is_f16(group.values) ||
         (group.delayed && (is_f16(group.delayed->keys) || is_f16(group.delayed->values)));
}

// Whether a storage of a read holds what the group's plan says: its codecs, or those it delays them by.
bool holds(const AttentionGroup& group, const BlockLayout& layout) {
  if (layout.keys.codec == group.keys && layout.values.codec == group.values) return true;
  return group.delayed && layout.keys.codec == group.delayed->keys &&
         layout.values.codec == group.delayed->values;
}

}  // namespace

AttentionKernels::AttentionKernels(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}

Result<AttentionKernels> AttentionKernels::select(const StatePlan& plan) {
  try {
    for (int g = 0; g < plan.group_count(); g++) {
      const AttentionGroup& group = plan.group(g);
      if (Status s = check_codec(g, "keys", group.keys, group.head_dim); !s.ok()) return s;
      if (Status s = check_codec(g, "values", group.values, group.value_dim); !s.ok()) return s;
      if (!group.delayed) continue;
      if (Status s = check_codec(g, "delayed keys", group.delayed->keys, group.head_dim); !s.ok()) return s;
      if (Status s = check_codec(g, "delayed values", group.delayed->values, group.value_dim); !s.ok())
        return s;
    }
    internal::Kernels kernels = internal::select_kernels();
    std::string target = kernels.target;
    return AttentionKernels(std::make_shared<const Impl>(Impl{plan, kernels, std::move(target)}));
  } catch (const std::exception& e) {
    return Status(StatusCode::kResourceExhausted, fmt::format("attention kernels: {}", e.what()));
  }
}

Status AttentionKernels::attend(const KvRead& read, std::span<const float> q, const AttentionParams& params,
                                std::span<float> out, ThreadPool* pool) const {
  if (Status s = internal::validate_attention(read, q.size(), params, out.size()); !s.ok()) return s;
  const int g = impl_->plan.group_of_layer(read.layer);
  if (g < 0) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("attention: layer {} is not in the plan", read.layer));
  }
  const AttentionGroup& group = impl_->plan.group(g);
  if (read.head_dim != group.head_dim || read.value_dim != group.value_dim ||
      read.kv_heads != group.kv_heads || read.window != group.window || read.sinks != group.sinks ||
      read.page_tokens != impl_->plan.page_tokens()) {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("attention: layer {} of another plan: {} x ({} + {}), window {}, {} sinks, {} positions "
                    "a page, expected {} x ({} + {}), window {}, {}, {}",
                    read.layer, read.kv_heads, read.head_dim, read.value_dim, read.window, read.sinks,
                    read.page_tokens, group.kv_heads, group.head_dim, group.value_dim, group.window,
                    group.sinks, impl_->plan.page_tokens()));
  }
  for (const KvRead::Row& row : read.rows) {
    const BlockLayout& layout = *read.storages[row.storage].layout;
    if (holds(group, layout)) continue;
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("attention: layer {} of another plan: codecs {} + {}, expected {} + {}",
                              read.layer, layout.keys.codec.to_string(), layout.values.codec.to_string(),
                              group.keys.to_string(), group.values.to_string()));
  }
  return internal::attend_with(impl_->kernels, read, q, params, out, pool);
}

const std::string& AttentionKernels::target() const noexcept { return impl_->target; }

const char* to_string(ReadKind kind) noexcept {
  switch (kind) {
    case ReadKind::kDecode: return "decode";
    case ReadKind::kVerify: return "verify";
    case ReadKind::kPrefill: return "prefill";
    case ReadKind::kTree: return "tree";
    case ReadKind::kBlock: return "block";
  }
  return "?";
}

AttentionKernel AttentionKernels::kernel(int g, ReadKind kind) const {
  const AttentionGroup& group = impl_->plan.group(g);
  AttentionKernel kernel;
  kernel.name =
      fmt::format("{}, keys {}, values {}", impl_->target, group.keys.to_string(), group.values.to_string());
  if (const int slice = slice_lanes(group.values, group.value_dim); slice > 1)
    kernel.name += fmt::format(" sliced over {} words", slice);
  if (kind == ReadKind::kTree) kernel.name += ", tails of tree paths copied together";
  if (impl_->kernels.lanes < 4) {
    kernel.slow = "no SIMD instruction set of this machine has kernels in this build";
  } else if (impl_->plan.page_tokens() < kTile) {
    kernel.slow =
        fmt::format("pages of {} positions are copied together first; {} and more are read in place",
                    impl_->plan.page_tokens(), kTile);
  } else if (!impl_->kernels.converts_f16 && uses_f16(group)) {
    kernel.slow = fmt::format("{} has no instruction that converts f16", impl_->target);
  }
  return kernel;
}

}  // namespace windrow
