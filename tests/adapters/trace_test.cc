// mlx-lm's own traces (tests/data/mlx): every cache of every step is taken in, and given out again.
#include <gtest/gtest.h>

#include <filesystem>

#include "adapters/rows.h"
#include "oracle/batch_replay.h"

namespace windrow::testing {
namespace {

using oracle::BatchKv;
using oracle::BatchRing;
using oracle::Kv;
using oracle::Trace;

Codec codec_of(const Trace& trace) {
  const std::string dtype = trace.json().at("dtype");
  return dtype == "float32" ? Codec::f32() : dtype == "float16" ? Codec::f16() : Codec::bf16();
}

StatePlan plan_of(const Kv& like, int max_size, int keep, Codec codec) {
  return must(StatePlan::Builder({.rows = 4, .tokens = 256, .step_tokens = 64})
                  .attention({.layers = {3},
                              .window = max_size == kFullWindow ? max_size : max_size - keep,
                              .sinks = keep,
                              .kv_heads = like.k.heads,
                              .head_dim = like.k.dim,
                              .value_dim = like.v.dim,
                              .keys = codec,
                              .values = codec})
                  .page_tokens(4)
                  .build());
}

// The row comes out of a store as it went in.
void expect_adopted(StateStore& store, const LayerRecords& in) {
  Result<RowRecords> records = row_from_layers(store.plan(), {in});
  ASSERT_TRUE(records.ok()) << records.status().message();
  Result<Row> row = store.adopt(*records);
  ASSERT_TRUE(row.ok()) << row.status().message();
  ASSERT_EQ(*row->extract(3), in);
}

// The raw bytes of a tensor of the trace.
std::span<const std::byte> raw(const Trace& trace, const std::string& name) { return trace.view(name).bytes; }

struct Counts {
  int taken = 0, equal = 0;
};

void serial_trace(const std::string& name, Counts& counts) {
  const Trace trace = Trace::load("G2_rotating", name);
  const int max_size = trace.json().at("max_size"), keep = trace.json().at("keep");
  const Codec codec = codec_of(trace);
  oracle::SerialRing ring(max_size, keep);
  const auto first_update =
      std::ranges::find(trace.steps(), "update", [](const auto& s) { return s.at("op"); });
  const StatePlan plan = plan_of(trace.kv("in", first_update->at("i")), max_size, keep, codec);
  const AttentionGroup& g = plan.group(0);
  Result<StateStore> store = StateStore::create(plan, {.poison = true});
  ASSERT_TRUE(store.ok());
  for (const auto& step : trace.steps()) {
    const int i = step.at("i");
    SCOPED_TRACE(name + " step " + std::to_string(i));
    const bool update = step.at("op") == "update";
    if (update) ring.update(trace.kv("in", i));
    if (!update) ring.trim(step.at("n"));
    for (int b = 0; b < ring.buffer().batch(); b++) {
      const Kv buffer = ring.buffer().take_rows({b});
      const auto mlx = serial_of(buffer, ring.offset(), ring.idx(), keep, max_size, codec, codec);
      Result<LayerRecords> in = records_from_mlx(mlx->cache, g, 3);
      ASSERT_TRUE(in.ok()) << in.status().message();
      counts.taken++;
      // In temporal order: the kept columns, then the newest.
      const Kv temporal = ring.temporal().take_rows({b});
      const Kv got = decoded(*in, g);
      const int first = in->sinks > 0 ? in->sinks : 0, n = temporal.columns();
      oracle::expect_bits(got.cut(0, first), temporal.cut(0, first));
      oracle::expect_bits(got.cut(first, got.columns()), temporal.cut(n - (got.columns() - first), n));
      expect_adopted(*store, *in);
      // Out again: MLX's own array, byte for byte, wherever update_and_fetch returned the whole buffer.
      if (!update || ring.buffer().columns() > max_size || ring.buffer().batch() > 1) continue;
      if (static_cast<int>(trace.kv("out", i).columns()) != ring.buffer().columns()) continue;
      const bool turned = ring.idx() < ring.offset() && ring.idx() < max_size;
      MlxForm form{.ring = turned, .idx = turned ? ring.idx() : 0};
      Result<MlxSerialCache> out = mlx_from_records(*in, g, form);
      ASSERT_TRUE(out.ok()) << out.status().message();
      EXPECT_EQ(out->idx, step.at("idx"));
      EXPECT_TRUE(same_bytes(out->keys.data, raw(trace, "out." + std::to_string(i) + ".k")));
      EXPECT_TRUE(same_bytes(out->values.data, raw(trace, "out." + std::to_string(i) + ".v")));
      counts.equal++;
    }
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(MlxTrace, C6_C17_C25_SerialRingsOfEveryStep) {
  Counts counts;
  for (const std::string& name : Trace::names("G2_rotating")) serial_trace(name, counts);
  EXPECT_GT(counts.taken, 236);  // every step, some with two rows
  EXPECT_GT(counts.equal, 100);
}

// Rows of a batch as records; the columns are compared with the oracle's list of each row.
std::vector<LayerRecords> take(const MlxBatchCache& cache, const AttentionGroup& g,
                               const std::vector<oracle::RowColumns>& want) {
  Result<std::vector<LayerRecords>> in = records_from_mlx(cache, g, 3);
  EXPECT_TRUE(in.ok()) << in.status().message();
  if (!in.ok()) return {};
  for (std::size_t b = 0; b < want.size(); b++) {
    const LayerRecords& row = (*in)[b];
    EXPECT_EQ(row.end, std::max(0, want[b].end));
    const int n = row.positions(), length = row.end;
    EXPECT_GE(n, std::min(length, g.window - 1));
    if (n > 0)
      oracle::expect_bits(decoded(row, g), want[b].kv.cut(want[b].kv.columns() - n, want[b].kv.columns()));
  }
  return *in;
}

template <class C>
void batch_step(const Trace& trace, const nlohmann::json& step, const C& cache, Counts& counts) {
  if (cache.buffer().columns() == 0) return;
  const bool ring = std::is_same_v<C, BatchRing>;
  const int max_size = ring ? trace.json().at("max_size").get<int>() : kFullWindow;
  const Codec codec = codec_of(trace);
  const StatePlan plan = plan_of(cache.buffer(), max_size, 0, codec);
  const AttentionGroup& g = plan.group(0);
  const auto mlx = batch_of(cache, codec, codec);
  mlx->cache.whole_windows = step.at("op") == "merge";
  std::vector<oracle::RowColumns> rows;
  for (int b = 0; b < cache.rows(); b++) rows.push_back(cache.row(b));
  const std::vector<LayerRecords> in = take(mlx->cache, g, rows);
  if (::testing::Test::HasFailure()) return;
  Result<StateStore> store = StateStore::create(plan, {.poison = true});
  ASSERT_TRUE(store.ok());
  std::vector<const LayerRecords*> lines;
  for (const LayerRecords& row : in) {
    expect_adopted(*store, row);
    lines.push_back(&row);
  }
  counts.taken += cache.rows();
  // Out and in again, in temporal order and, if there is enough, as a turned ring.
  for (const int idx : {0, 1, max_size - 1}) {
    MlxForm form{.ring = idx > 0, .idx = idx};
    Result<MlxBatchCache> out = mlx_from_records(lines, g, form);
    if (!out.ok()) {
      EXPECT_GT(idx, 0) << out.status().message();
      continue;
    }
    EXPECT_EQ(*records_from_mlx(*out, g, 3), in);
  }
  // A merge is laid out as ours: mlx-lm's arrays, byte for byte.
  if (step.at("op") != "merge") return;
  Result<MlxBatchCache> out = mlx_from_records(lines, g);
  ASSERT_TRUE(out.ok()) << out.status().message();
  const std::string buffer = "buf." + std::to_string(step.at("i").get<int>());
  EXPECT_TRUE(same_bytes(out->keys.data, raw(trace, buffer + ".k")));
  EXPECT_TRUE(same_bytes(out->values.data, raw(trace, buffer + ".v")));
  EXPECT_EQ(out->left_padding, step.at("left_padding").get<std::vector<int>>());
  EXPECT_EQ(out->offset, step.at("offset").get<std::vector<int>>());
  EXPECT_EQ(out->idx, step.at("idx"));
  if (ring) {
    EXPECT_EQ(out->columns, step.at("offset_scalar"));
    EXPECT_EQ(out->rotated, step.at("rotated").get<bool>());
  }
  counts.equal++;
}

Counts batch_traces(const std::string& group) {
  Counts counts;
  for (const std::string& name : Trace::names(group)) {
    const Trace trace = Trace::load(group, name);
    oracle::Report report;
    bool pending = false;
    oracle::Replay(trace, report, [&](const nlohmann::json& step, const oracle::Cache& cache) {
      // Between prepare and finalize the newest columns may be padding.
      if (step.at("op") == "prepare") pending = true;
      if (step.at("op") == "finalize") pending = false;
      if (pending) return;
      if (const auto* c = std::get_if<BatchRing>(&cache)) batch_step(trace, step, *c, counts);
      if (const auto* c = std::get_if<BatchKv>(&cache)) batch_step(trace, step, *c, counts);
    }).run();
    if (::testing::Test::HasFailure()) break;
  }
  return counts;
}

TEST(MlxTrace, C6_C21_C22_BatchedRingsOfEveryStep) {
  const Counts counts = batch_traces("G3_batch_rotating");
  EXPECT_EQ(counts.taken, 457);
  EXPECT_EQ(counts.equal, 2);
}

TEST(MlxTrace, C21_C29_BatchedFullCachesOfEveryStep) {
  const Counts counts = batch_traces("G3_batch_kv");
  EXPECT_GT(counts.taken, 20);
}

// MLX's own triples: in bit for bit, the same as quantizing its input here, and out bit for bit.
TEST(MlxTrace, C1_C28_QuantizedTriplesOfEveryCodec) {
  int sets = 0;
  for (const std::string& name : Trace::names("G1_quantize")) {
    const Trace trace = Trace::load("G1_quantize", name);
    const Codec numbers = codec_of(trace);
    const int dim = trace.json().at("D"), group = trace.json().at("group_size");
    for (const char* part : {"rand", "edge"}) {
      if (!trace.json().at("tensors").contains(std::string(part) + ".x")) continue;
      const auto& x = trace.view(std::string(part) + ".x");
      const int slots = static_cast<int>(x.elements()) / dim;
      for (const int bits : trace.json().at("bits").get<std::vector<int>>()) {
        const Codec codec = Codec::affine(bits, group, numbers.input());
        const std::string prefix = std::string(part) + ".b" + std::to_string(bits) + ".";
        const MlxArray triple{codec, raw(trace, prefix + "packed"), raw(trace, prefix + "scales"),
                              raw(trace, prefix + "biases"), nullptr};
        const MlxArray dense{numbers, x.bytes, {}, {}, nullptr};
        AttentionGroup g;
        g.kv_heads = 1;
        g.head_dim = dim;
        g.keys = g.values = codec;
        SCOPED_TRACE(name + " " + prefix);
        const MlxSerialCache cache{triple, dense, slots, slots, slots, 0, kFullWindow};
        Result<LayerRecords> in = records_from_mlx(cache, g, 0);
        ASSERT_TRUE(in.ok()) << in.status().message();
        ASSERT_EQ(in->key_words, in->value_words);
        ASSERT_EQ(in->key_params, in->value_params);
        Result<MlxSerialCache> out = mlx_from_records(*in, g, {.values = numbers});
        ASSERT_TRUE(out.ok()) << out.status().message();
        ASSERT_TRUE(same_array(out->keys, triple));
        const auto& dequant = trace.view(prefix + "dequant");
        bool equal = out->values.data.size() == dequant.bytes.size();
        const MlxArray theirs{numbers, dequant.bytes, {}, {}, nullptr};
        // MLX's NaN has another payload on some machines; a NaN is a NaN.
        const std::size_t each = dtype_size(numbers.input());
        for (std::size_t i = 0; equal && i < dequant.elements(); i++) {
          std::uint32_t a = 0, b = 0;
          std::memcpy(&a, out->values.data.data() + each * i, each);
          std::memcpy(&b, theirs.data.data() + each * i, each);
          const std::uint32_t top = each == 4                        ? 0x7f800000u
                                    : numbers.input() == DType::kF16 ? 0x7c00u
                                                                     : 0x7f80u;
          const std::uint32_t mask = each == 4 ? 0x7fffffffu : 0x7fffu;
          equal = a == b || ((a & mask) > top && (b & mask) > top);
        }
        ASSERT_TRUE(equal);
        sets++;
      }
    }
  }
  EXPECT_GT(sets, 100);
}

}  // namespace
}  // namespace windrow::testing
