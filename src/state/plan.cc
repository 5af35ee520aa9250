#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/checked.h"
#include "state/plan_impl.h"

namespace windrow {
namespace {

// Bounds of what is accepted. Positions, page numbers and page indices are int32 in the
// descriptors; a layer number is an index into a table.
constexpr int kMaxRows = 1 << 16;
constexpr int kMaxTokens = 1 << 30;
constexpr int kMaxLayer = 1 << 16;
constexpr int kMaxHeads = 1 << 12;

Status invalid(std::string message) { return Status(StatusCode::kInvalidArgument, std::move(message)); }

Status check_range(const char* what, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value >= low && value <= high) return Status();
  return invalid(fmt::format("state plan: {} is {}, allowed are {} to {}", what, value, low, high));
}

Status check_limits(const Limits& l, int page_tokens) {
  if (page_tokens != 16 && page_tokens != 32 && page_tokens != 64 && page_tokens != 128 &&
      page_tokens != 256) {
    return invalid(
        fmt::format("state plan: page_tokens is {}, allowed are 16, 32, 64, 128 and 256", page_tokens));
  }
  if (Status s = check_range("rows", l.rows, 1, kMaxRows); !s.ok()) return s;
  if (Status s = check_range("tokens", l.tokens, 1, kMaxTokens); !s.ok()) return s;
  if (Status s = check_range("step_tokens", l.step_tokens, 1, kMaxTokens); !s.ok()) return s;
  if (Status s = check_range("rollback", l.rollback, 0, kMaxTokens); !s.ok()) return s;
  return check_range("total_tokens", l.total_tokens, 0, std::numeric_limits<std::int64_t>::max());
}

Status check_group(const AttentionGroup& g, int index) {
  const std::string name = fmt::format("state plan: group {}", index);
  if (g.layers.empty()) return invalid(name + " has no layers");
  for (const int layer : g.layers) {
    if (layer < 0 || layer >= kMaxLayer) {
      return invalid(fmt::format("{}: layer {}, allowed are 0 to {}", name, layer, kMaxLayer - 1));
    }
  }
  if (g.window < 1) return invalid(fmt::format("{}: window is {}, expected at least 1", name, g.window));
  if (g.kv_heads < 1 || g.kv_heads > kMaxHeads) {
    return invalid(fmt::format("{}: kv_heads is {}, allowed are 1 to {}", name, g.kv_heads, kMaxHeads));
  }
  if (Status s = g.keys.check(g.head_dim); !s.ok()) return s.with_context(name + ": keys");
  if (Status s = g.values.check(g.value_dim); !s.ok()) return s.with_context(name + ": values");
  return Status();
}

// Pages that the pool of a group needs at most, given that a row's pages between steps are
// `per_row` and that a row never spans more than `row_cap` pages.
//   Between steps, rows * per_row. A step adds ceil(L / B) pages to a row of L new tokens, at most
//   n + (T - n) / B over the n rows and T tokens of a step. Copy on write: when k rows share a
//   page and all of them write in one step, k + 1 pages stand where k were counted, which can
//   happen once for every two rows.
std::int64_t pool_pages(const Limits& l, const AttentionGroup& g, int page_tokens, std::int64_t per_row,
                        std::int64_t row_cap) {
  const std::int64_t rows = l.rows, capped = rows * row_cap, b = page_tokens;
  const std::int64_t copies = rows / 2;
  if (g.window == kFullWindow) {
    if (l.total_tokens == 0) return capped + copies;
    // Every row may leave part of one page empty.
    return std::min(capped, (l.total_tokens - 1) / b + 1 + rows) + copies;
  }
  const std::int64_t t = std::min(std::int64_t{l.step_tokens}, rows * l.tokens), n = std::min(rows, t);
  return std::min(capped, rows * per_row + n + (t - n) / b) + copies;
}

Result<GroupBytes> size_group(const Limits& l, const AttentionGroup& g, const BlockLayout& layout,
                              int index) {
  const std::int64_t b = layout.page_tokens;
  const std::int64_t row_cap = (l.tokens + b - 1) / b;
  const std::int64_t retained = retained_positions(g, l);
  // R consecutive positions at any alignment touch ceil((R - 1) / b) + 1 pages.
  const std::int64_t per_row =
      retained >= l.tokens ? row_cap : std::min(row_cap, (retained - 1 + b - 1) / b + 1);
  const std::int64_t pages = pool_pages(l, g, layout.page_tokens, per_row, row_cap);
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

std::string window_text(int window) { return window == kFullWindow ? "full" : std::to_string(window); }

std::string group_signature(const AttentionGroup& g) {
  return fmt::format("[layers={} window={} kv_heads={} head_dim={} value_dim={} keys={} values={}]",
                     fmt::join(g.layers, ","), window_text(g.window), g.kv_heads, g.head_dim, g.value_dim,
                     g.keys.to_string(), g.values.to_string());
}

}  // namespace

StatePlan::Builder::Builder(Limits limits) : limits_(limits) {}

StatePlan::Builder& StatePlan::Builder::attention(AttentionGroup group) {
  groups_.push_back(std::move(group));
  return *this;
}

StatePlan::Builder& StatePlan::Builder::page_tokens(int tokens) {
  page_tokens_ = tokens;
  return *this;
}

Result<StatePlan> StatePlan::Builder::build() const try {
  if (Status s = check_limits(limits_, page_tokens_); !s.ok()) return s;
  if (groups_.empty()) return invalid("state plan: no layer group");
  auto impl = std::make_shared<Impl>();
  impl->limits = limits_;
  impl->page_tokens = page_tokens_;
  impl->groups = groups_;
  impl->signature = "windrow-state/1";
  for (int i = 0; i < static_cast<int>(groups_.size()); i++) {
    AttentionGroup& g = impl->groups[static_cast<std::size_t>(i)];
    if (g.value_dim == 0) g.value_dim = g.head_dim;
    if (Status s = check_group(g, i); !s.ok()) return s;
    for (int slot = 0; slot < static_cast<int>(g.layers.size()); slot++) {
      const auto layer = static_cast<std::size_t>(g.layers[static_cast<std::size_t>(slot)]);
      if (layer >= impl->group_of_layer.size()) {
        impl->group_of_layer.resize(layer + 1, -1);
        impl->slot_of_layer.resize(layer + 1, -1);
      }
      if (impl->group_of_layer[layer] >= 0) {
        return invalid(fmt::format("state plan: layer {} stands in group {} and in group {}", layer,
                                   impl->group_of_layer[layer], i));
      }
      impl->group_of_layer[layer] = i;
      impl->slot_of_layer[layer] = slot;
    }
    impl->layouts.push_back(BlockLayout::make(g.keys, g.head_dim, g.values, g.value_dim, page_tokens_));
    Result<GroupBytes> size = size_group(limits_, g, impl->layouts.back(), i);
    if (!size.ok()) return size.status();
    impl->sizes.push_back(*size);
    const auto sum = checked_add(impl->bytes, size->total);
    if (!sum) return invalid("state plan: the groups' bytes together overflow");
    impl->bytes = *sum;
    impl->signature += ' ' + group_signature(g);
  }
  return StatePlan(std::move(impl));
} catch (const std::bad_alloc&) {
  return Status(StatusCode::kResourceExhausted, "state plan: out of memory");
}

StatePlan::StatePlan(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}

const Limits& StatePlan::limits() const noexcept { return impl_->limits; }
int StatePlan::page_tokens() const noexcept { return impl_->page_tokens; }
int StatePlan::group_count() const noexcept { return static_cast<int>(impl_->groups.size()); }
const AttentionGroup& StatePlan::group(int g) const noexcept {
  return impl_->groups[static_cast<std::size_t>(g)];
}
const GroupBytes& StatePlan::group_bytes(int g) const noexcept {
  return impl_->sizes[static_cast<std::size_t>(g)];
}
std::size_t StatePlan::bytes() const noexcept { return impl_->bytes; }
const std::string& StatePlan::signature() const noexcept { return impl_->signature; }

int StatePlan::group_of_layer(int layer) const noexcept {
  const auto l = static_cast<std::size_t>(layer);  // a negative layer becomes huge
  return l < impl_->group_of_layer.size() ? impl_->group_of_layer[l] : -1;
}

int StatePlan::slot_of_layer(int layer) const noexcept {
  const auto l = static_cast<std::size_t>(layer);
  return l < impl_->slot_of_layer.size() ? impl_->slot_of_layer[l] : -1;
}

std::size_t StatePlan::projected_bytes(int tokens) const noexcept {
  const std::int64_t length = std::clamp(tokens, 0, impl_->limits.tokens), b = impl_->page_tokens;
  std::size_t bytes = 0;
  for (std::size_t g = 0; g < impl_->groups.size(); g++) {
    const std::int64_t first =
        std::max<std::int64_t>(0, length - retained_positions(impl_->groups[g], impl_->limits));
    bytes += impl_->sizes[g].page * static_cast<std::size_t>((length + b - 1) / b - first / b);
  }
  return bytes;
}

Result<StatePlan> StatePlan::with_codec(const Codec& codec) const {
  Builder builder(impl_->limits);
  builder.page_tokens(impl_->page_tokens);
  for (AttentionGroup g : impl_->groups) {
    g.keys = codec;
    g.values = codec;
    builder.attention(std::move(g));
  }
  return builder.build();
}

std::string StatePlan::to_json() const {
  using nlohmann::ordered_json;
  const Limits& l = impl_->limits;
  ordered_json groups = ordered_json::array();
  for (int i = 0; i < group_count(); i++) {
    const AttentionGroup& g = group(i);
    const GroupBytes& s = group_bytes(i);
    groups.push_back(
        ordered_json{{"layers", g.layers},
                     {"window", g.window == kFullWindow ? ordered_json() : ordered_json(g.window)},
                     {"kv_heads", g.kv_heads},
                     {"head_dim", g.head_dim},
                     {"value_dim", g.value_dim},
                     {"codec_keys", g.keys.to_string()},
                     {"codec_values", g.values.to_string()},
                     {"page_bytes", s.page},
                     {"pages_per_row", s.pages_per_row},
                     {"pages", s.pages},
                     {"bytes_per_token", s.per_token},
                     {"bytes", s.total}});
  }
  return ordered_json{{"bytes", bytes()},
                      {"page_tokens", page_tokens()},
                      {"limits", ordered_json{{"rows", l.rows},
                                              {"tokens", l.tokens},
                                              {"step_tokens", l.step_tokens},
                                              {"rollback", l.rollback},
                                              {"total_tokens", l.total_tokens}}},
                      {"groups", std::move(groups)}}
      .dump();
}

}  // namespace windrow
