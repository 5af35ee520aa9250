// A recurrent layer in a step: convolve and advance. Both work from the rows' committed states into states
// that belong to the step, and record what resolve replays.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <vector>

#include "state/state_impl.h"

namespace windrow {
namespace {

struct LayerAt {
  int group = -1;
  int slot = -1;
};

Result<LayerAt> find_layer(const StateStore::Impl& store, const char* call, int layer) {
  const StatePlan::Impl::Place place = store.details().place(layer);
  if (place.recurrent >= 0) return LayerAt{place.recurrent, place.recurrent_slot};
  return Status(StatusCode::kInvalidArgument,
                fmt::format("{}: layer {} is no recurrent layer of the plan", call, layer));
}

Status check_size(const char* call, int layer, const char* what, std::size_t size, std::size_t tokens,
                  std::size_t each) {
  if (size == tokens * each) return Status();
  return Status(StatusCode::kInvalidArgument,
                fmt::format("{}: layer {}: {} numbers of {}, expected {} ({} tokens x {})", call, layer, size,
                            what, tokens * each, tokens, each));
}

Status check_finite(const char* call, int layer, const char* what, std::span<const float> x, std::size_t each,
                    const StepShape& shape) {
  const auto bad = std::find_if_not(x.begin(), x.end(), [](float value) { return std::isfinite(value); });
  if (bad != x.end()) {
    const std::size_t t = static_cast<std::size_t>(bad - x.begin()) / each;
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{}: layer {}: {} of row {} at position {} is {}", call, layer, what,
                              shape.row_of(t), shape.positions[t], *bad));
  }
  return Status();
}

// The nodes from the root down to `node`, by the parents of one row.
void path_to(std::span<const std::int32_t> parents, int node, std::vector<int>& path) {
  path.clear();
  for (int i = node; i >= 0; i = parents[static_cast<std::size_t>(i)]) path.push_back(i);
  std::reverse(path.begin(), path.end());
}

}  // namespace

