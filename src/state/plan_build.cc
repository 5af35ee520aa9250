// Building a plan: what is accepted, and the sizes of all pools.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <new>
#include <optional>

#include "base/checked.h"
#include "state/plan_impl.h"
#include "windrow/recurrent.h"

namespace windrow {
namespace {

// Bounds of what is accepted. Positions, page numbers and page indices are int32 in the
// descriptors; a layer number is an index into a table.
constexpr int kMaxRows = 1 << 16;
constexpr int kMaxTokens = 1 << 30;
constexpr int kMaxLayer = 1 << 16;
constexpr int kMaxHeads = 1 << 12;
constexpr int kMaxTreeNodes = 64;
constexpr int kMaxVerifyTokens = 1 << 12;
constexpr int kMaxPageTokens = 256;

Status invalid(std::string message) { return Status(StatusCode::kInvalidArgument, std::move(message)); }

Status check_range(const std::string& what, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value >= low && value <= high) return Status();
  return invalid(fmt::format("state plan: {} is {}, allowed are {} to {}", what, value, low, high));
}

Status check_limits(const Limits& l, int page_tokens) {
  if (page_tokens < 1 || page_tokens > kMaxPageTokens || (page_tokens & (page_tokens - 1)) != 0) {
    return invalid(fmt::format("state plan: page_tokens is {}, allowed are the powers of two from 1 to {}",
                               page_tokens, kMaxPageTokens));
  }
  if (Status s = check_range("rows", l.rows, 1, kMaxRows); !s.ok()) return s;
  if (Status s = check_range("tokens", l.tokens, 1, kMaxTokens); !s.ok()) return s;
  if (Status s = check_range("step_tokens", l.step_tokens, 1, kMaxTokens); !s.ok()) return s;
  if (Status s = check_range("rollback", l.rollback, 0, kMaxTokens); !s.ok()) return s;
  if (Status s = check_range("tree_nodes", l.tree_nodes, 0, kMaxTreeNodes); !s.ok()) return s;
  if (Status s = check_range("verify_tokens", l.verify_tokens, 1, kMaxVerifyTokens); !s.ok()) return s;
  return check_range("total_tokens", l.total_tokens, 0, std::numeric_limits<std::int64_t>::max());
}

Status check_layer(const std::string& name, int layer) {
  if (layer >= 0 && layer < kMaxLayer) return Status();
  return invalid(fmt::format("{}: layer {}, allowed are 0 to {}", name, layer, kMaxLayer - 1));
}

Status check_group(const AttentionGroup& g, int index) {
  const std::string name = fmt::format("state plan: group {}", index);
  if (g.layers.empty()) return invalid(name + " has no layers");
  for (const int layer : g.layers) {
    if (Status s = check_layer(name, layer); !s.ok()) return s;
  }
  if (g.window < 1) return invalid(fmt::format("{}: window is {}, expected at least 1", name, g.window));
  if (g.sinks < 0 || g.sinks > kMaxTokens || (g.sinks > 0 && g.window == kFullWindow)) {
    return invalid(fmt::format("{}: sinks is {}, allowed are 0 to {} with a sliding window and 0 without",
                               name, g.sinks, kMaxTokens));
  }
  if (g.kv_heads < 1 || g.kv_heads > kMaxHeads) {
    return invalid(fmt::format("{}: kv_heads is {}, allowed are 1 to {}", name, g.kv_heads, kMaxHeads));
  }
  if (Status s = g.keys.check(g.head_dim); !s.ok()) return s.with_context(name + ": keys");
  if (Status s = g.values.check(g.value_dim); !s.ok()) return s.with_context(name + ": values");
  if (g.delayed) {
    if (g.delayed->start < 1) {
      return invalid(fmt::format("{}: delayed start is {}, expected at least 1", name, g.delayed->start));
    }
    if (Status s = g.delayed->keys.check(g.head_dim); !s.ok()) return s.with_context(name + ": delayed keys");
    if (Status s = g.delayed->values.check(g.value_dim); !s.ok())
      return s.with_context(name + ": delayed values");
  }
  return Status();
}

// Pages that the pool of a group needs at most, given that a row's pages between steps are
// `per_row` and that with the step's own tokens a row never spans more than `row_cap` pages.
//   Between steps, rows * per_row. A step adds ceil(L / B) pages to a row of L new tokens, at most
//   n + (T - n) / B over the n rows and T tokens of a step. Copy on write: when k rows share a
//   page and all of them write in one step, k + 1 pages stand where k were counted, which can
//   happen once for every two rows. A token tree's accepted path is put together in pages of its own.
std::int64_t pool_pages(const Limits& l, const AttentionGroup& g, int page_tokens, std::int64_t per_row,
                        std::int64_t row_cap) {
  const std::int64_t rows = l.rows, capped = rows * row_cap, b = page_tokens;
  std::int64_t extra = rows / 2;
  if (l.tree_nodes > 0) extra += rows * ((l.tree_nodes + b - 1) / b + 1);
  // Every row may leave part of one page empty.
  if (g.window == kFullWindow && l.total_tokens > 0)
    return std::min(capped, (l.total_tokens - 1) / b + 1 + rows) + extra;
  const std::int64_t t = std::min(std::int64_t{l.step_tokens}, rows * l.tokens), n = std::min(rows, t);
  return std::min(capped, rows * per_row + n + (t - n) / b) + extra;
}

// `tokens`: the most positions of a row in this storage; `reach`: with those of a block, which is read in the
// row's codecs also where it passes the start of others.
Result<GroupBytes> size_group(const Limits& l, const AttentionGroup& g, const BlockLayout& layout,
                              std::int64_t tokens, std::int64_t reach, int index) {
  const std::int64_t b = layout.page_tokens;
  const std::int64_t row_cap = (tokens + b - 1) / b;
  const std::int64_t retained = retained_positions(g, l);
  // R consecutive positions at any alignment touch ceil((R - 1) / b) + 1 pages.
  const std::int64_t per_row =
      retained >= tokens
          ? row_cap
          : std::min(row_cap, sink_pages(g, layout.page_tokens) + (retained - 1 + b - 1) / b + 1);
  const std::int64_t pages = pool_pages(l, g, layout.page_tokens, per_row, (reach + b - 1) / b);
  const auto page = checked_product({g.layers.size(), static_cast<std::size_t>(g.kv_heads), layout.bytes});
  const auto total = page ? checked_mul(*page, static_cast<std::size_t>(pages)) : std::nullopt;
  if (!total || pages > std::numeric_limits<std::int32_t>::max() || *total > (std::size_t{1} << 62)) {
    return invalid(
        fmt::format("state plan: group {}: {} pages of {} layers x {} heads x {} bytes are too many", index,
                    pages, g.layers.size(), g.kv_heads, layout.bytes));
  }
  GroupBytes size;
  size.page = *page;
  size.pages_per_row = static_cast<int>(per_row);
  size.pages = static_cast<int>(pages);
  size.total = *total;
  size.per_token = *page / static_cast<std::size_t>(b);
  return size;
}

Result<RecurrentBytes> size_recurrent(const Limits& l, const RecurrentGroup& g, int index) {
  const std::string name = fmt::format("state plan: recurrent group {}", index);
  if (g.layers.empty()) return invalid(name + " has no layers");
  for (const int layer : g.layers) {
    if (Status s = check_layer(name, layer); !s.ok()) return s;
  }
  if (Status s = g.shape.check(); !s.ok()) return s.with_context(name);
  RecurrentBytes size;
  size.states = 2 * l.rows;
  size.records = l.rows;
  const auto state = checked_mul(g.layers.size(), g.shape.state_bytes());
  const auto record = checked_product(
      {g.layers.size(), g.shape.record_bytes_per_token(), static_cast<std::size_t>(l.verify_tokens)});
  const auto states = state ? checked_mul(*state, static_cast<std::size_t>(size.states)) : std::nullopt;
  const auto records = record ? checked_mul(*record, static_cast<std::size_t>(size.records)) : std::nullopt;
  const auto total = states && records ? checked_add(*states, *records) : std::nullopt;
  if (!total || *total > (std::size_t{1} << 62)) {
    return invalid(fmt::format("{}: {} states of {} layers x {} bytes are too many", name, size.states,
                               g.layers.size(), g.shape.state_bytes()));
  }
  size.state = *state;
  size.record = *record;
  size.total = *total;
  return size;
}

std::string window_text(int window) { return window == kFullWindow ? "full" : std::to_string(window); }

std::string group_signature(const AttentionGroup& g) {
  std::string text = fmt::format(
      "[layers={} window={}{} kv_heads={} head_dim={} value_dim={} keys={} values={}",
      fmt::join(g.layers, ","), window_text(g.window), g.sinks > 0 ? fmt::format(" sinks={}", g.sinks) : "",
      g.kv_heads, g.head_dim, g.value_dim, g.keys.to_string(), g.values.to_string());
  if (g.delayed) {
    text += fmt::format(" delayed={}:{}:{}",
                        g.delayed->start == Delayed::kOnlyByCall ? "call" : std::to_string(g.delayed->start),
                        g.delayed->keys.to_string(), g.delayed->values.to_string());
  }
  for (const Sharer& s : g.sharers) text += fmt::format(" sharer={}:{}", s.layer, s.owner);
  return text + ']';
}

std::string recurrent_signature(const RecurrentGroup& g) {
  const GatedDeltaShape& d = g.shape.delta;
  return fmt::format("[recurrent layers={} heads={}/{} dims={}/{} gate={} channels={} taps={}]",
                     fmt::join(g.layers, ","), d.key_heads, d.value_heads, d.key_dim, d.value_dim,
                     d.gate == DecayGate::kScalar ? "scalar" : "vector", g.shape.conv.channels,
                     g.shape.conv.taps);
}

// The place of a layer that nothing else of the plan has.
Result<StatePlan::Impl::Place*> claim(StatePlan::Impl& impl, int layer) {
  const auto l = static_cast<std::size_t>(layer);
  if (l >= impl.places.size()) impl.places.resize(l + 1);
  StatePlan::Impl::Place& place = impl.places[l];
  if (place.group >= 0 || place.recurrent >= 0) {
    return invalid(fmt::format("state plan: layer {} stands twice in the plan, first in {}group {}", layer,
                               place.group >= 0 ? "" : "recurrent ",
                               place.group >= 0 ? place.group : place.recurrent));
  }
  return &place;
}

Status place_layers(StatePlan::Impl& impl, const AttentionGroup& g, int index) {
  for (std::size_t slot = 0; slot < g.layers.size(); slot++) {
    Result<StatePlan::Impl::Place*> place = claim(impl, g.layers[slot]);
    if (!place.ok()) return place.status();
    **place = {index, static_cast<int>(slot), g.layers[slot], -1, -1};
  }
  for (const Sharer& s : g.sharers) {
    if (Status status = check_layer(fmt::format("state plan: group {}", index), s.layer); !status.ok())
      return status;
    const auto owner = std::find(g.layers.begin(), g.layers.end(), s.owner);
    if (owner == g.layers.end()) {
      return invalid(
          fmt::format("state plan: group {}: layer {} shares layer {}, which is none of its layers", index,
                      s.layer, s.owner));
    }
    Result<StatePlan::Impl::Place*> place = claim(impl, s.layer);
    if (!place.ok()) return place.status();
    **place = {index, static_cast<int>(owner - g.layers.begin()), s.owner, -1, -1};
  }
  return Status();
}

Status add_bytes(StatePlan::Impl& impl, std::size_t bytes) {
  const auto sum = checked_add(impl.bytes, bytes);
  if (!sum) return invalid("state plan: the groups' bytes together overflow");
  impl.bytes = *sum;
  return Status();
}

Status add_attention(StatePlan::Impl& impl, AttentionGroup& g, int index) {
  if (g.value_dim == 0) g.value_dim = g.head_dim;
  if (Status s = check_group(g, index); !s.ok()) return s;
  if (Status s = place_layers(impl, g, index); !s.ok()) return s;
  const Limits& l = impl.limits;
  impl.layouts[kFinal].push_back(
      BlockLayout::make(g.keys, g.head_dim, g.values, g.value_dim, impl.page_tokens));
  Result<GroupBytes> size = size_group(l, g, impl.layouts[kFinal].back(), l.tokens, l.tokens, index);
  if (!size.ok()) return size.status();
  impl.sizes[kFinal].push_back(*size);
  impl.layouts[kEarly].emplace_back();
  impl.sizes[kEarly].emplace_back();
  if (g.delayed) {
    impl.layouts[kEarly].back() =
        BlockLayout::make(g.delayed->keys, g.head_dim, g.delayed->values, g.value_dim, impl.page_tokens);
    const std::int64_t most = std::min(l.tokens, g.delayed->start);
    const std::int64_t reach = std::min(std::int64_t{l.tokens}, most + l.step_tokens);
    size = size_group(l, g, impl.layouts[kEarly].back(), most, reach, index);
    if (!size.ok()) return size.status();
    impl.sizes[kEarly].back() = *size;
  }
  impl.signature += ' ' + group_signature(g);
  if (Status s = add_bytes(impl, impl.sizes[kFinal].back().total); !s.ok()) return s;
  return add_bytes(impl, impl.sizes[kEarly].back().total);
}

Status add_recurrent(StatePlan::Impl& impl, const RecurrentGroup& g, int index) {
  Result<RecurrentBytes> size = size_recurrent(impl.limits, g, index);
  if (!size.ok()) return size.status();
  for (std::size_t slot = 0; slot < g.layers.size(); slot++) {
    Result<StatePlan::Impl::Place*> place = claim(impl, g.layers[slot]);
    if (!place.ok()) return place.status();
    **place = {-1, -1, -1, index, static_cast<int>(slot)};
  }
  impl.recurrent_sizes.push_back(*size);
  impl.signature += ' ' + recurrent_signature(g);
  return add_bytes(impl, size->total);
}

}  // namespace

