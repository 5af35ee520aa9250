// AttentionKernels: a plan checked against what the kernels serve, and the table it gets.
#include <fmt/format.h>

#include <exception>
#include <string>
#include <utility>

#include "attention/attend.h"
#include "attention/validate.h"
#include "codec/block_layout.h"
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

AttentionKernels::AttentionKernels(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}

Result<AttentionKernels> AttentionKernels::select(const StatePlan& plan) {
  try {
    for (int g = 0; g < plan.group_count(); g++) {
      const AttentionGroup& group = plan.group(g);
      for (const auto& [name, codec, dim] : {std::tuple{"keys", group.keys, group.head_dim},
                                             std::tuple{"values", group.values, group.value_dim}}) {
        if (Status s = codec.check(dim); !s.ok()) {
          return Status(StatusCode::kUnsupported,
                        fmt::format("attention kernels: group {}, {}: {}", g, name, s.message()));
        }
      }
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
  if (read.layout->keys.codec != group.keys || read.layout->values.codec != group.values ||
      read.head_dim != group.head_dim || read.value_dim != group.value_dim ||
      read.kv_heads != group.kv_heads || read.window != group.window ||
      read.page_tokens != impl_->plan.page_tokens()) {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format(
            "attention: layer {} of another plan: {} x ({} {} + {} {}), window {}, expected {} x ({} {} + {} "
            "{}), window {}",
            read.layer, read.kv_heads, read.head_dim, read.layout->keys.codec.to_string(), read.value_dim,
            read.layout->values.codec.to_string(), read.window, group.kv_heads, group.head_dim,
            group.keys.to_string(), group.value_dim, group.values.to_string(), group.window));
  }
  return internal::attend_with(impl_->kernels, read, q, params, out, pool);
}

const std::string& AttentionKernels::target() const noexcept { return impl_->target; }

}  // namespace windrow
