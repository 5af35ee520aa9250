// The shared argument checks of the reference and the kernels.
#include "attention/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

#include "base/checked.h"
#include "codec/block_layout.h"

namespace windrow::internal {
namespace {

template <typename... Args>
Status invalid(fmt::format_string<Args...> format, Args&&... args) {
  return Status(StatusCode::kInvalidArgument,
                "attention: " + fmt::format(format, std::forward<Args>(args)...));
}

Status check_shape(const KvRead& read) {
  if (read.kv_heads < 1) return invalid("{} kv heads", read.kv_heads);
  if (!BlockLayout::is_page_size(read.page_tokens)) {
    return invalid("{} positions a page, expected 1, 2, 4, 8 or a multiple of {}", read.page_tokens, kTile);
  }
  if (read.sinks < 0 || read.sink_pages < 0) {
    return invalid("{} sinks in {} pages", read.sinks, read.sink_pages);
  }
  return {};
}

// A storage that a row stands in.
Status check_storage(const KvRead& read, std::int32_t index) {
  const KvRead::Storage& storage = read.storages[index];
  if (storage.layout == nullptr || storage.base == nullptr) {
    return invalid("storage {} is used and has no pages", index);
  }
  const BlockLayout& layout = *storage.layout;
  const SideLayout& keys = layout.keys;
  const SideLayout& values = layout.values;
  if (read.head_dim != keys.head_dim || read.value_dim != values.head_dim ||
      read.page_tokens != layout.page_tokens || storage.block_bytes != layout.bytes) {
    return invalid(
        "storage {}: a read of {} + {} dims, {} positions a page, {} bytes a block over a layout of {} + {}, "
        "{}, {}",
        index, read.head_dim, read.value_dim, read.page_tokens, storage.block_bytes, keys.head_dim,
        values.head_dim, layout.page_tokens, layout.bytes);
  }
  if (Status s = keys.codec.check(read.head_dim); !s.ok()) return s.with_context("attention: keys");
  if (Status s = values.codec.check(read.value_dim); !s.ok()) return s.with_context("attention: values");
  if (layout !=
      BlockLayout::make(keys.codec, read.head_dim, values.codec, read.value_dim, read.page_tokens)) {
    return invalid("storage {}: a layout that is not of {} + {}", index, keys.codec.to_string(),
                   values.codec.to_string());
  }
  const auto blocks = checked_mul(static_cast<std::size_t>(read.kv_heads), storage.block_bytes);
  if (!blocks || storage.layer_offset > storage.page_bytes ||
      *blocks > storage.page_bytes - storage.layer_offset) {
    return invalid("storage {}: {} blocks of {} bytes from {} on in a page of {}", index, read.kv_heads,
                   storage.block_bytes, storage.layer_offset, storage.page_bytes);
  }
  return {};
}

// One row's tables and tokens. Positions and pages as int64: descriptors may hold any number.
class RowCheck {
 public:
  RowCheck(const KvRead& read, std::size_t index)
      : read_(read),
        index_(index),
        row_(read.rows[index]),
        begin_(read.row_offsets[index]),
        end_(read.row_offsets[index + 1]),
        limit_(std::int64_t{row_.length} + end_ - begin_) {}

  Status run() {
    if (begin_ == end_) return {};
    if (Status s = check_tables(); !s.ok()) return s;
    tree_ = read_.is_tree(index_);
    for (std::int32_t t = begin_; t < end_; t++) {
      if (Status s = check_position(t); !s.ok()) return s;
      if (Status s = check_range(t); !s.ok()) return s;
    }
    // Each token sees its own slot, so all of the row's are visible.
    return tree_ ? check_pages(row_.length, limit_, tree_seen_) : Status();
  }

