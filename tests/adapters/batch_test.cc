// Batched MLX rings in and out: random lives of a batch (tests/oracle, which says what each row holds), with
// NaN in every column that is no row's; and batches made of rows of a store.
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <random>

#include "adapters/rows.h"

namespace windrow::testing {
namespace {

using oracle::BatchRing;
using oracle::Ints;
using oracle::Kv;

constexpr int kHeads = 1, kDim = 16;

AttentionGroup group_of(int window) {
  AttentionGroup g;
  g.layers = {0};
  g.window = window;
  g.kv_heads = kHeads;
  g.head_dim = g.value_dim = kDim;
  g.keys = g.values = Codec::f32();
  return g;
}

// A batch under random operations.
class Life {
 public:
  Life(int window, unsigned seed) : random_(seed), ring_(start(window)) {}

  void step() {
    const int rows = ring_.rows();
    switch (random_() % 7) {
      case 0:
      case 1: return void(ring_.update(fresh(rows, 1)));
      case 2: return void(ring_.append_window(fresh(rows, below(5) + 1)));
      case 3: {  // a padded prompt, maybe in chunks; a row may be all padding in one of them
        Ints lengths, padding;
        const int columns = below(7) + 2;
        for (int b = 0; b < rows; b++) {
          lengths.push_back(below(columns + 1));
          padding.push_back(columns - lengths.back());
        }
        ring_.prepare(lengths, padding);
        for (int left = columns; left > 0;) {
          const int n = std::min(left, below(4) + 2);
          ring_.append_window(fresh(rows, n));
          left -= n;
        }
        return ring_.finalize();
      }
      case 4: {  // a speculative round
        const int columns = below(4) + 1;
        ring_.append_window(fresh(rows, columns));
        Ints keep;
        for (int b = 0; b < rows; b++) keep.push_back(below(columns + 1));
        return ring_.resolve(columns, keep);
      }
      case 5: {  // rows leave or change places
        Ints keep(rows);
        std::iota(keep.begin(), keep.end(), 0);
        std::ranges::shuffle(keep, random_);
        keep.resize(below(rows) + 1);
        return ring_.filter(keep);
      }
      default: {  // rows join
        if (rows > 4) return;
        BatchRing other = start(ring_.max_size());
        other.update(fresh(other.rows(), below(6) + 1));
        return ring_.extend(other);
      }
    }
  }

  const BatchRing& ring() const { return ring_; }

