// A tiny machine for programs over a StateStore, judged by a model that knows only token lists.
//
// Every token has an id; its key and value vectors are a hash of (id, layer, head, dim), so what
// any position must hold is known without the store.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "codec/block_layout.h"
#include "windrow/store.h"

namespace windrow::testing {

inline float token_number(int id, int layer, int head, int dim, bool key) {
  std::uint32_t h = 2166136261u;
  for (const int v : {id, layer, head, dim, key ? 1 : 0})
    h = (h ^ static_cast<std::uint32_t>(v + 7)) * 16777619u;
  h ^= h >> 15;
  h *= 2246822519u;
  h ^= h >> 13;
  return static_cast<float>(static_cast<int>(h & 0xffff) - 32768) / 8192.0f;
}

// [tokens, heads, dim] of one layer.
inline std::vector<float> token_vectors(const std::vector<int>& ids, int layer, int heads, int dim,
                                        bool key) {
  std::vector<float> out;
  for (const int id : ids) {
    for (int h = 0; h < heads; h++) {
      for (int d = 0; d < dim; d++) out.push_back(token_number(id, layer, h, d, key));
    }
  }
  return out;
}

inline std::vector<int> all_layers(const StatePlan& plan) {
  std::vector<int> layers;
  for (int g = 0; g < plan.group_count(); g++) {
    layers.insert(layers.end(), plan.group(g).layers.begin(), plan.group(g).layers.end());
  }
  return layers;
}

// Appends tokens `ids` (packed by row) to every layer of an open step.
inline Status append_all(Step& step, const StatePlan& plan, const std::vector<int>& ids) {
  for (const int layer : all_layers(plan)) {
    const AttentionGroup& g = plan.group(plan.group_of_layer(layer));
    const std::vector<float> k = token_vectors(ids, layer, g.kv_heads, g.head_dim, true);
    const std::vector<float> v = token_vectors(ids, layer, g.kv_heads, g.value_dim, false);
    if (Status s = step.append(layer, k, v); !s.ok()) return s;
  }
  return Status();
}

struct Record {
  std::vector<std::uint32_t> words, params;
  friend bool operator==(const Record&, const Record&) = default;
};

inline Record expected_record(const Codec& codec, int dim, int id, int layer, int head, bool key) {
  std::vector<float> x;
  for (int d = 0; d < dim; d++) x.push_back(token_number(id, layer, head, d, key));
  Record r;
  r.words.resize(static_cast<std::size_t>(codec.record_words(dim)));
  r.params.resize(static_cast<std::size_t>(codec.record_params(dim)));
  encode_record(codec, x, r.words, r.params);
  return r;
}

inline Record stored_record(const SideLayout& side, const std::byte* block, int position) {
  Record r;
  r.words.resize(static_cast<std::size_t>(side.words));
  r.params.resize(static_cast<std::size_t>(side.params));
  side.get(block, position, r.words, r.params);
  return r;
}

// The row's extracted records are those of the newest min(length, W) of `ids`.
inline void expect_row_holds(const Row& row, const StatePlan& plan, const std::vector<int>& ids) {
  ASSERT_EQ(row.length(), static_cast<int>(ids.size()));
  for (const int layer : all_layers(plan)) {
    const AttentionGroup& g = plan.group(plan.group_of_layer(layer));
    Result<LayerRecords> got = row.extract(layer);
    ASSERT_TRUE(got.ok()) << got.status().message();
    ASSERT_EQ(got->end, row.length());
    // A truncation may leave less than W, never less than the next query needs.
    ASSERT_GE(got->begin, std::max(0, got->end - g.window));
    ASSERT_LE(got->begin, std::max(0, got->end - (g.window - 1)));
    LayerRecords want;
    want.layer = layer;
    want.begin = got->begin;
    want.end = got->end;
    for (int h = 0; h < g.kv_heads; h++) {
      for (int p = got->begin; p < got->end; p++) {
        const int id = ids[static_cast<std::size_t>(p)];
        const Record k = expected_record(g.keys, g.head_dim, id, layer, h, true);
        const Record v = expected_record(g.values, g.value_dim, id, layer, h, false);
        want.key_words.insert(want.key_words.end(), k.words.begin(), k.words.end());
        want.key_params.insert(want.key_params.end(), k.params.begin(), k.params.end());
        want.value_words.insert(want.value_words.end(), v.words.begin(), v.words.end());
        want.value_params.insert(want.value_params.end(), v.params.begin(), v.params.end());
      }
    }
    ASSERT_EQ(*got, want) << "layer " << layer;
  }
}

// Every position that a token of row r may see through `read` holds the record of its id; a causal window.
inline void expect_read_shows(const KvRead& read, const StatePlan& plan, int r, const std::vector<int>& ids) {
  const AttentionGroup& g = plan.group(plan.group_of_layer(read.layer));
  const auto row = static_cast<std::size_t>(r);
  const KvRead::Row& its = read.rows[row];
  const BlockLayout& layout = *read.storages[its.storage].layout;
  for (std::int32_t t = read.row_offsets[row]; t < read.row_offsets[row + 1]; t++) {
    const std::int32_t q = read.positions[static_cast<std::size_t>(t)];
    ASSERT_EQ(read.begins[static_cast<std::size_t>(t)], std::max(0, q - (read.window - 1)));
    ASSERT_EQ(read.ends[static_cast<std::size_t>(t)], q + 1);
    for (std::int32_t p = 0; p <= q; p++) {
      if (p >= read.sinks && p < read.begins[static_cast<std::size_t>(t)]) continue;
      for (int h = 0; h < g.kv_heads; h++) {
        const std::byte* block = read.block(its, p / read.page_tokens, h);
        const int at = p % read.page_tokens, id = ids[static_cast<std::size_t>(p)];
        ASSERT_EQ(stored_record(layout.keys, block, at),
                  expected_record(g.keys, g.head_dim, id, read.layer, h, true))
            << "row " << r << " position " << p << " seen from " << q;
        ASSERT_EQ(stored_record(layout.values, block, at),
                  expected_record(g.values, g.value_dim, id, read.layer, h, false));
      }
    }
  }
}

// The store plus the model of it.
class Machine {
 public:
  Machine(const StatePlan& plan, StoreOptions options)
      : plan_(plan), store_(StateStore::create(plan, options)) {}

