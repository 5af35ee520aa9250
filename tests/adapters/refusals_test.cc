// What the MLX adapters refuse, and that they say why with numbers. Nothing is read out of bounds: this
// file is worth most under the sanitizers.
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <random>

#include "adapters/rows.h"

namespace windrow::testing {
namespace {

AttentionGroup group_of(int window, int sinks) {
  AttentionGroup g;
  g.layers = {0};
  g.window = window;
  g.sinks = sinks;
  g.kv_heads = 2;
  g.head_dim = g.value_dim = 32;
  g.keys = Codec::affine(4, 32);
  g.values = Codec::f16();
  return g;
}

template <class R>
void expect_refused(const R& result, const std::string& part,
                    StatusCode code = StatusCode::kInvalidArgument) {
  ASSERT_FALSE(result.ok()) << part;
  EXPECT_EQ(result.status().code(), code);
  EXPECT_NE(result.status().message().find(part), std::string::npos) << result.status().message();
}

std::unique_ptr<SerialBytes> ring_of(const AttentionGroup& g, int length) {
  oracle::SerialRing ring(g.window + g.sinks, g.sinks);
  for (int t = 0; t < length; t++) ring.update(token_kv({t}, 0, g));
  return serial_of(ring, g.keys, g.values);
}

TEST(MlxRefusals, C25_SerialCachesThatContradictThemselves) {
  const AttentionGroup g = group_of(4, 2);
  const auto with = [&](const std::function<void(MlxSerialCache&)>& change, int length = 9) {
    auto mlx = ring_of(g, length);
    change(mlx->cache);
    return records_from_mlx(mlx->cache, g, 7).status();
  };
  const auto refused = [&](const std::function<void(MlxSerialCache&)>& change, const std::string& part) {
    const Status s = with(change);
    EXPECT_EQ(s.code(), StatusCode::kInvalidArgument) << part;
    EXPECT_NE(s.message().find(part), std::string::npos) << s.message();
    EXPECT_NE(s.message().find("layer 7"), std::string::npos) << s.message();
  };
  EXPECT_TRUE(with([](auto&) {}).ok());
  refused([](auto& c) { c.max_size = 7; },
          "a ring of 7 slots that keeps 2, the group has window 4 and 2 sinks");
  refused([](auto& c) { c.keep = 1; }, "keeps 1");
  refused([](auto& c) { c.slots = 5; }, "expected 160 for [1, 2, 5, 32]");
  refused([](auto& c) { c.slots = -1; }, "-1 slots");
  refused([](auto& c) { c.slots = kFullWindow; }, "bytes of codes");
  refused([](auto& c) { c.offset = -1; }, "offset -1");
  refused([](auto& c) { c.offset = 4; }, "5 columns of a row of 4 tokens");
  refused([](auto& c) { c.idx = 7; }, "_idx 7 in 6 slots");
  refused([](auto& c) { c.idx = -1; }, "_idx -1");
  refused([](auto& c) { c.idx = 2; }, "_idx 2");  // a ring's head is never where the kept ones end
  refused([](auto& c) { c.keys.data = c.keys.data.first(8); }, "keys: 8 bytes of codes");
  refused([](auto& c) { c.keys.scales = {}; }, "0 bytes of scales, expected 24");
  refused([](auto& c) { c.keys.biases = c.keys.biases.first(2); }, "2 bytes of biases");
  refused([](auto& c) { c.values.scales = c.keys.scales; }, "24 bytes of scales, expected 0");
  refused([](auto& c) { c.values.codec = Codec::f32(); }, "values");
  refused([](auto& c) { c.keys.codec = Codec::affine(7); }, "keys");
  refused([](auto& c) { c.keys.codec = Codec::affine(4, 64); }, "keys");
}

TEST(MlxRefusals, C25_TooFewColumnsForTheNextQuery) {
  const AttentionGroup g = group_of(4, 2);
  // A row of 9 tokens is longer than its columns account for.
  auto mlx = serial_of(token_kv({1, 2, 3, 4}, 0, g), 9, 4, 2, 6, g.keys, g.values);
  expect_refused(records_from_mlx(mlx->cache, g, 0),
                 "4 columns of a row of 9 tokens, the next one needs 3 and 2");
  const AttentionGroup one = group_of(1, 2);  // needs no earlier position, but its sinks
  mlx = serial_of(token_kv({1}, 0, one), 9, 1, 2, 3, one.keys, one.values);
  expect_refused(records_from_mlx(mlx->cache, one, 0),
                 "1 columns of a row of 9 tokens, the next one needs 0 and 2");
  const AttentionGroup full = group_of(kFullWindow, 0);
  const oracle::Kv kv = token_kv({1, 2, 3}, 0, full);
  auto part = serial_of(kv, 4, 3, 0, kFullWindow, full.keys, full.values);
  expect_refused(records_from_mlx(part->cache, full, 0), "3 columns of a row of 4 tokens");
}

TEST(MlxRefusals, C1_NothingIsQuantizedTwice) {
  AttentionGroup g = group_of(4, 2);
  auto mlx = ring_of(g, 5);
  g.keys = Codec::affine(8, 32);
  expect_refused(records_from_mlx(mlx->cache, g, 0), "q4:32 can't become q8:32");
  const LayerRecords records = *records_from_mlx(mlx->cache, group_of(4, 2), 0);
  expect_refused(mlx_from_records(records, group_of(4, 2), {.keys = Codec::affine(2, 32)}), "can't become");
}

TEST(MlxRefusals, C25_BatchesThatContradictThemselves) {
  const AttentionGroup g = group_of(4, 0);
  oracle::BatchRing ring(4, {0, 1});
  const oracle::Kv two = oracle::Kv::join_rows(token_kv({1}, 0, g), token_kv({2}, 0, g));
  for (int t = 0; t < 6; t++) ring.update(two);
  const auto refused = [&](const std::function<void(MlxBatchCache&)>& change, const std::string& part) {
    auto mlx = batch_of(ring, g.keys, g.values);
    change(mlx->cache);
    expect_refused(records_from_mlx(mlx->cache, g, 0), part);
  };
  refused([](auto& c) { c.offset.push_back(1); }, "[3, 2, 4, 32]");
  refused([](auto& c) { c.left_padding.pop_back(); }, "2 offsets, 1 left paddings");
  refused([](auto& c) { c.idx = 0; }, "rotated");
  refused([](auto& c) { c.idx = 5; }, "_idx 5 in 4 slots");
  refused([](auto& c) { c.max_size = 5; }, "a ring of 5 slots that keeps 0, the group has window 4");
  refused([](auto& c) { c.left_padding[1] = 3; }, "row 1: 1 columns of a row of 5 tokens");
  refused([](auto& c) { c.max_size = kFullWindow; }, "a ring of 2147483647 slots");
  auto mlx = batch_of(ring, g.keys, g.values);
  expect_refused(records_from_mlx(mlx->cache, group_of(4, 1), 0), "1 sinks");
}

TEST(MlxRefusals, C25_RecordsThatAreNoRowOfTheGroup) {
  const AttentionGroup g = group_of(4, 2);
  const LayerRecords good = *records_from_mlx(ring_of(g, 9)->cache, g, 0);
  const auto refused = [&](const std::function<void(LayerRecords&)>& change, const std::string& part) {
    LayerRecords bad = good;
    change(bad);
    expect_refused(mlx_from_records(bad, g), part);
  };
  refused([](auto& r) { r.sinks = 1; }, "1 sinks and positions 5 .. 9");
  refused([](auto& r) { r.sinks = 0; }, "0 sinks");
  refused([](auto& r) { r.begin = 7; }, "positions 7 .. 9");
  refused([](auto& r) { r.begin = -1; }, "positions -1");
  refused([](auto& r) { r.end = 8; }, "key words");
  refused([](auto& r) { r.end = -1; }, "5 .. -1");
  refused([](auto& r) { r.key_params.pop_back(); }, "key params, expected 2 heads x 6 positions x 1");
  refused([](auto& r) { r.value_words.push_back(0); }, "value words");
  refused([](auto& r) { r.converted = false; }, "no delayed codecs");
  AttentionGroup broken = g;
  broken.kv_heads = 0;
  expect_refused(mlx_from_records(good, broken), "0 kv heads");
  broken = g;
  broken.head_dim = 33;
  EXPECT_FALSE(mlx_from_records(good, broken).ok());
  broken = g;
  broken.window = kFullWindow - 1;
  EXPECT_FALSE(mlx_from_records(good, broken).ok());
}

TEST(MlxRefusals, C25_FormsThatCantBe) {
  const AttentionGroup g = group_of(4, 2);
  const LayerRecords lost = *records_from_mlx(ring_of(g, 9)->cache, g, 0);
  const LayerRecords whole = *records_from_mlx(ring_of(g, 3)->cache, g, 0);
  expect_refused(mlx_from_records(lost, g, {.ring = true, .idx = 2}), "head at 2");
  expect_refused(mlx_from_records(lost, g, {.ring = true, .idx = 7}), "head at 7");
  expect_refused(mlx_from_records(lost, g, {.ring = true, .slots = 8}), "8 slots asked for");
  expect_refused(mlx_from_records(lost, g, {.slots = 6}), "6 slots for 6 of 9 positions");
  expect_refused(mlx_from_records(whole, g, {.slots = 2}), "2 slots for 3 of 3");
  expect_refused(mlx_from_records(whole, g, {.slots = 7}), "7 slots");
  expect_refused(mlx_from_records(whole, g, {.ring = true}), "3 positions can't fill a ring of 6",
                 StatusCode::kFailedPrecondition);
  const LayerRecords* const rows[] = {&whole};
  expect_refused(mlx_from_records(rows, g), "keep no sinks");
  AttentionGroup full = group_of(kFullWindow, 0);
  expect_refused(mlx_from_records(whole, full, {.ring = true}), "ring");
  // More bytes than a size_t counts.
  full.keys = full.values = Codec::f16();
  full.kv_heads = 1 << 30;
  const LayerRecords empty;
  const LayerRecords* const none[] = {&empty};
  expect_refused(mlx_from_records(none, full, {.slots = kFullWindow}),
                 "1 rows x 1073741824 heads x 2147483647 slots of 64 bytes are too many");
  LayerRecords other = empty;
  other.layer = 1;
  const LayerRecords* const mixed[] = {&empty, &other};
  expect_refused(mlx_from_records(mixed, full), "row 1 is of layer 1");
}

TEST(MlxRefusals, C26_RowsNeedEveryLayerOnce) {
  const StatePlan plan =
      must(StatePlan::Builder({.rows = 1, .tokens = 16})
               .attention({.layers = {4, 2}, .head_dim = 16})
               .attention({.layers = {0}, .window = 4, .head_dim = 16})
               .recurrent({.layers = {1},
                           .shape = {{.key_heads = 1, .value_heads = 1, .key_dim = 16, .value_dim = 4},
                                     {.channels = 2, .taps = 2}}})
               .build());
  const auto layer = [](int number, int length = 0) {
    LayerRecords r;
    r.layer = number;
    r.end = length;
    return r;
  };
  Result<RowRecords> row = row_from_layers(plan, {layer(0), layer(2), layer(4)});
  ASSERT_TRUE(row.ok()) << row.status().message();
  EXPECT_EQ(row->layers[0].layer, 4);
  EXPECT_EQ(row->layers[2].layer, 0);
  EXPECT_EQ(row->recurrent.size(), 1u);
  Result<StateStore> store = StateStore::create(plan);
  ASSERT_TRUE(store.ok());
  EXPECT_TRUE(store->adopt(*row).ok());
  expect_refused(row_from_layers(plan, {layer(0), layer(2)}), "no records of layer 4");
  expect_refused(row_from_layers(plan, {layer(0), layer(2), layer(4), layer(4)}),
                 "layer 4 is not in the plan");
  expect_refused(row_from_layers(plan, {layer(0, 3), layer(2, 3), layer(4, 2)}),
                 "layer 4 has 2 positions, layer 0 has 3");
  expect_refused(row_from_layers(plan, {layer(0, 3), layer(2, 3), layer(4, 3)}),
                 "no state of recurrent layer 1");
  expect_refused(row_from_layers(plan, {layer(0), layer(2), layer(4)}, {{5, {}, {}}}), "recurrent layer 1");
}

// Any numbers beside real arrays: refused or taken, never out of bounds.
TEST(MlxRefusals, C25_RandomFieldsNeverLeaveTheArrays) {
  std::mt19937 random(3);
  const auto number = [&] { return static_cast<int>(random() % 14) - 2; };
  int taken = 0;
  for (int round = 0; round < 20000; round++) {
    const AttentionGroup g = group_of(1 + static_cast<int>(random() % 5), static_cast<int>(random() % 3));
    const int slots = static_cast<int>(random() % 9);
    const oracle::Kv kv = token_kv(std::vector<int>(slots, 1), 0, g);
    auto mlx = serial_of(kv, number(), number(), g.sinks, g.window + g.sinks, g.keys, g.values);
    Result<LayerRecords> in = records_from_mlx(mlx->cache, g, 0);
    if (in.ok()) {
      EXPECT_TRUE(mlx_from_records(*in, g).ok());
      taken++;
    }
    const AttentionGroup ring = group_of(g.window, 0);
    MlxBatchCache batch{mlx->cache.keys, mlx->cache.values, slots,   {number()}, {number()}, number(),
                        number(),        random() % 2 == 0, g.window};
    Result<std::vector<LayerRecords>> rows = records_from_mlx(batch, ring, 0);
    if (!rows.ok()) continue;
    const LayerRecords* const lines[] = {&rows->front()};
    EXPECT_TRUE(mlx_from_records(lines, ring).ok());
    taken++;
  }
  EXPECT_GT(taken, 1000);
}

}  // namespace
}  // namespace windrow::testing