 private:
  Status check_tables() const {
    if (row_.length < 0) return invalid("row {} of {} positions", index_, row_.length);
    if (row_.table_size < 0 || (row_.table_size > 0 && row_.table == nullptr) ||
        row_.table_first < read_.sink_pages) {
      return invalid("row {} has a table of {} pages at {}, with {} sink pages", index_, row_.table_size,
                     row_.table_first, read_.sink_pages);
    }
    if (row_.fresh_first < 0 || row_.fresh_size < 0 || (row_.fresh_size > 0 && row_.fresh == nullptr)) {
      return invalid("row {} has {} fresh pages at {}", index_, row_.fresh_size, row_.fresh_first);
    }
    return {};
  }

  Status check_position(std::int32_t t) const {
    const std::int32_t i = t - begin_, position = at(read_.positions, t);
    const std::int32_t parent = read_.parents.empty() ? i - 1 : at(read_.parents, t);
    if (parent < -1 || parent >= i) {
      return invalid("row {}, token {}: parent {} is not before it", index_, i, parent);
    }
    const std::int64_t expected =
        parent < 0 ? row_.length : std::int64_t{at(read_.positions, begin_ + parent)} + 1;
    if (position == expected) return {};
    return invalid("row {}, token {} at position {}, expected {}", index_, i, position, expected);
  }

  Status check_range(std::int32_t t) {
    const std::int32_t i = t - begin_, position = at(read_.positions, t);
    const std::int32_t from = at(read_.begins, t), to = at(read_.ends, t);
    const std::int64_t last = tree_ ? std::int64_t{position} + 1 : limit_;
    if (from < 0 || from > position || to <= position || to > last) {
      return invalid("row {}, token {} at position {} sees {} .. {}, expected at most 0 .. {}", index_, i,
                     position, from, to, last);
    }
    // Slots of a tree are checked together, once.
    const std::int64_t by_position = tree_ ? row_.length : limit_;
    const bool apart = from > read_.sinks;  // the window from the sinks
    if (apart) {
      if (Status s = check_pages(0, std::min<std::int64_t>(read_.sinks, by_position), sinks_seen_); !s.ok())
        return s;
    }
    return check_pages(apart ? from : 0, std::min<std::int64_t>(to, by_position), window_seen_);
  }

  // Page numbers known to be right, [begin, end): they are looked at once, not once a token.
  struct Seen {
    std::int64_t begin = 0, end = 0;
  };
  // Slots [from, to) have their pages.
  Status check_pages(std::int64_t from, std::int64_t to, Seen& seen) const {
    if (from >= to) return {};
    const std::int64_t low = from / read_.page_tokens, high = (to - 1) / read_.page_tokens + 1;
    if (high < seen.begin || low > seen.end) seen = {low, low};
    for (; seen.begin > low; seen.begin--) {
      if (Status s = check_page(seen.begin - 1); !s.ok()) return s;
    }
    for (; seen.end < high; seen.end++) {
      if (Status s = check_page(seen.end); !s.ok()) return s;
    }
    return {};
  }

  Status check_page(std::int64_t number) const {
    if (number >= row_.fresh_first) {
      if (number - row_.fresh_first >= row_.fresh_size) {
        return invalid("row {} sees page {}, it has {} fresh pages at {}", index_, number, row_.fresh_size,
                       row_.fresh_first);
      }
    } else {
      const bool sink = number < read_.sink_pages;
      const std::int64_t entry = sink ? number : read_.sink_pages + number - row_.table_first;
      if ((!sink && number < row_.table_first) || entry >= row_.table_size) {
        return invalid("row {} sees page {}, its table holds {} pages, from {} on behind {} sink pages",
                       index_, number, row_.table_size, row_.table_first, read_.sink_pages);
      }
    }
    const std::int32_t page = read_.page_of(row_, static_cast<std::int32_t>(number));
    return page < 0 ? invalid("row {} has the page index {}", index_, page) : Status();
  }

  static std::int32_t at(std::span<const std::int32_t> numbers, std::int32_t i) {
    return numbers[static_cast<std::size_t>(i)];
  }