  StateStore& store() { return *store_; }
  int rows() const { return static_cast<int>(rows_.size()); }
  const std::vector<int>& ids(int r) const { return ids_[static_cast<std::size_t>(r)]; }
  Row& row(int r) { return rows_[static_cast<std::size_t>(r)]; }

  void new_row() {
    Result<Row> row = store_->new_row();
    ASSERT_EQ(row.ok(), rows() < plan_.limits().rows);
    if (row.ok()) add(std::move(*row), {});
  }
  void fork(int r) {
    Result<Row> row = rows_[static_cast<std::size_t>(r)].fork();
    ASSERT_EQ(row.ok(), rows() < plan_.limits().rows);
    if (row.ok()) add(std::move(*row), std::vector<int>(ids(r)));
  }
  void drop(int r) {
    rows_.erase(rows_.begin() + r);
    ids_.erase(ids_.begin() + r);
  }
  void truncate(int r, int length) {
    const auto i = static_cast<std::size_t>(r);
    const int lowest = rows_[i].minimum_length();
    // The promise: whatever happened, R back from the longest it ever was, unless used up.
    ASSERT_LE(lowest, rows_[i].length());
    const Status s = rows_[i].truncate(length);
    ASSERT_EQ(s.ok(), length >= lowest && length <= static_cast<int>(ids_[i].size())) << s.message();
    if (s.ok()) ids_[i].resize(static_cast<std::size_t>(length));
  }
  // One step of lengths[i] new tokens on rows which[i]; keep < 0 in keep[0]: abort.
  void step(const std::vector<int>& which, const std::vector<int>& lengths, const std::vector<int>& keep) {
    std::vector<Row*> rows;
    std::vector<int> fresh;
    std::vector<std::vector<int>> tentative;
    bool fits = true;
    int total = 0;
    for (std::size_t i = 0; i < which.size(); i++) {
      rows.push_back(&row(which[i]));
      std::vector<int> all = ids(which[i]);
      for (int t = 0; t < lengths[i]; t++) {
        all.push_back(next_id_);
        fresh.push_back(next_id_++);
      }
      total += lengths[i];
      fits = fits && static_cast<int>(all.size()) <= plan_.limits().tokens;
      tentative.push_back(std::move(all));
    }
    fits = fits && total <= plan_.limits().step_tokens;
    Result<Step> step = store_->begin(rows, lengths);
    ASSERT_EQ(step.ok(), fits) << step.status().message();  // within the limits begin never fails
    if (!step.ok()) return;
    ASSERT_TRUE(append_all(*step, plan_, fresh).ok());
    for (const int layer : all_layers(plan_)) {
      Result<KvRead> read = step->read(layer);
      ASSERT_TRUE(read.ok());
      for (std::size_t i = 0; i < which.size(); i++) {
        expect_read_shows(*read, plan_, static_cast<int>(i), tentative[i]);
      }
    }
    if (!keep.empty() && keep[0] < 0) {
      step->abort();
      return;
    }
    const Status s = step->resolve(keep);
    ASSERT_TRUE(s.ok()) << s.message();
    for (std::size_t i = 0; i < which.size(); i++) {
      auto& list = ids_[static_cast<std::size_t>(which[i])];
      list.assign(tentative[i].begin(), tentative[i].end() - (lengths[i] - keep[i]));
    }
  }
  // Invariants 2, 3, 5, 6 at rest.
  void check() {
    std::size_t bytes = 0;
    for (int g = 0; g < plan_.group_count(); g++) {
      const PoolUse use = store_->pool_use(g);
      ASSERT_EQ(use.owned + use.free, use.pages);
      if (rows_.empty()) {
        ASSERT_EQ(use.owned, 0);
      }
      bytes += use.bytes;
    }
    ASSERT_EQ(bytes, plan_.bytes());
    ASSERT_EQ(store_->live_rows(), rows());
    for (int r = 0; r < rows(); r++) expect_row_holds(row(r), plan_, ids(r));
  }

 private:
  void add(Row row, std::vector<int> ids) {
    rows_.push_back(std::move(row));
    ids_.push_back(std::move(ids));
  }

  StatePlan plan_;
  Result<StateStore> store_;
  std::vector<Row> rows_;
  std::vector<std::vector<int>> ids_;
  int next_id_ = 1;
};

}  // namespace windrow::testing