Status Step::convolve(int layer, std::span<const float> x, std::span<const float> weights_by_tap,
                      Activation activation, std::span<float> out) try {
  if (!open()) return closed_step("convolve");
  const StateStore::Impl& store = *impl_->store;
  const Result<LayerAt> at = find_layer(store, "convolve", layer);
  if (!at.ok()) return at.status();
  const CausalConvShape& shape = store.shape(at->group).conv;
  const StepShape& tokens = *impl_->shape;
  const std::size_t n = tokens.positions.size(), width = shape.input_floats();
  const auto taps = static_cast<std::size_t>(shape.taps);
  if (Status s = check_size("convolve", layer, "x", x.size(), n, width); !s.ok()) return s;
  if (Status s = check_size("convolve", layer, "weights", weights_by_tap.size(), taps, width); !s.ok())
    return s;
  if (Status s = check_size("convolve", layer, "out", out.size(), n, width); !s.ok()) return s;
  if (store.options.poison) {
    if (Status s = check_finite("convolve", layer, "x", x, width, tokens); !s.ok()) return s;
  }
  RecurrentView& view = impl_->recurrent[static_cast<std::size_t>(at->group)];
  std::vector<float> tail(shape.tail_floats());  // of a tree's node
  for (std::size_t r = 0; r < impl_->rows.size(); r++) {
    const auto count = static_cast<std::size_t>(impl_->row_tokens(r));
    if (count == 0) continue;
    const std::size_t first = static_cast<std::size_t>(tokens.row_offsets[r]) * width;
    const PageId state = impl_->rows[r]->states[static_cast<std::size_t>(at->group)];
    float* next = store.layer_tail(at->group, view.next[r], at->slot);
    const float* from = state != kNoPage ? store.layer_tail(at->group, state, at->slot) : next;
    if (state == kNoPage) std::fill_n(next, shape.tail_floats(), 0.0f);
    // Recorded first: `out` may be x.
    if (view.record[r] != kNoPage)
      store.layer_record(at->group, view.record[r], at->slot).put_conv(0, x.data() + first, count);
    if (!impl_->is_tree[r]) {
      std::copy_n(from, tail.size(), tail.begin());
      advance_conv_tail(shape, from, x.data() + first, count, next);
      causal_conv(shape, tail.data(), x.data() + first, count, weights_by_tap.data(), activation,
                  out.data() + first);
      continue;
    }
    // A node's tail: its ancestors' inputs, nearest last, then the row's own tail.
    const RecurrentRecord record = store.layer_record(at->group, view.record[r], at->slot);
    const std::int32_t* parents = tokens.parents.data() + tokens.row_offsets[r];
    for (std::size_t i = 0; i < count; i++) {
      std::int32_t node = parents[i];
      std::size_t back = 0;  // inputs before the row's last committed one that are still wanted
      for (std::size_t tap = taps - 1; tap-- > 0;) {
        const float* input = from + (taps - 2 - back) * width;
        if (node >= 0) {
          input = record.conv_input(static_cast<std::size_t>(node));
          node = parents[node];
        } else {
          back++;
        }
        std::copy_n(input, width, tail.begin() + static_cast<std::ptrdiff_t>(tap * width));
      }
      causal_conv(shape, tail.data(), record.conv_input(i), 1, weights_by_tap.data(), activation,
                  out.data() + first + i * width);
    }
  }
  view.convolved[static_cast<std::size_t>(at->slot)] = true;
  return Status();
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

Status Step::advance(int layer, const RecurrentInputs& inputs, std::span<float> y) try {
  if (!open()) return closed_step("advance");
  const StateStore::Impl& store = *impl_->store;
  const Result<LayerAt> at = find_layer(store, "advance", layer);
  if (!at.ok()) return at.status();
  const GatedDeltaShape& shape = store.shape(at->group).delta;
  const StepShape& steps = *impl_->shape;
  const std::size_t n = steps.positions.size();
  const struct {
    const char* name;
    std::span<const float> array;
    std::size_t each;
  } arrays[] = {{"q", inputs.q, shape.key_floats()},
                {"k", inputs.k, shape.key_floats()},
                {"v", inputs.v, shape.value_floats()},
                {"g", inputs.g, shape.decay_floats()},
                {"beta", inputs.beta, shape.beta_floats()}};
  for (const auto& a : arrays) {
    if (Status s = check_size("advance", layer, a.name, a.array.size(), n, a.each); !s.ok()) return s;
    if (!store.options.poison) continue;
    if (Status s = check_finite("advance", layer, a.name, a.array, a.each, steps); !s.ok()) return s;
  }
  if (Status s = check_size("advance", layer, "y", y.size(), n, shape.value_floats()); !s.ok()) return s;
  RecurrentView& view = impl_->recurrent[static_cast<std::size_t>(at->group)];
  std::vector<int> path;
  for (std::size_t r = 0; r < impl_->rows.size(); r++) {
    const auto count = static_cast<std::size_t>(impl_->row_tokens(r));
    if (count == 0) continue;
    const auto first = static_cast<std::size_t>(steps.row_offsets[r]);
    const auto tokens = [&](std::size_t i, std::size_t some) {
      return GatedDeltaTokens{.count = some,
                              .q = inputs.q.data() + (first + i) * shape.key_floats(),
                              .k = inputs.k.data() + (first + i) * shape.key_floats(),
                              .v = inputs.v.data() + (first + i) * shape.value_floats(),
                              .g = inputs.g.data() + (first + i) * shape.decay_floats(),
                              .beta = inputs.beta.data() + (first + i) * shape.beta_floats()};
    };
    float* outputs = y.data() + first * shape.value_floats();
    const PageId state = impl_->rows[r]->states[static_cast<std::size_t>(at->group)];
    float* next = store.layer_state(at->group, view.next[r], at->slot);
    const auto old = [&]() -> const float* {
      if (state != kNoPage) return store.layer_state(at->group, state, at->slot);
      std::fill_n(next, shape.state_floats(), 0.0f);
      return next;
    };
    if (view.record[r] != kNoPage)
      store.layer_record(at->group, view.record[r], at->slot).put_tokens(0, tokens(0, count));
    if (!impl_->is_tree[r]) {
      gated_delta_advance(shape, tokens(0, count), old(), next, outputs);
      continue;
    }
    const RecurrentRecord record = store.layer_record(at->group, view.record[r], at->slot);
    const std::span<const std::int32_t> parents(steps.parents.data() + first, count);
    for (std::size_t i = 0; i < count; i++) {
      // `next` holds the state after node i - 1; another branch starts over from the row's state.
      if (i == 0 || parents[i] != static_cast<std::int32_t>(i) - 1) {
        path_to(parents, parents[i], path);
        record.replay_state(path, old(), next);
      }
      gated_delta_advance(shape, tokens(i, 1), next, next, outputs + i * shape.value_floats());
    }
  }
  view.advanced[static_cast<std::size_t>(at->slot)] = true;
  return Status();
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

}  // namespace windrow