  const KvRead& read_;
  std::size_t index_;
  const KvRead::Row& row_;
  std::int32_t begin_, end_;  // tokens
  std::int64_t limit_;        // behind the last position that may be
  bool tree_ = false;
  Seen sinks_seen_, window_seen_, tree_seen_;
};

Status check_rows(const KvRead& read) {
  const std::size_t rows = read.rows.size(), tokens = read.positions.size();
  if (std::cmp_greater(tokens, std::numeric_limits<std::int32_t>::max())) return invalid("{} tokens", tokens);
  if (read.begins.size() != tokens || read.ends.size() != tokens ||
      (!read.parents.empty() && read.parents.size() != tokens)) {
    return invalid("{} positions with {} begins, {} ends and {} parents", tokens, read.begins.size(),
                   read.ends.size(), read.parents.size());
  }
  if (read.row_offsets.size() != rows + 1) {
    return invalid("{} rows with {} row offsets", rows, read.row_offsets.size());
  }
  if (read.row_offsets[0] != 0 || read.row_offsets[rows] != read.tokens()) {
    return invalid("row offsets {} .. {} for {} tokens", read.row_offsets[0], read.row_offsets[rows],
                   read.tokens());
  }
  bool used[2] = {};
  for (std::size_t row = 0; row < rows; row++) {
    const std::int32_t begin = read.row_offsets[row], end = read.row_offsets[row + 1];
    if (begin > end || end > read.tokens()) {
      return invalid("row {} has tokens {} .. {} of {}", row, begin, end, read.tokens());
    }
    const std::int32_t storage = read.rows[row].storage;
    if (storage < 0 || storage > 1) return invalid("row {} in storage {}", row, storage);
    if (!used[storage]) {
      if (Status s = check_storage(read, storage); !s.ok()) return s;
    }
    used[storage] = true;
    if (Status s = RowCheck(read, row).run(); !s.ok()) return s;
  }
  return {};
}

Status check_params(const KvRead& read, const AttentionParams& params) {
  if (params.q_heads < 1 || params.q_heads % read.kv_heads != 0) {
    return invalid("{} query heads over {} kv heads, expected a multiple", params.q_heads, read.kv_heads);
  }
  if (!std::isfinite(params.scale)) return invalid("scale {}", params.scale);
  if (!std::isfinite(params.softcap) || params.softcap < 0) return invalid("softcap {}", params.softcap);
  if (params.sinks.empty()) return {};
  if (std::cmp_not_equal(params.sinks.size(), params.q_heads)) {
    return invalid("{} sinks for {} query heads", params.sinks.size(), params.q_heads);
  }
  for (std::size_t h = 0; h < params.sinks.size(); h++) {
    // -inf is a head without a sink.
    if (std::isnan(params.sinks[h]) || params.sinks[h] == INFINITY)
      return invalid("sink {} is {}", h, params.sinks[h]);
  }
  return {};
}

Status check_size(const char* name, std::size_t size, int tokens, int heads, int dim) {
  const auto expected = checked_product(
      {static_cast<std::size_t>(tokens), static_cast<std::size_t>(heads), static_cast<std::size_t>(dim)});
  if (expected == size) return {};
  return invalid("{} has {} numbers, expected {} tokens x {} heads x {}", name, size, tokens, heads, dim);
}

}  // namespace

Status validate_attention(const KvRead& read, std::size_t q_size, const AttentionParams& params,
                          std::size_t out_size) {
  if (Status s = check_shape(read); !s.ok()) return s;
  if (Status s = check_rows(read); !s.ok()) return s;
  if (Status s = check_params(read, params); !s.ok()) return s;
  if (Status s = check_size("q", q_size, read.tokens(), params.q_heads, read.head_dim); !s.ok()) return s;
  return check_size("out", out_size, read.tokens(), params.q_heads, read.value_dim);
}

}  // namespace windrow::internal
