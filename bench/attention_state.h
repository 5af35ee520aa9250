// Paged states of one shape for the attention benchmark: as many layers as no cache holds, pages in random
// order, windows that begin anywhere in a page.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "attention/attend.h"
#include "attention/validate.h"
#include "base/memory.h"
#include "codec/block_layout.h"

namespace windrow::bench {

inline constexpr int kPageTokens = 32;
inline constexpr std::size_t kStateBytes = std::size_t{192} << 20;

struct Case {
  std::string name;
  int q_heads, kv_heads, head_dim;
  int length;  // positions that a query sees, at most
  bool windowed;
  int rows, fresh;
  bool ragged = false;  // rows see 1 .. length positions

  int window() const { return windowed ? length : kFullWindow; }
};

// The tokens of a step of the case.
struct Tokens {
  explicit Tokens(const Case& c, std::mt19937& random) : offsets{0} {
    for (int r = 0; r < c.rows; r++) {
      int history = c.length - 1 - (c.windowed ? 0 : c.fresh - 1);
      if (c.ragged) {
        history = static_cast<int>(random() % static_cast<unsigned>(c.length));
      } else if (c.windowed) {
        history += static_cast<int>(random() % 64);
      }
      histories.push_back(history);
      for (int i = 0; i < c.fresh; i++) {
        positions.push_back(history + i);
        begins.push_back(std::max(0, history + i - c.window() + 1));
        ends.push_back(history + i + 1);
      }
      offsets.push_back(static_cast<std::int32_t>(positions.size()));
    }
  }
  // Positions that some token of the rows sees.
  double seen(const Case& c) const {
    double sum = 0;
    for (std::size_t r = 0; r < histories.size(); r++) {
      sum +=
          ends[static_cast<std::size_t>(offsets[r + 1]) - 1] - begins[static_cast<std::size_t>(offsets[r])];
    }
    return sum * c.kv_heads;
  }
  double flops(const Case& c) const {  // two products of head_dim for each (query, position)
    double pairs = 0;
    for (std::size_t t = 0; t < positions.size(); t++) pairs += ends[t] - begins[t];
    return pairs * c.q_heads * c.head_dim * 4;
  }

  std::vector<std::int32_t> offsets, positions, begins, ends, histories;
};

class PagedState {
 public:
  PagedState(const Case& c, const Codec& codec)
      : case_(c),
        random_(7),
        tokens_(c, random_),
        layout_(BlockLayout::make(codec, c.head_dim, codec, c.head_dim, kPageTokens)) {
    for (std::size_t r = 0; r < tokens_.histories.size(); r++) {
      const int history = tokens_.histories[r];
      const int first = tokens_.begins[static_cast<std::size_t>(tokens_.offsets[r])] / kPageTokens;
      const int pages = (history + c.fresh - 1) / kPageTokens - first + 1;
      rows_.push_back(
          {.length = history, .table_first = first, .table_size = pages, .fresh_first = first + pages});
      per_layer_ += static_cast<std::size_t>(pages);
    }
    layers_ = std::max<std::size_t>(2, kStateBytes / (per_layer_ * page_bytes()) + 1);
    arena_ = *Arena::create(layers_ * per_layer_ * page_bytes(), "bench state");
    fill();
    pages_.resize(layers_ * per_layer_);
    std::iota(pages_.begin(), pages_.end(), 0);
    std::shuffle(pages_.begin(), pages_.end(), random_);
    q_.resize(tokens_.positions.size() * static_cast<std::size_t>(c.q_heads * c.head_dim));
    for (float& x : q_) x = static_cast<float>(random_() % 2001) * 1e-3f - 1;
    out_.resize(q_.size());
  }

  std::size_t layers() const { return layers_; }
  double flops() const { return tokens_.flops(case_); }
  double bytes() const { return tokens_.seen(case_) * static_cast<double>(layout_.bytes) / kPageTokens; }

  void attend(const windrow::internal::Kernels& kernels, std::size_t layer, ThreadPool& pool) {
    KvRead read;
    read.window = case_.window();
    read.kv_heads = case_.kv_heads;
    read.head_dim = read.value_dim = case_.head_dim;
    read.page_tokens = kPageTokens;
    read.row_offsets = tokens_.offsets;
    read.positions = tokens_.positions;
    read.begins = tokens_.begins;
    read.ends = tokens_.ends;
    const std::int32_t* table = pages_.data() + layer % layers_ * per_layer_;
    for (KvRead::Row& row : rows_) {
      row.table = table;
      table += row.table_size;
    }
    read.rows = rows_;
    read.storages[0] = {
        .layout = &layout_, .base = arena_.data(), .page_bytes = page_bytes(), .block_bytes = layout_.bytes};
    const AttentionParams params{.q_heads = case_.q_heads, .scale = 0.05f};
    const Status valid = windrow::internal::validate_attention(read, q_.size(), params, out_.size());
    if (!valid.ok() || !windrow::internal::attend_with(kernels, read, q_, params, out_, &pool).ok()) {
      fmt::print(stderr, "{}: {}\n", case_.name, valid.message());
      std::exit(1);
    }
  }

 private:
  std::size_t page_bytes() const { return layout_.bytes * static_cast<std::size_t>(case_.kv_heads); }

  // Codes are any bits; scales and biases near 1/64, which both halves of 0x3c80 are as bf16.
  void fill() {
    const std::size_t words = arena_.size() / 4;
    auto* const all = reinterpret_cast<std::uint32_t*>(arena_.data());
    auto x = static_cast<std::uint32_t>(random_());
    for (std::size_t i = 0; i < words; i++) {
      x = x * 1664525u + 1013904223u;
      all[i] = layout_.keys.codec.is_affine() ? x : 0x3c803c80u | (x >> 8 & 0x007f007fu);
    }
    for (std::size_t at = 0; at < arena_.size(); at += layout_.bytes) {
      for (const SideLayout* side : {&layout_.keys, &layout_.values}) {
        std::fill_n(side->param_words(arena_.data() + at), side->params * kPageTokens, 0x3c803c80u);
      }
    }
  }

  Case case_;
  std::mt19937 random_;
  Tokens tokens_;
  BlockLayout layout_;
  std::size_t layers_ = 0, per_layer_ = 0;  // pages of a layer
  Arena arena_;
  std::vector<std::int32_t> pages_;
  std::vector<KvRead::Row> rows_;
  std::vector<float> q_, out_;
};

}  // namespace windrow::bench
