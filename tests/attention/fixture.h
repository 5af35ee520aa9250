// Reads built by hand, without the state engine: rows over pages in any order, with every slot that no
// token sees filled as the test wants.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "attention/numbers.h"
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
  int sinks = 0;
  Codec other_keys = Codec::bf16();  // of storage 1
  Codec other_values = Codec::bf16();
};

// A row whose content is named by `content`: equal names are equal numbers at equal positions.
struct RowSpec {
  int content = 0;
  int history = 0;  // positions before the step
  int fresh = 1;    // tokens of the step
  int storage = 0;
  std::vector<int> parents = {};   // of a tree, [fresh]
  std::vector<int> begins = {};    // [fresh]; empty: the shape's window
  std::vector<int> ends = {};      // [fresh]; empty: a token sees itself last
  std::vector<int> variants = {};  // parts of the names of the last slots, as many; the others' are 0
};

// The first position that a query at `position` sees.
constexpr int window_begin(int position, int window) { return position < window ? 0 : position - window + 1; }

class ReadFixture {
 public:
  // Pages lie in an order shuffled by `seed`; what no token sees is `fill`, or has no page.
  ReadFixture(const Shape& shape, std::vector<RowSpec> rows, unsigned seed = 1, unsigned char fill = 0xff)
      : shape_(shape), specs_(std::move(rows)) {
    stores_[0].layout =
        BlockLayout::make(shape.keys, shape.head_dim, shape.values, shape.value_dim, shape.page_tokens);
    stores_[1].layout = BlockLayout::make(shape.other_keys, shape.head_dim, shape.other_values,
                                          shape.value_dim, shape.page_tokens);
    tables_.resize(specs_.size());
    for (std::size_t r = 0; r < specs_.size(); r++) {
      add_tokens(specs_[r]);
      add_tables(r);
    }
    for (std::size_t s = 0; s < 2; s++) allocate(static_cast<int>(s), seed, fill);
    for (std::size_t r = 0; r < specs_.size(); r++) {
      for (const int slot : visible_slots(static_cast<int>(r))) {
        for (int h = 0; h < shape.kv_heads; h++) write(static_cast<int>(r), slot, h);
      }
    }
  }

  KvRead read() const {
    KvRead read;
    read.window = shape_.window;
    read.sinks = shape_.sinks;
    read.sink_pages = sink_pages();
    read.kv_heads = shape_.kv_heads;
    read.head_dim = shape_.head_dim;
    read.value_dim = shape_.value_dim;
    read.page_tokens = shape_.page_tokens;
    read.row_offsets = row_offsets_;
    read.positions = positions_;
    read.begins = begins_;
    read.ends = ends_;
    if (has_tree_) read.parents = parents_;
    read.rows = rows_;
    for (std::size_t s = 0; s < 2; s++) {
      if (!stores_[s].used) continue;
      read.storages[s] = {.layout = &stores_[s].layout,
                          .base = stores_[s].memory.get(),
                          .page_bytes = page_bytes(s),
                          .layer_offset = kLayerOffset,
                          .block_bytes = stores_[s].layout.bytes};
    }
    return read;
  }

