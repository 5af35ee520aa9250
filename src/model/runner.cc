// Runner: checks a forward pass's arguments and lends it kernels and scratch.
#include <fmt/format.h>

#include <exception>

#include "base/checked.h"
#include "base/memory.h"
#include "model/model_impl.h"
#include "windrow/model.h"

namespace windrow {
namespace {

Status invalid(std::string message) { return {StatusCode::kInvalidArgument, std::move(message)}; }

std::string window_text(int window) { return window == kFullWindow ? "full" : std::to_string(window); }

// Does the plan hold this model's state?
Status check_plan(const StatePlan& plan, std::span<const LayerShape> layers) {
  for (std::size_t i = 0; i < layers.size(); i++) {
    const LayerShape& l = layers[i];
    const int layer = static_cast<int>(i);
    if (l.recurrent) {
      const int r = plan.recurrent_of_layer(layer);
      if (r >= 0 && plan.recurrent(r).shape == *l.recurrent) continue;
      return invalid(
          fmt::format("plan: layer {} of the model is recurrent, and no group of its shape holds it", i));
    }
    const int owner = l.donor >= 0 ? l.donor : layer;
    if (plan.owner_of_layer(layer) != owner && plan.owner_of_layer(layer) >= 0) {
      return invalid(fmt::format("plan: layer {} attends over layer {}, in the model over layer {}", i,
                                 plan.owner_of_layer(layer), owner));
    }
    const int g = plan.group_of_layer(static_cast<int>(i));
    if (g < 0) return invalid(fmt::format("plan: no group holds layer {} of the model", i));
    const AttentionGroup& group = plan.group(g);
    if (group.window == l.window && group.kv_heads == l.kv_heads && group.head_dim == l.head_dim &&
        group.value_dim == l.head_dim) {
      continue;
    }
    return invalid(
        fmt::format("plan: layer {} has window {}, {} kv heads of dim {} (values {}), the model window {}, "
                    "{} kv heads of dim {}",
                    i, window_text(group.window), group.kv_heads, group.head_dim, group.value_dim,
                    window_text(l.window), l.kv_heads, l.head_dim));
  }
  return {};
}

}  // namespace

struct Runner::Impl {
  std::shared_ptr<const Model::Impl> model;
  AttentionKernels kernels;
  ThreadPool* pool;
  Arena scratch;
  std::size_t max_tokens;
  ForwardProfile* profile = nullptr;
  AttentionObserver observer;
};

Runner::Runner(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Runner::Runner(Runner&&) noexcept = default;
Runner& Runner::operator=(Runner&&) noexcept = default;
Runner::~Runner() = default;

Result<Runner> Runner::create(const Model& model, const StatePlan& plan, ThreadPool& pool) try {
  const Family& family = *model.impl_->family;
  if (Status s = check_plan(plan, model.info().layers); !s.ok()) return s;
  Result<AttentionKernels> kernels = AttentionKernels::select(plan);
  if (!kernels.ok()) return kernels.status();
  const std::size_t max_tokens = static_cast<std::size_t>(plan.limits().step_tokens);
  Result<Arena> scratch = Arena::create(family.scratch_floats(max_tokens) * sizeof(float), "activations");
  if (!scratch.ok()) return scratch.status();
  return Runner(std::make_unique<Impl>(
      Impl{model.impl_, std::move(*kernels), &pool, std::move(*scratch), max_tokens, nullptr, {}}));
} catch (const std::exception& e) {
  return Status(StatusCode::kResourceExhausted, fmt::format("runner: {}", e.what()));
}

Status Runner::forward(Step& step, std::span<const std::int32_t> ids, std::span<const std::int32_t> wanted,
                       std::span<float> logits) try {
  const ModelInfo& info = impl_->model->info;
  if (!step.open()) return {StatusCode::kFailedPrecondition, "forward: the step has ended"};
  const std::size_t tokens = static_cast<std::size_t>(step.tokens());
  if (ids.size() != tokens) {
    return invalid(fmt::format("forward: {} ids for a step of {} tokens", ids.size(), tokens));
  }
  if (tokens > impl_->max_tokens) {
    return invalid(
        fmt::format("forward: a step of {} tokens, the runner's plan allows {}", tokens, impl_->max_tokens));
  }
  for (std::size_t i = 0; i < ids.size(); i++) {
    if (ids[i] < 0 || ids[i] >= info.vocab_size) {
      return invalid(
          fmt::format("forward: token {} has id {}, allowed are 0 to {}", i, ids[i], info.vocab_size - 1));
    }
  }
  for (std::size_t i = 0; i < wanted.size(); i++) {
    const bool in_step = wanted[i] >= 0 && static_cast<std::size_t>(wanted[i]) < tokens;
    if (in_step && (i == 0 || wanted[i - 1] < wanted[i])) continue;
    return invalid(fmt::format("forward: wanted token {} at place {}: must ascend and be below {}", wanted[i],
                               i, tokens));
  }
  const std::size_t expected = wanted.size() * static_cast<std::size_t>(info.vocab_size);
  if (logits.size() != expected) {
    return invalid(fmt::format("forward: room for {} logits, expected {} x {}", logits.size(), wanted.size(),
                               info.vocab_size));
  }
  if (tokens == 0) return {};
  const std::span<float> scratch(reinterpret_cast<float*>(impl_->scratch.data()),
                                 impl_->scratch.size() / sizeof(float));
  return impl_->model->family->forward({step, ids, wanted, logits, impl_->kernels, *impl_->pool, scratch,
                                        impl_->max_tokens, impl_->profile, impl_->observer});
} catch (const std::exception& e) {
  return {StatusCode::kResourceExhausted, fmt::format("forward: {}", e.what())};
}

std::size_t Runner::scratch_bytes() const noexcept { return impl_->scratch.size(); }

void Runner::set_profile(ForwardProfile* profile) noexcept { impl_->profile = profile; }

void Runner::set_observer(AttentionObserver observer) noexcept { impl_->observer = std::move(observer); }

}  // namespace windrow
