// The shared argument checks of the reference and the kernels.
#include "attention/validate.h"

#include <fmt/format.h>

#include <cmath>
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
  if (read.layout == nullptr || read.base == nullptr) return invalid("a read without pages");
  const BlockLayout& layout = *read.layout;
  if (read.kv_heads < 1) return invalid("{} kv heads", read.kv_heads);
  if (read.window < 1) return invalid("window of {} positions", read.window);
  if (read.page_tokens < kTile || read.page_tokens % kTile != 0) {
    return invalid("{} positions a page, expected a multiple of {}", read.page_tokens, kTile);
  }
  if (read.head_dim != layout.keys.head_dim || read.value_dim != layout.values.head_dim ||
      read.page_tokens != layout.page_tokens || read.block_bytes != layout.bytes) {
    return invalid(
        "a read of {} + {} dims, {} positions a page, {} bytes a block over a layout of {} + {}, {}, {}",
        read.head_dim, read.value_dim, read.page_tokens, read.block_bytes, layout.keys.head_dim,
        layout.values.head_dim, layout.page_tokens, layout.bytes);
  }
  if (Status s = layout.keys.codec.check(read.head_dim); !s.ok()) return s.with_context("attention: keys");
  if (Status s = layout.values.codec.check(read.value_dim); !s.ok())
    return s.with_context("attention: values");
  return {};
}

Status check_row(const KvRead& read, std::size_t row) {
  const int begin = read.row_offsets[row], end = read.row_offsets[row + 1];
  const int pages_begin = read.page_offsets[row], pages_end = read.page_offsets[row + 1];
  if (begin < 0 || begin > end || end > read.tokens()) {
    return invalid("row {} has tokens {} .. {} of {}", row, begin, end, read.tokens());
  }
  if (pages_begin < 0 || pages_begin > pages_end || std::cmp_greater(pages_end, read.pages.size())) {
    return invalid("row {} has pages {} .. {} of {}", row, pages_begin, pages_end, read.pages.size());
  }
  if (begin == end) return {};
  const int first = read.positions[static_cast<std::size_t>(begin)];
  if (first < 0) return invalid("row {} at position {}", row, first);
  for (int t = begin + 1; t < end; t++) {
    const int position = read.positions[static_cast<std::size_t>(t)],
              before = read.positions[static_cast<std::size_t>(t - 1)];
    if (position - 1 != before) {  // position >= 0 > overflow: positions before are checked
      return invalid("row {} goes from position {} to {}, tokens of a row are consecutive", row, before,
                     position);
    }
  }
  const int last = read.positions[static_cast<std::size_t>(end - 1)];
  const int page_low = window_begin(first, read.window) / read.page_tokens,
            page_high = last / read.page_tokens;
  const int table_low = read.first_page[row], table_pages = pages_end - pages_begin;
  if (table_low < 0 || page_low < table_low || page_high - table_low >= table_pages) {
    return invalid("row {} sees pages {} .. {}, its table holds {} from {}", row, page_low, page_high,
                   table_pages, table_low);
  }
  for (int p = pages_begin; p < pages_end; p++) {
    if (read.pages[static_cast<std::size_t>(p)] < 0) {
      return invalid("row {} has the page index {}", row, read.pages[static_cast<std::size_t>(p)]);
    }
  }
  return {};
}

Status check_rows(const KvRead& read) {
  const std::size_t rows = read.first_page.size();
  if (read.row_offsets.size() != rows + 1 || read.page_offsets.size() != rows + 1) {
    return invalid("{} rows with {} row offsets and {} page offsets", rows, read.row_offsets.size(),
                   read.page_offsets.size());
  }
  if (read.row_offsets[0] != 0 || read.row_offsets[rows] != read.tokens()) {
    return invalid("row offsets {} .. {} for {} tokens", read.row_offsets[0], read.row_offsets[rows],
                   read.tokens());
  }
  for (std::size_t row = 0; row < rows; row++) {
    if (Status s = check_row(read, row); !s.ok()) return s;
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
