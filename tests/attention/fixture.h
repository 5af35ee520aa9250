// Reads built by hand, without the state engine: rows over pages in any order, with every slot that
// nothing was written to filled as the test wants.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "attention/validate.h"
#include "codec/block_layout.h"
#include "windrow/attention.h"

namespace windrow::testing {

struct Shape {
  Codec keys = Codec::affine(4);
  Codec values = Codec::affine(4);
  int kv_heads = 1;
  int q_heads = 1;
  int head_dim = 64;
  int value_dim = 64;
  int page_tokens = 32;
  int window = kFullWindow;
};

// A row whose content is named by `content`: equal names are equal numbers at equal positions.
struct RowSpec {
  int content = 0;
  int history = 0;  // positions before the step
  int fresh = 1;    // tokens of the step
};

// Numbers that depend on their name only.
inline float number(std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d) {
  std::uint64_t x = (a * 0x9e3779b97f4a7c15u) ^ (b * 0xbf58476d1ce4e5b9u) ^ (c * 0x94d049bb133111ebu) ^
                    (d + 1) * 0xd6e8feb86659fd93u;
  float sum = 0;  // of four uniform numbers: nearly normal
  for (int i = 0; i < 4; i++) {
    x ^= x >> 31;
    x *= 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    sum += static_cast<float>(x >> 40) * 0x1p-24f - 0.5f;
  }
  return sum * 1.7f;
}

class ReadFixture {
 public:
  // Pages lie in an order shuffled by `seed`; unwritten bytes are `fill`.
  ReadFixture(const Shape& shape, std::vector<RowSpec> rows, unsigned seed = 1, unsigned char fill = 0xff)
      : shape_(shape),
        rows_(std::move(rows)),
        layout_(
            BlockLayout::make(shape.keys, shape.head_dim, shape.values, shape.value_dim, shape.page_tokens)) {
    row_offsets_ = {0};
    page_offsets_ = {0};
    for (const RowSpec& row : rows_) {
      for (int i = 0; i < row.fresh; i++) positions_.push_back(row.history + i);
      row_offsets_.push_back(static_cast<std::int32_t>(positions_.size()));
      const int first = internal::window_begin(row.history, shape.window) / shape.page_tokens;
      const int last = std::max(0, row.history + row.fresh - 1) / shape.page_tokens;
      first_page_.push_back(first);
      page_offsets_.push_back(page_offsets_.back() + last - first + 1);
    }
    pages_.resize(static_cast<std::size_t>(page_offsets_.back()));
    std::iota(pages_.begin(), pages_.end(), 0);
    std::shuffle(pages_.begin(), pages_.end(), std::mt19937(seed));
    page_bytes_ = kLayerOffset + static_cast<std::size_t>(shape.kv_heads) * layout_.bytes;
    bytes_ = pages_.size() * page_bytes_;
    memory_.reset(static_cast<std::byte*>(::operator new[](bytes_, std::align_val_t(64))));
    std::memset(memory_.get(), fill, bytes_);
    for (std::size_t r = 0; r < rows_.size(); r++) {
      for (int p = internal::window_begin(rows_[r].history, shape.window);
           p < rows_[r].history + rows_[r].fresh; p++) {
        for (int h = 0; h < shape.kv_heads; h++) write(static_cast<int>(r), p, h);
      }
    }
  }

  KvRead read() const {
    KvRead read;
    read.window = shape_.window;
    read.kv_heads = shape_.kv_heads;
    read.head_dim = shape_.head_dim;
    read.value_dim = shape_.value_dim;
    read.page_tokens = shape_.page_tokens;
    read.layout = &layout_;
    read.row_offsets = row_offsets_;
    read.positions = positions_;
    read.page_offsets = page_offsets_;
    read.first_page = first_page_;
    read.pages = pages_;
    read.base = memory_.get();
    read.page_bytes = page_bytes_;
    read.layer_offset = kLayerOffset;
    read.block_bytes = layout_.bytes;
    return read;
  }