  // A query per token and head, by its row's content and position.
  std::vector<float> queries() const {
    std::vector<float> q;
    for (std::size_t r = 0; r < specs_.size(); r++) {
      const RowSpec& row = specs_[r];
      for (int i = 0; i < row.fresh; i++) {
        for (int h = 0; h < shape_.q_heads; h++) {
          for (int d = 0; d < shape_.head_dim; d++) {
            q.push_back(2 * number(static_cast<std::uint64_t>(name(row, row.history + i)) + 77,
                                   static_cast<std::uint64_t>(position(static_cast<int>(r), row.history + i)),
                                   static_cast<std::uint64_t>(h), static_cast<std::uint64_t>(d)));
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

  // Sets every bit of a stored slot: NaN as a plain number, a NaN scale and bias as params.
  void spoil(int row, int slot) {
    for (int h = 0; h < shape_.kv_heads; h++) {
      for (const bool key : {true, false}) {
        const SideLayout& s = side(row, key);
        const std::vector<std::uint32_t> words(static_cast<std::size_t>(s.words), ~0u);
        const std::vector<std::uint32_t> params(static_cast<std::size_t>(s.params), ~0u);
        put_record(row, slot, h, key, words, params);
      }
    }
  }

  void put_record(int row, int slot, int head, bool key, std::span<const std::uint32_t> words,
                  std::span<const std::uint32_t> params) {
    side(row, key).put(block(row, slot, head), slot % shape_.page_tokens, words, params);
  }
  void put_vector(int row, int slot, int head, bool key, std::span<const float> numbers) {
    const SideLayout& s = side(row, key);
    std::vector<std::uint32_t> words(static_cast<std::size_t>(s.words)),
        params(static_cast<std::size_t>(s.params));
    encode_record_scalar(s.codec, numbers, words, params);
    put_record(row, slot, head, key, words, params);
  }

  // Whether token i of a row sees a slot.
  bool sees(int row, int i, int slot) const {
    const RowSpec& spec = specs_[static_cast<std::size_t>(row)];
    const std::size_t t = static_cast<std::size_t>(row_offsets_[static_cast<std::size_t>(row)] + i);
    const int at = position(row, slot);
    if (at >= ends_[t] || (at < begins_[t] && at >= shape_.sinks)) return false;
    if (spec.parents.empty() || slot < spec.history) return true;
    for (int a = i; a >= 0; a = spec.parents[static_cast<std::size_t>(a)]) {
      if (a == slot - spec.history) return true;
    }
    return false;
  }
  // The slots that some token of the row sees, ascending.
  std::vector<int> visible_slots(int row) const {
    const RowSpec& spec = specs_[static_cast<std::size_t>(row)];
    std::vector<int> slots;
    for (int slot = 0; slot < spec.history + spec.fresh; slot++) {
      for (int i = 0; i < spec.fresh; i++) {
        if (!sees(row, i, slot)) continue;
        slots.push_back(slot);
        break;
      }
    }
    return slots;
  }

  // For tests of what is refused.
  std::vector<KvRead::Row>& rows() { return rows_; }
  std::vector<std::int32_t>& table(int row) { return tables_[static_cast<std::size_t>(row)].table; }
  std::vector<std::int32_t>& fresh(int row) { return tables_[static_cast<std::size_t>(row)].fresh; }

 private:
  static constexpr std::size_t kLayerOffset = 192;  // as if other layers stood before
  struct Free {
    void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t(64)); }
  };
  struct Store {
    BlockLayout layout;
    bool used = false;
    int pages = 0;
    std::unique_ptr<std::byte[], Free> memory;
  };
  struct Tables {
    std::vector<std::int32_t> table, fresh;
  };

  int sink_pages() const { return (shape_.sinks + shape_.page_tokens - 1) / shape_.page_tokens; }
  std::size_t page_bytes(std::size_t s) const {
    return kLayerOffset + static_cast<std::size_t>(shape_.kv_heads) * stores_[s].layout.bytes;
  }
  const SideLayout& side(int row, bool key) const {
    const auto s = static_cast<std::size_t>(specs_[static_cast<std::size_t>(row)].storage);
    return key ? stores_[s].layout.keys : stores_[s].layout.values;
  }
  std::byte* block(int row, int slot, int head) {
    return const_cast<std::byte*>(
        read().block(rows_[static_cast<std::size_t>(row)], slot / shape_.page_tokens, head));
  }
  int position(int row, int slot) const {
    const RowSpec& spec = specs_[static_cast<std::size_t>(row)];
    if (slot < spec.history) return slot;
    return positions_[static_cast<std::size_t>(row_offsets_[static_cast<std::size_t>(row)] + slot -
                                               spec.history)];
  }
  static int name(const RowSpec& row, int slot) {
    const int from = row.history + row.fresh - static_cast<int>(row.variants.size());
    return row.content + (slot < from ? 0 : 1000 * row.variants[static_cast<std::size_t>(slot - from)]);
  }

  void add_tokens(const RowSpec& row) {
    const std::size_t first = positions_.size();
    for (int i = 0; i < row.fresh; i++) {
      const auto at = static_cast<std::size_t>(i);
      const int parent = row.parents.empty() ? i - 1 : row.parents[at];
      const int position =
          parent < 0 ? row.history : positions_[first + static_cast<std::size_t>(parent)] + 1;
      parents_.push_back(parent);
      positions_.push_back(position);
      begins_.push_back(row.begins.empty() ? window_begin(position, shape_.window) : row.begins[at]);
      ends_.push_back(row.ends.empty() ? position + 1 : row.ends[at]);
    }
    has_tree_ = has_tree_ || !row.parents.empty();
    row_offsets_.push_back(static_cast<std::int32_t>(positions_.size()));
  }

  // Pages that no token sees have no number, or -1 between others.
  void add_tables(std::size_t r) {
    const RowSpec& spec = specs_[r];
    KvRead::Row row{.length = spec.history, .storage = spec.storage};
    Store& store = stores_[static_cast<std::size_t>(spec.storage)];
    store.used = true;
    std::vector<std::int32_t> pages(
        static_cast<std::size_t>((spec.history + spec.fresh) / shape_.page_tokens + 1), -1);
    for (const int slot : visible_slots(static_cast<int>(r))) {
      std::int32_t& page = pages[static_cast<std::size_t>(slot / shape_.page_tokens)];
      if (page < 0) page = store.pages++;
    }
    row.fresh_first = spec.history / shape_.page_tokens;
    const int in_sinks = std::min(sink_pages(), row.fresh_first);
    row.table_first = std::max(in_sinks, sink_pages());
    while (row.table_first < row.fresh_first && pages[static_cast<std::size_t>(row.table_first)] < 0) {
      row.table_first++;
    }
    Tables& tables = tables_[r];
    tables.table.assign(pages.begin(), pages.begin() + in_sinks);
    if (row.table_first < row.fresh_first) {
      tables.table.insert(tables.table.end(), pages.begin() + row.table_first,
                          pages.begin() + row.fresh_first);
    }
    tables.fresh.assign(pages.begin() + row.fresh_first, pages.end());
    row.table = tables.table.data();
    row.table_size = static_cast<std::int32_t>(tables.table.size());
    row.fresh = tables.fresh.data();
    row.fresh_size = static_cast<std::int32_t>(tables.fresh.size());
    rows_.push_back(row);
  }

  void allocate(int s, unsigned seed, unsigned char fill) {
    Store& store = stores_[static_cast<std::size_t>(s)];
    const std::size_t bytes = static_cast<std::size_t>(store.pages) * page_bytes(static_cast<std::size_t>(s));
    store.memory.reset(static_cast<std::byte*>(::operator new[](bytes, std::align_val_t(64))));
    std::memset(store.memory.get(), fill, bytes);
    std::vector<std::int32_t> order(static_cast<std::size_t>(store.pages));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(seed));
    for (std::size_t r = 0; r < specs_.size(); r++) {
      if (specs_[r].storage != s) continue;
      for (std::vector<std::int32_t>* pages : {&tables_[r].table, &tables_[r].fresh}) {
        for (std::int32_t& page : *pages) {
          if (page >= 0) page = order[static_cast<std::size_t>(page)];
        }
      }
    }
  }

  void write(int row, int slot, int head) {
    const auto content = static_cast<std::uint64_t>(name(specs_[static_cast<std::size_t>(row)], slot));
    for (const bool key : {true, false}) {
      std::vector<float> numbers(static_cast<std::size_t>(key ? shape_.head_dim : shape_.value_dim));
      for (std::size_t d = 0; d < numbers.size(); d++) {
        numbers[d] = number(content * 2 + (key ? 1 : 0), static_cast<std::uint64_t>(position(row, slot)),
                            static_cast<std::uint64_t>(head), d);
      }
      put_vector(row, slot, head, key, numbers);
    }
  }

  Shape shape_;
  std::vector<RowSpec> specs_;
  Store stores_[2];
  std::vector<Tables> tables_;
  std::vector<KvRead::Row> rows_;
  std::vector<std::int32_t> row_offsets_ = {0}, positions_, begins_, ends_, parents_;
  bool has_tree_ = false;
};

// A token's part of what an attention call gave.
inline std::span<const float> token_of(const Shape& shape, std::span<const float> out, int t) {
  const std::size_t size =
      static_cast<std::size_t>(shape.q_heads) * static_cast<std::size_t>(shape.value_dim);
  return out.subspan(static_cast<std::size_t>(t) * size, size);
}

}  // namespace windrow::testing