 private:
  int below(int n) { return static_cast<int>(random_() % n); }
  BatchRing start(int window) {
    Ints padding;
    for (int b = 0, n = below(3) + 1; b < n; b++) padding.push_back(below(2) * below(4));
    return {window, padding, 3};
  }
  Kv fresh(int rows, int columns) {
    Kv out{oracle::Tensor(rows, kHeads, columns, kDim), oracle::Tensor(rows, kHeads, columns, kDim)};
    for (float& x : out.k.values) x = static_cast<float>(++count_);
    for (float& x : out.v.values) x = static_cast<float>(++count_);
    return out;
  }
  int count_ = 0;
  std::mt19937 random_;
  BatchRing ring_;
};

// The buffer with NaN wherever no row's column stands.
Kv poisoned(const BatchRing& ring) {
  Kv out = ring.buffer();
  const int slots = out.columns();
  for (int b = 0; b < out.batch(); b++) {
    const int first = std::clamp(ring.floor()[b], 0, slots);
    for (int c = 0; c < slots; c++) {
      const int temporal = ring.rotated() ? (c - ring.idx() + slots) % slots : c;
      if (temporal >= first && (ring.rotated() || c < ring.idx())) continue;
      for (int h = 0; h < kHeads; h++) {
        std::ranges::fill(out.k.at(b, h, c), std::numeric_limits<float>::quiet_NaN());
        std::ranges::fill(out.v.at(b, h, c), std::numeric_limits<float>::quiet_NaN());
      }
    }
  }
  return out;
}

TEST(MlxBatch, C6_C22_RandomLivesGiveEachRowItsOwnColumns) {
  int rotated = 0, short_by_one = 0, rows = 0;
  for (unsigned seed = 0; seed < 600; seed++) {
    const int window = 1 + static_cast<int>(seed % 6);
    const AttentionGroup g = group_of(window);
    Life life(window, seed);
    for (int i = 0; i < 25; i++) {
      life.step();
      SCOPED_TRACE("seed " + std::to_string(seed) + " step " + std::to_string(i));
      const BatchRing& ring = life.ring();
      if (ring.buffer().columns() == 0) continue;
      auto mlx = batch_of(ring, g.keys, g.values);
      const Kv poison = poisoned(ring);
      mlx->keys = array_of(poison.k, g.keys);
      mlx->values = array_of(poison.v, g.values);
      mlx->cache.keys = mlx->keys.view();
      mlx->cache.values = mlx->values.view();
      Result<std::vector<LayerRecords>> in = records_from_mlx(mlx->cache, g, 0);
      ASSERT_TRUE(in.ok()) << in.status().message();
      std::vector<const LayerRecords*> lines;
      for (int b = 0; b < ring.rows(); b++) {
        const oracle::RowColumns want = ring.row(b);
        const LayerRecords& row = (*in)[b];
        lines.push_back(&row);
        const int length = std::max(0, want.end), n = row.positions();
        ASSERT_EQ(row.end, length);
        ASSERT_GE(n, std::min(length, window - 1));
        ASSERT_LE(n, want.kv.columns());
        ASSERT_TRUE(
            oracle::same_bits(decoded(row, g), want.kv.cut(want.kv.columns() - n, want.kv.columns())));
        rows++;
        // What mlx-lm's extract would cut out: columns of the buffer, whosever they are.
        if (!ring.rotated() && length >= window) {
          const int first = std::max(ring.idx() - length, 0);
          const auto cut = serial_of(poison.take_rows({b}).cut(first, ring.idx()), length, ring.idx() - first,
                                     0, window, g.keys, g.values);
          cut->cache.whole_window = false;
          ASSERT_EQ(*records_from_mlx(cut->cache, g, 0), row);
        }
        short_by_one += n < std::min(length, window);
      }
      rotated += ring.rotated();
      Result<MlxBatchCache> out = mlx_from_records(lines, g);
      ASSERT_TRUE(out.ok()) << out.status().message();
      ASSERT_EQ(*records_from_mlx(*out, g, 0), *in);
      if (::testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GT(rotated, 300);
  EXPECT_GT(short_by_one, 1000);  // W - 1 of them
  EXPECT_GT(rows, 20000);
}

// Rows of a store leave as a batch, live on there, and come back as the rows that stayed.
TEST(MlxBatch, C21_C25_RowsGoOutAndComeBack) {
  for (int window = 1; window <= 6; window++) {
    for (const Codec& codec : {Codec::f32(), Codec::affine(4, 32, DType::kF16)}) {
      AttentionGroup group = group_of(window);
      group.head_dim = 64;
      group.value_dim = 32;
      group.keys = group.values = codec;
      const StatePlan plan = must(StatePlan::Builder({.rows = 9, .tokens = 64, .step_tokens = 64})
                                      .attention(group)
                                      .page_tokens(2)
                                      .build());
      const AttentionGroup& g = plan.group(0);
      Result<StateStore> store = StateStore::create(plan, {.poison = true});
      ASSERT_TRUE(store.ok());
      for (int longest = 0; longest <= 20; longest++) {
        SCOPED_TRACE("W " + std::to_string(window) + " longest " + std::to_string(longest));
        const Ints lengths = {longest, longest / 2, 0, std::min(longest, 3)};
        std::vector<Row> rows;
        std::vector<LayerRecords> records;
        for (std::size_t r = 0; r < lengths.size(); r++) {
          rows.push_back(*store->new_row());
          Ints ids(lengths[r]);
          std::iota(ids.begin(), ids.end(), 100 * static_cast<int>(r));
          if (!ids.empty()) feed(*store, rows[r], ids);
          records.push_back(*rows[r].extract(0));
        }
        std::vector<const LayerRecords*> lines;
        for (const LayerRecords& r : records) lines.push_back(&r);
        const int width = std::min(longest, window);
        for (int idx = 0; idx <= width; idx++) {
          const bool ring = idx > 0;
          Result<MlxBatchCache> out = mlx_from_records(lines, g, {.ring = ring, .idx = idx});
          if (ring && width < window) {
            ASSERT_EQ(out.status().code(), StatusCode::kFailedPrecondition);
            continue;
          }
          ASSERT_TRUE(out.ok()) << out.status().message();
          ASSERT_EQ(out->slots, width);
          ASSERT_EQ(out->offset, lengths);
          Result<std::vector<LayerRecords>> in = records_from_mlx(*out, g, 0);
          ASSERT_TRUE(in.ok()) << in.status().message();
          ASSERT_EQ(*in, records);
          Result<Row> back = store->adopt(*row_from_layers(plan, {(*in)[1]}));
          ASSERT_TRUE(back.ok()) << back.status().message();
          ASSERT_EQ(*back->extract(), *rows[1].extract());
        }
        // Plain numbers of every row, placed as mlx-lm's merge places them.
        Result<MlxBatchCache> plain = mlx_from_records(lines, g, {.keys = Codec::f32()});
        ASSERT_TRUE(plain.ok());
        std::vector<oracle::RowColumns> sources;
        for (const LayerRecords& r : records) sources.push_back({decoded(r, g), r.begin, r.end});
        const BatchRing merged = BatchRing::merge(window, sources);
        if (width > 0) {
          EXPECT_TRUE(same_array(plain->keys, array_of(merged.buffer().k, Codec::f32()).view()));
        }
        EXPECT_EQ(plain->left_padding, merged.left_padding());
        EXPECT_EQ(plain->idx, merged.idx());
        EXPECT_EQ(plain->columns, merged.offset());
        EXPECT_FALSE(plain->rotated);
      }
    }
  }
}

// After a truncation W - 1 positions are left; MLX must not take the row for one that can be trimmed.
TEST(MlxBatch, C19_ATruncatedRowIsNoTrimmableBatch) {
  const StatePlan plan = must(StatePlan::Builder({.rows = 1, .tokens = 64}).attention(group_of(4)).build());
  Result<StateStore> store = StateStore::create(plan);
  ASSERT_TRUE(store.ok());
  Row row = *store->new_row();
  feed(*store, row, {1, 2, 3, 4, 5, 6, 7});
  ASSERT_TRUE(row.truncate(6).ok());
  const LayerRecords records = *row.extract(0);
  ASSERT_EQ(records.positions(), 3);
  const LayerRecords* const lines[] = {&records};
  Result<MlxBatchCache> batch = mlx_from_records(lines, plan.group(0));
  ASSERT_TRUE(batch.ok()) << batch.status().message();
  EXPECT_GE(batch->columns, 4);  // mlx-lm: trimmable iff _offset < max_size
  EXPECT_EQ(*records_from_mlx(*batch, plan.group(0), 0), std::vector{records});
  Result<MlxSerialCache> serial = mlx_from_records(records, plan.group(0));
  ASSERT_TRUE(serial.ok());
  EXPECT_EQ(*records_from_mlx(*serial, plan.group(0), 0), records);
  EXPECT_EQ(mlx_from_records(records, plan.group(0), {.ring = true}).status().code(),
            StatusCode::kFailedPrecondition);
}

TEST(MlxBatch, C29_NoRowsMakeAnEmptyBatch) {
  const AttentionGroup g = group_of(4);
  Result<MlxBatchCache> batch = mlx_from_records(std::span<const LayerRecords* const>{}, g);
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ(batch->slots, 0);
  EXPECT_TRUE(records_from_mlx(*batch, g, 0)->empty());
}

}  // namespace
}  // namespace windrow::testing