StatePlan::Builder::Builder(Limits limits) : limits_(limits) {}

StatePlan::Builder& StatePlan::Builder::attention(AttentionGroup group) {
  groups_.push_back(std::move(group));
  return *this;
}

StatePlan::Builder& StatePlan::Builder::recurrent(RecurrentGroup group) {
  recurrent_.push_back(std::move(group));
  return *this;
}

StatePlan::Builder& StatePlan::Builder::page_tokens(int tokens) {
  page_tokens_ = tokens;
  return *this;
}

Result<StatePlan> StatePlan::Builder::build() const try {
  if (Status s = check_limits(limits_, page_tokens_); !s.ok()) return s;
  if (groups_.empty() && recurrent_.empty()) return invalid("state plan: no layer group");
  auto impl = std::make_shared<Impl>();
  impl->limits = limits_;
  impl->page_tokens = page_tokens_;
  impl->groups = groups_;
  impl->recurrent = recurrent_;
  impl->signature = "windrow-state/2";
  for (std::size_t i = 0; i < groups_.size(); i++) {
    if (Status s = add_attention(*impl, impl->groups[i], static_cast<int>(i)); !s.ok()) return s;
  }
  for (std::size_t i = 0; i < recurrent_.size(); i++) {
    if (Status s = add_recurrent(*impl, recurrent_[i], static_cast<int>(i)); !s.ok()) return s;
  }
  return StatePlan(std::move(impl));
} catch (const std::bad_alloc&) {
  return Status(StatusCode::kResourceExhausted, "state plan: out of memory");
}

}  // namespace windrow
