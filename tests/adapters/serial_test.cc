// Serial MLX caches in and out, against rows fed token by token and mlx-lm's ring (tests/oracle).
#include <gtest/gtest.h>

#include <numeric>

#include "adapters/rows.h"

namespace windrow::testing {
namespace {

constexpr int kHeads = 2, kDim = 32, kValueDim = 64;

StatePlan plan_of(int window, int sinks, Codec keys, Codec values) {
  return must(StatePlan::Builder({.rows = 3, .tokens = 64, .step_tokens = 32})
                  .attention({.layers = {0},
                              .window = window,
                              .sinks = sinks,
                              .kv_heads = kHeads,
                              .head_dim = kDim,
                              .value_dim = kValueDim,
                              .keys = keys,
                              .values = values})
                  .page_tokens(4)
                  .build());
}

std::vector<int> ids_from(int first, int count) {
  std::vector<int> ids(count);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

// A row and a ring that were fed the same tokens, cut into steps alike.
struct Pair {
  Row row;
  oracle::SerialRing ring;
  int length = 0;

  void feed(StateStore& store, int count) {
    const std::vector<int> ids = ids_from(length, count);
    testing::feed(store, row, ids);
    ring.update(token_kv(ids, 0, store.plan().group(0)));
    length += count;
  }
};

// Everything that must hold between a row and a ring of the same tokens.
void expect_same(StateStore& store, const Pair& pair) {
  const AttentionGroup& g = store.plan().group(0);
  const Result<LayerRecords> own = pair.row.extract(0);
  ASSERT_TRUE(own.ok());
  const auto mlx = serial_of(pair.ring, g.keys, g.values);
  Result<LayerRecords> in = records_from_mlx(mlx->cache, g, 0);
  ASSERT_TRUE(in.ok()) << in.status().message();
  EXPECT_EQ(*in, *own);
  // Plain arrays of the same numbers, encoded on the way.
  const auto plain = serial_of(pair.ring, Codec::f32(), Codec::f32());
  EXPECT_EQ(*records_from_mlx(plain->cache, g, 0), *in);
  Result<RowRecords> records = row_from_layers(store.plan(), {*in});
  ASSERT_TRUE(records.ok());
  Result<Row> adopted = store.adopt(*records);
  ASSERT_TRUE(adopted.ok()) << adopted.status().message();
  EXPECT_EQ(*adopted->extract(0), *in);
  // Out: the very columns, as MLX has them; a chunk left MLX columns that are out of every window.
  const int held = pair.ring.keep() + g.window;
  MlxForm form;
  form.ring = pair.ring.offset() > held && pair.ring.buffer().columns() == held && pair.ring.idx() != held;
  form.idx = form.ring ? pair.ring.idx() : 0;
  if (pair.ring.buffer().columns() > pair.ring.offset()) form.slots = pair.ring.buffer().columns();
  Result<MlxSerialCache> out = mlx_from_records(*own, g, form);
  ASSERT_TRUE(out.ok()) << out.status().message();
  EXPECT_EQ(out->offset, pair.ring.offset());
  EXPECT_EQ(out->keep, pair.ring.keep());
  EXPECT_EQ(out->max_size, pair.ring.max_size());
  if (pair.ring.buffer().columns() <= held) {
    EXPECT_EQ(out->slots, mlx->cache.slots);
    EXPECT_EQ(out->idx, mlx->cache.idx);
    EXPECT_TRUE(same_array(out->keys, mlx->cache.keys));
    EXPECT_TRUE(same_array(out->values, mlx->cache.values));
  }
  EXPECT_EQ(*records_from_mlx(*out, g, 0), *own);  // there and back
}

TEST(MlxSerial, C6_C25_EveryOffsetAroundTheWrapDecodedOneByOne) {
  for (const Codec& codec : {Codec::f16(), Codec::affine(4, 32), Codec::affine(3, 32, DType::kF32)}) {
    for (int window = 1; window <= 6; window++) {
      for (int keep = 0; keep <= 2; keep++) {
        Result<StateStore> store =
            StateStore::create(plan_of(window, keep, codec, Codec::affine(6, 64)), {.poison = true});
        ASSERT_TRUE(store.ok());
        // MLX's buffers grow; by 3 here, so that zeros stand behind the head at some lengths.
        Pair pair{*store->new_row(), oracle::SerialRing(window + keep, keep, 3)};
        for (int length = 0; length <= 20; length++) {
          SCOPED_TRACE("W " + std::to_string(window) + " keep " + std::to_string(keep) + " length " +
                       std::to_string(length));
          expect_same(*store, pair);
          if (::testing::Test::HasFailure()) return;
          pair.feed(*store, 1);
        }
      }
    }
  }
}

TEST(MlxSerial, C6_C25_ChunksAndTokensInEveryMixture) {
  for (int window = 1; window <= 6; window++) {
    for (int keep = 0; keep <= 2; keep++) {
      for (int first = 0; first <= 9; first++) {
        for (int second = 1; second <= 4; second++) {
          const StatePlan plan = plan_of(window, keep, Codec::bf16(), Codec::affine(8, 32));
          Result<StateStore> store = StateStore::create(plan, {.poison = true});
          ASSERT_TRUE(store.ok());
          Pair pair{*store->new_row(), oracle::SerialRing(window + keep, keep)};
          for (const int count : {first, 1, second, 1, 1, second}) {
            if (count == 0) continue;
            pair.feed(*store, count);
            SCOPED_TRACE("W " + std::to_string(window) + " keep " + std::to_string(keep) + " first " +
                         std::to_string(first) + " second " + std::to_string(second) + " at " +
                         std::to_string(pair.length));
            expect_same(*store, pair);
            if (::testing::Test::HasFailure()) return;
          }
        }
      }
    }
  }
}

TEST(MlxSerial, C25_DefaultHeadIsWhereDecodingLeavesIt) {
  const StatePlan plan = plan_of(4, 2, Codec::f32(), Codec::f32());
  Result<StateStore> store = StateStore::create(plan);
  ASSERT_TRUE(store.ok());
  Pair pair{*store->new_row(), oracle::SerialRing(6, 2)};
  for (int length = 1; length <= 20; length++) {
    pair.feed(*store, 1);
    Result<MlxSerialCache> out = mlx_from_records(*pair.row.extract(0), plan.group(0), {.ring = true});
    ASSERT_EQ(out.ok(), length >= 6);
    if (!out.ok()) {
      EXPECT_EQ(out.status().code(), StatusCode::kFailedPrecondition) << out.status().message();
      continue;
    }
    EXPECT_EQ(out->idx, pair.ring.idx());
    EXPECT_TRUE(same_array(out->keys, array_of(pair.ring.buffer().k, Codec::f32()).view()));
  }
}

// A row that adopted a ring goes on as the row that was never away.
TEST(MlxSerial, C25_AnAdoptedRingContinuesAsTheRowItCameFrom) {
  for (const int window : {3, 5}) {
    const StatePlan plan = plan_of(window, 2, Codec::affine(4, 32), Codec::bf16());
    Result<StateStore> store = StateStore::create(plan, {.poison = true});
    ASSERT_TRUE(store.ok());
    Pair pair{*store->new_row(), oracle::SerialRing(window + 2, 2)};
    for (const int count : {4, 1, 7, 1, 1}) pair.feed(*store, count);
    const auto mlx = serial_of(pair.ring, plan.group(0).keys, plan.group(0).values);
    Result<RowRecords> records = row_from_layers(plan, {*records_from_mlx(mlx->cache, plan.group(0), 0)});
    ASSERT_TRUE(records.ok());
    Result<Row> adopted = store->adopt(*records);
    ASSERT_TRUE(adopted.ok()) << adopted.status().message();
    for (const int count : {1, 3, 1}) {
      testing::feed(*store, *adopted, ids_from(pair.length, count));
      pair.feed(*store, count);
      EXPECT_EQ(*adopted->extract(0), *pair.row.extract(0));
    }
  }
}

TEST(MlxSerial, C29_AFullWindowIsKvCache) {
  const StatePlan plan = plan_of(kFullWindow, 0, Codec::affine(5, 32), Codec::f16());
  Result<StateStore> store = StateStore::create(plan);
  ASSERT_TRUE(store.ok());
  Result<Row> row = store->new_row();
  ASSERT_TRUE(row.ok());
  oracle::SerialKv kv(4);
  for (int length = 0; length < 20; length += 3) {
    const auto mlx = serial_of(kv.buffer(), kv.offset(), kv.offset(), 0, kFullWindow, plan.group(0).keys,
                               plan.group(0).values);
    Result<LayerRecords> in = records_from_mlx(mlx->cache, plan.group(0), 0);
    ASSERT_TRUE(in.ok()) << in.status().message();
    EXPECT_EQ(*in, *row->extract(0));
    Result<MlxSerialCache> out = mlx_from_records(*in, plan.group(0), {.slots = mlx->cache.slots});
    ASSERT_TRUE(out.ok()) << out.status().message();
    EXPECT_TRUE(same_array(out->keys, mlx->cache.keys));
    EXPECT_TRUE(same_array(out->values, mlx->cache.values));
    feed(*store, *row, ids_from(length, 3));
    kv.update(token_kv(ids_from(length, 3), 0, plan.group(0)));
  }
}

TEST(MlxSerial, C27_DelayedRowsTakePlainArraysUpToTheirStartAndTriplesAnyTime) {
  const StatePlan plan =
      must(StatePlan::Builder({.rows = 2, .tokens = 32, .step_tokens = 16})
               .attention({.layers = {0},
                           .kv_heads = 1,
                           .head_dim = 32,
                           .value_dim = 32,
                           .keys = Codec::affine(4, 32),
                           .values = Codec::affine(4, 32),
                           .delayed = Delayed{.start = 5, .keys = Codec::f16(), .values = Codec::f16()}})
               .build());
  Result<StateStore> store = StateStore::create(plan);
  ASSERT_TRUE(store.ok());
  const AttentionGroup& g = plan.group(0);
  for (const int length : {4, 5, 6}) {
    Result<Row> row = store->new_row();
    feed(*store, *row, ids_from(0, length));
    const oracle::Kv kv = token_kv(ids_from(0, length), 0, g);
    const auto plain = serial_of(kv, length, length, 0, kFullWindow, Codec::f32(), Codec::f32());
    Result<LayerRecords> in = records_from_mlx(plain->cache, g, 0);
    ASSERT_TRUE(in.ok()) << in.status().message();
    EXPECT_EQ(in->converted, length > 5);
    if (length <= 5) {
      EXPECT_EQ(*in, *row->extract(0));
    }
    const Codec stored = length <= 5 ? Codec::f16() : g.keys;
    EXPECT_TRUE(same_array(mlx_from_records(*in, g)->keys, array_of(kv.k, stored).view()));
    const auto triples = serial_of(kv, length, length, 0, kFullWindow, g.keys, g.values);
    in = records_from_mlx(triples->cache, g, 0);
    ASSERT_TRUE(in.ok()) << in.status().message();
    EXPECT_TRUE(in->converted);
    Result<Row> adopted = store->adopt(*row_from_layers(plan, {*in}));
    ASSERT_TRUE(adopted.ok()) << adopted.status().message();
    EXPECT_TRUE(adopted->converted(0));
  }
}

}  // namespace
}  // namespace windrow::testing