  // A query per token and head, by its row's content and position.
  std::vector<float> queries() const {
    std::vector<float> q;
    for (const RowSpec& row : rows_) {
      for (int i = 0; i < row.fresh; i++) {
        for (int h = 0; h < shape_.q_heads; h++) {
          for (int d = 0; d < shape_.head_dim; d++) {
            q.push_back(2 * number(static_cast<std::uint64_t>(row.content) + 77,
                                   static_cast<std::uint64_t>(row.history + i), static_cast<std::uint64_t>(h),
                                   static_cast<std::uint64_t>(d)));
          }
        }
      }
    }
    return q;
  }

  std::size_t out_size() const {
    return positions_.size() * static_cast<std::size_t>(shape_.q_heads) *
           static_cast<std::size_t>(shape_.value_dim);
  }

  // Sets every bit of a stored position: NaN as a plain number, a NaN scale and bias as params.
  void spoil(int row, int position) {
    for (int h = 0; h < shape_.kv_heads; h++) {
      for (const SideLayout* side : {&layout_.keys, &layout_.values}) {
        const std::vector<std::uint32_t> words(static_cast<std::size_t>(side->words), ~0u);
        const std::vector<std::uint32_t> params(static_cast<std::size_t>(side->params), ~0u);
        side->put(block(row, position, h), position % shape_.page_tokens, words, params);
      }
    }
  }

  void put_record(int row, int position, int head, bool key, std::span<const std::uint32_t> words,
                  std::span<const std::uint32_t> params) {
    (key ? layout_.keys : layout_.values)
        .put(block(row, position, head), position % shape_.page_tokens, words, params);
  }
  void put_vector(int row, int position, int head, bool key, std::span<const float> numbers) {
    const SideLayout& side = key ? layout_.keys : layout_.values;
    std::vector<std::uint32_t> words(static_cast<std::size_t>(side.words)),
        params(static_cast<std::size_t>(side.params));
    encode_record_scalar(side.codec, numbers, words, params);
    put_record(row, position, head, key, words, params);
  }

  const BlockLayout& layout() const { return layout_; }
  const std::vector<RowSpec>& rows() const { return rows_; }
  std::vector<std::int32_t>& positions() { return positions_; }
  std::vector<std::int32_t>& pages() { return pages_; }

 private:
  static constexpr std::size_t kLayerOffset = 192;  // as if other layers stood before

  std::byte* block(int row, int position, int head) {
    return const_cast<std::byte*>(read().block(row, position / shape_.page_tokens, head));
  }
  void write(int row, int position, int head) {
    const auto content = static_cast<std::uint64_t>(rows_[static_cast<std::size_t>(row)].content);
    for (const bool key : {true, false}) {
      std::vector<float> numbers(static_cast<std::size_t>(key ? shape_.head_dim : shape_.value_dim));
      for (std::size_t d = 0; d < numbers.size(); d++) {
        numbers[d] = number(content * 2 + (key ? 1 : 0), static_cast<std::uint64_t>(position),
                            static_cast<std::uint64_t>(head), d);
      }
      put_vector(row, position, head, key, numbers);
    }
  }

  struct Free {
    void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t(64)); }
  };
  Shape shape_;
  std::vector<RowSpec> rows_;
  BlockLayout layout_;
  std::vector<std::int32_t> row_offsets_, positions_, page_offsets_, first_page_, pages_;
  std::size_t page_bytes_ = 0, bytes_ = 0;
  std::unique_ptr<std::byte[], Free> memory_;
};

// The largest difference, relative to the largest number of `expected`. NaN if any is.
inline double relative_error(std::span<const float> got, std::span<const float> expected) {
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < expected.size(); i++) {
    const double d = std::abs(static_cast<double>(got[i]) - static_cast<double>(expected[i]));
    if (!(d <= difference)) difference = d;  // keeps a NaN
    if (difference != difference) return difference;
    largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
  }
  return difference / largest;
}

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

}  // namespace windrow::testing
