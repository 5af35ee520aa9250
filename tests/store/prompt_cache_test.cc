// mlx-lm's own prompt-cache files: rows come out of them and go on as mlx-lm's caches did, and what is
// written is what mlx-lm writes.
#include "windrow/prompt_cache.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/load_float.h"
#include "io/safetensors.h"
#include "support/temp_folder.h"
#include "windrow/mlx.h"
#include "windrow/store.h"

namespace windrow {
namespace {

const std::string kFolder = WINDROW_TEST_DATA "/mlx/G6_prompt_cache/";

template <class T>
T must(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().message());
  return std::move(*result);
}
void must(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.message());
}

std::string path_of(const std::string& name) { return kFolder + name + ".safetensors"; }

Limits limits_of(const MlxPromptCache& file) {
  return {.rows = file.rows() + 1, .tokens = 512, .step_tokens = 64};
}

// A file's rows in a store of its own plan, or one of its caches as layer 0 of a plan of its own.
struct Restored {
  MlxPromptCache file;
  StatePlan plan;
  StateStore store;
  std::vector<Row> rows;

  Restored(const std::string& path, int cache, const StatePlan& of_file)
      : file(must(MlxPromptCache::open(path))),
        plan(must(StatePlan::Builder(limits_of(file)).attention(alone(of_file, cache)).build())),
        store(must(StateStore::create(plan, {.poison = true}))) {
    for (LayerRecords& records : must(file.layer(cache, plan.group(0), 0))) {
      rows.push_back(must(store.adopt(must(row_from_layers(plan, {std::move(records)})))));
    }
  }
  static AttentionGroup alone(const StatePlan& plan, int cache) {
    AttentionGroup group = plan.group(plan.group_of_layer(cache));
    group.layers = {0};
    return group;
  }

  explicit Restored(const std::string& path, int length = 0)
      : file(must(MlxPromptCache::open(path))),
        plan(must(file.plan(limits_of(file)))),
        store(must(StateStore::create(plan, {.poison = true}))) {
    for (const RowRecords& records : must(file.records(plan, length)))
      rows.push_back(must(store.adopt(records)));
  }
};

std::vector<float> floats(const TensorView& t) {
  std::vector<float> values(t.elements());
  for (std::size_t i = 0; i < values.size(); i++) {
    values[i] = load_float(t.dtype, t.bytes.data() + i * dtype_size(t.dtype));
  }
  return values;
}

// Columns of [.., columns, bytes], sorted: a ring returns them rotated, a window in order.
std::vector<std::vector<std::byte>> columns(std::span<const std::byte> data, std::size_t column_bytes) {
  std::vector<std::vector<std::byte>> out;
  for (std::size_t i = 0; i < data.size(); i += column_bytes) {
    const auto part = data.subspan(i, column_bytes);
    out.emplace_back(part.begin(), part.end());
  }
  std::sort(out.begin(), out.end());
  return out;
}

// What mlx-lm's update returned, [rows, heads, columns, dim], against the window that the read has.
void expect_array(const SafetensorsFile& next, const std::string& name, const MlxArray& got) {
  const auto expect_part = [&](const std::string& part, std::span<const std::byte> data) {
    const TensorView* want = next.find(part);
    ASSERT_NE(want, nullptr) << part;
    ASSERT_EQ(want->bytes.size(), data.size()) << part;
    const std::size_t column = want->shape[3] * dtype_size(want->dtype),
                      heads = want->shape[0] * want->shape[1];
    for (std::size_t h = 0; h < heads; h++) {
      const std::size_t n = data.size() / heads;
      EXPECT_EQ(columns(data.subspan(h * n, n), column), columns(want->bytes.subspan(h * n, n), column))
          << part << " head " << h;
    }
  };
  if (!got.codec.is_affine()) return expect_part(name, got.data);
  expect_part(name + ".packed", got.data);
  expect_part(name + ".scales", got.scales);
  expect_part(name + ".biases", got.biases);
}

std::vector<float> repacked(
    const TensorView& in) {  // [rows, heads, tokens, dim] as [rows, tokens, heads, dim]
  const std::vector<float> from = floats(in);
  const std::size_t heads = in.shape[1], tokens = in.shape[2], dim = in.shape[3];
  std::vector<float> out(from.size());
  for (std::size_t r = 0; r < in.shape[0]; r++) {
    for (std::size_t h = 0; h < heads; h++) {
      for (std::size_t t = 0; t < tokens; t++) {
        std::copy_n(&from[((r * heads + h) * tokens + t) * dim], dim,
                    &out[((r * tokens + t) * heads + h) * dim]);
      }
    }
  }
  return out;
}

// One update: every layer gets what mlx-lm's got, or zeros, and must see what mlx-lm's returned.
void expect_update(Restored& r, const SafetensorsFile& next, int number,
                   const std::vector<std::string>& places) {
  const int layers = static_cast<int>(places.size());
  int tokens = 0;
  for (int c = 0; c < layers && tokens == 0; c++) {
    const TensorView* in =
        next.find(fmt::format("{}.next{}.in.k", places[static_cast<std::size_t>(c)], number));
    if (in != nullptr) tokens = static_cast<int>(in->shape[2]);
  }
  std::vector<Row*> rows;
  std::vector<int> lengths, indices;
  for (std::size_t i = 0; i < r.rows.size(); i++) {
    rows.push_back(&r.rows[i]);
    lengths.push_back(tokens);
    indices.push_back(static_cast<int>(i));
  }
  Step step = must(r.store.begin(rows, lengths));
  const std::size_t n = static_cast<std::size_t>(step.tokens());
  int compared = 0;
  for (int c = 0; c < layers; c++) {
    if (const int g = r.plan.recurrent_of_layer(c); g >= 0) {
      const GatedDeltaShape& d = r.plan.recurrent(g).shape.delta;
      std::vector<float> x(n * static_cast<std::size_t>(r.plan.recurrent(g).shape.conv.channels)),
          y(n * d.value_floats());
      must(step.convolve(c, x, std::vector<float>(4 * x.size() / n), Activation::kNone, x));
      const std::vector<float> zeros(n * std::max(d.key_floats(), d.value_floats()));
      const auto of = [&](std::size_t each) { return std::span<const float>(zeros).first(n * each); };
      must(step.advance(c,
                        {of(d.key_floats()), of(d.key_floats()), of(d.value_floats()), of(d.decay_floats()),
                         of(d.beta_floats())},
                        y));
      continue;
    }
    const AttentionGroup& group = r.plan.group(r.plan.group_of_layer(c));
    const std::string prefix = fmt::format("{}.next{}", places[static_cast<std::size_t>(c)], number);
    const TensorView *k = next.find(prefix + ".in.k"), *v = next.find(prefix + ".in.v");
    const auto width = [&](int dim) { return n * static_cast<std::size_t>(group.kv_heads * dim); };
    must(step.append(c, k != nullptr ? repacked(*k) : std::vector<float>(width(group.head_dim)),
                     v != nullptr ? repacked(*v) : std::vector<float>(width(group.value_dim))));
    if (k == nullptr) continue;
    const KvRead read = must(step.read(c));
    const MlxWindow window = must(mlx_window(read, indices));
    expect_array(next, prefix + ".out.k", window.keys);
    expect_array(next, prefix + ".out.v", window.values);
    compared++;
  }
  EXPECT_GT(compared, 0);
  must(step.resolve());
}

TEST(PromptCache, RowsOfMlxFilesGoOnAsMlxsCachesDid) {
  const struct {
    const char* name;
    int updates;
  } cases[] = {{"kv_3layers", 3},        {"kv_13layers_meta", 1},     {"kv_256plus", 1},
               {"kv_dv32_b2", 3},        {"kv_trimmed", 3},           {"kv_to_quantized", 1},
               {"quantized", 2},         {"rotating_before_wrap", 3}, {"rotating_after_wrap", 3},
               {"rotating_oversize", 3}, {"concatenate", 3},          {"hybrid_qwen3_next", 1}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    Restored r(path_of(c.name));
    std::vector<std::string> places;  // of the layers in the next file
    for (int i = 0; i < r.file.caches(); i++) places.push_back(fmt::format("layer{}", i));
    const SafetensorsFile next = must(SafetensorsFile::open(path_of(std::string(c.name) + ".next")));
    for (int n = 0; n < c.updates; n++) expect_update(r, next, n, places);
    must(r.store.check());
  }
}

// Its caches have unequal lengths, so each is a row of its own.
TEST(PromptCache, EveryCacheOfAListGoesOnAsMlxsDid) {
  const std::string path = path_of("cachelist");
  const MlxPromptCache file = must(MlxPromptCache::open(path));
  const StatePlan plan = must(file.plan(limits_of(file)));
  const SafetensorsFile next = must(SafetensorsFile::open(path_of("cachelist.next")));
  ASSERT_EQ(file.caches(), 4);
  EXPECT_EQ(file.records(plan).status().message(),
            path + ": row from layers: layer 1 has 12 positions, layer 0 has 10");
  for (int cache : {0, 1}) {  // mlx-lm went on with the first list's
    Restored r(path, cache, plan);
    EXPECT_EQ(r.rows[0].length(), cache == 0 ? 10 : 12);
    for (int n = 0; n < 2; n++) expect_update(r, next, n, {fmt::format("layer0.{}", cache)});
  }
}

TEST(PromptCache, BatchesComeApartIntoTheirRows) {
  Restored r(path_of("batch"));
  EXPECT_EQ(r.file.class_of(0), "BatchKVCache");
  EXPECT_EQ(r.file.class_of(1), "BatchRotatingKVCache");
  const SafetensorsFile raw = must(SafetensorsFile::open(path_of("batch")));
  for (int row = 0; row < 2; row++) {
    std::int32_t offset, padding;
    std::memcpy(&offset, &raw.find("0.2")->bytes[4 * static_cast<std::size_t>(row)], 4);
    std::memcpy(&padding, &raw.find("0.3")->bytes[4 * static_cast<std::size_t>(row)], 4);
    Row& restored = r.rows[static_cast<std::size_t>(row)];
    EXPECT_EQ(restored.length(), offset);
    const LayerRecords records = must(restored.extract(0));
    const AttentionGroup& g = r.plan.group(r.plan.group_of_layer(0));
    const MlxSerialCache out = must(mlx_from_records(records, g));
    // Head 1's columns behind the padding.
    const std::size_t column = 64 * 2, all = 6 * column;
    const std::size_t from =
        (static_cast<std::size_t>(row) * 2 + 1) * all + static_cast<std::size_t>(padding) * column;
    const std::size_t n = static_cast<std::size_t>(offset) * column;
    EXPECT_TRUE(std::ranges::equal(out.keys.data.subspan(n, n), raw.find("0.0")->bytes.subspan(from, n)));
  }
}

TEST(PromptCache, StatesOfRecurrentLayersAreTakenBitForBit) {
  for (const char* name : {"arrays", "arrays_leftpad_lengths"}) {
    Restored r(path_of(name), 7);
    const SafetensorsFile raw = must(SafetensorsFile::open(path_of(name)));
    const std::vector<float> state = floats(*raw.find("1.0.1")), tail = floats(*raw.find("1.0.0"));
    const std::size_t rows = r.rows.size();
    for (std::size_t i = 0; i < rows; i++) {
      EXPECT_EQ(r.rows[i].length(), 7);
      const RowRecords records = must(r.rows[i].extract());
      const std::size_t n = state.size() / rows, m = tail.size() / rows;
      EXPECT_TRUE(std::ranges::equal(records.recurrent[1].state, std::span(state).subspan(i * n, n)));
      EXPECT_TRUE(std::ranges::equal(records.recurrent[1].tail, std::span(tail).subspan(i * m, m)));
    }
  }
  EXPECT_EQ(must(MlxPromptCache::open(path_of("arrays")))
                .records(Restored(path_of("arrays"), 7).plan, -1)
                .status()
                .code(),
            StatusCode::kInvalidArgument);
}

TEST(PromptCache, OlderFilesNameTheirGrowthStepAndMambaCaches) {
  const MlxPromptCache file = must(MlxPromptCache::open(path_of("legacy_v0.26.0_mamba_kv_rot_quant")));
  EXPECT_EQ(file.caches(), 4);
  EXPECT_EQ(file.class_of(0), "MambaCache");
  EXPECT_EQ(file.metadata().at("model"), "legacy");
  const StatePlan plan = must(file.plan(limits_of(file)));
  const AttentionGroup& ring = plan.group(plan.group_of_layer(2));
  EXPECT_EQ(ring.window, 4);
  EXPECT_EQ(ring.sinks, 4);
  EXPECT_EQ(plan.group(plan.group_of_layer(3)).keys, Codec::affine(4, 64, DType::kF16));
  // Its caches have unequal lengths, 5 and 10: no row of a model.
  EXPECT_EQ(file.records(plan).status().message(),
            path_of("legacy_v0.26.0_mamba_kv_rot_quant") +
                ": row from layers: layer 2 has 10 positions, layer 1 has 5");
}

TEST(PromptCache, UserMetadataComesThrough) {
  const MlxPromptCache file = must(MlxPromptCache::open(path_of("kv_13layers_meta")));
  EXPECT_EQ(file.caches(), 13);
  EXPECT_EQ(file.metadata().at("model"), "some/model");
  EXPECT_EQ(file.metadata().at("tokenizer_config"),
            R"({"trust_remote_code": null, "eos": "</s>", "u": "\u00e9\"\\"})");
}

TEST(PromptCache, OtherClassesAreRefusedByName) {
  EXPECT_EQ(
      MlxPromptCache::open(path_of("chunked")).status().message(),
      path_of("chunked") +
          ": cache 0 is a \"ChunkedKVCache\", which is not supported (supported: KVCache, "
          "ConcatenateKVCache, "
          "RotatingKVCache, QuantizedKVCache, BatchKVCache, BatchRotatingKVCache, ArraysCache, MambaCache, "
          "CacheList)");
}

// mlx-lm's file of the same caches: the same metadata, tensors and bytes.
TEST(PromptCache, WhatIsWrittenIsWhatMlxWrites) {
  for (const char* name : {"kv_3layers", "kv_13layers_meta", "kv_256plus", "kv_trimmed", "kv_to_quantized",
                           "quantized", "hybrid_qwen3_next", "rotating_before_wrap"}) {
    SCOPED_TRACE(name);
    Restored r(path_of(name));
    const TempFolder folder;
    const std::string path = folder.path("out.safetensors");
    must(save_mlx_prompt_cache(path, r.plan, must(r.rows[0].extract()), r.file.metadata()));
    const SafetensorsFile out = must(SafetensorsFile::open(path)),
                          want = must(SafetensorsFile::open(path_of(name)));
    EXPECT_EQ(out.metadata(), want.metadata());
    ASSERT_EQ(out.tensors().size(), want.tensors().size());
    for (const TensorView& t : want.tensors()) {
      const TensorView* got = out.find(t.name);
      ASSERT_NE(got, nullptr) << t.name;
      EXPECT_EQ(got->dtype, t.dtype) << t.name;
      EXPECT_EQ(got->shape, t.shape) << t.name;
      EXPECT_TRUE(std::ranges::equal(got->bytes, t.bytes)) << t.name;
    }
  }
}

TEST(PromptCache, AWrappedRingIsWrittenInOrderAndReadBackTheSame) {
  for (const char* name : {"rotating_after_wrap", "rotating_oversize"}) {
    Restored r(path_of(name));
    const RowRecords records = must(r.rows[0].extract());
    const TempFolder folder;
    const std::string path = folder.path("out.safetensors");
    must(save_mlx_prompt_cache(path, r.plan, records));
    EXPECT_EQ(must(must(MlxPromptCache::open(path)).records(r.plan))[0], records);
  }
}

TEST(PromptCache, QuantizedWindowsAreWrittenDecoded) {
  const StatePlan plan = must(StatePlan::Builder({.rows = 1, .tokens = 64, .step_tokens = 16})
                                  .attention({.layers = {0},
                                              .window = 8,
                                              .kv_heads = 1,
                                              .head_dim = 64,
                                              .keys = Codec::affine(4),
                                              .values = Codec::affine(8)})
                                  .attention({.layers = {1},
                                              .kv_heads = 1,
                                              .head_dim = 64,
                                              .keys = Codec::affine(6),
                                              .values = Codec::affine(6)})
                                  .build());
  StateStore store = must(StateStore::create(plan));
  Row row = must(store.new_row());
  Row* rows[] = {&row};
  const int lengths[] = {12};
  Step step = must(store.begin(rows, lengths));
  std::vector<float> k(12 * 64), v(12 * 64);
  for (std::size_t i = 0; i < k.size(); i++)
    k[i] = std::sin(static_cast<float>(i)), v[i] = std::cos(static_cast<float>(i));
  for (int layer : {0, 1}) must(step.append(layer, k, v));
  must(step.resolve());
  const TempFolder folder;
  const std::string path = folder.path("out.safetensors");
  must(save_mlx_prompt_cache(path, plan, must(row.extract())));
  const MlxPromptCache file = must(MlxPromptCache::open(path));
  EXPECT_EQ(file.class_of(0), "RotatingKVCache");
  EXPECT_EQ(file.class_of(1), "KVCache");
  // The decoded numbers encode to the same codes: quantizing what was quantized changes nothing here.
  const StatePlan plain = must(file.plan({.rows = 1, .tokens = 64}));
  EXPECT_EQ(plain.group(0).keys, Codec::bf16());
  EXPECT_EQ(must(file.records(plan))[0].length, 12);
}

TEST(PromptCache, APlanThatDoesNotFitIsNamed) {
  const MlxPromptCache file = must(MlxPromptCache::open(path_of("kv_3layers")));
  const auto refused = [&](AttentionGroup group) {
    const StatePlan plan = must(StatePlan::Builder({.rows = 1}).attention(std::move(group)).build());
    return file.records(plan).status().message().substr(path_of("kv_3layers").size());
  };
  EXPECT_EQ(refused({.layers = {0, 1, 2}, .kv_heads = 2, .head_dim = 32}),
            ": cache 0: 2 heads of dims 64 and 64, layer 0 of the plan has 2 of 32 and 32");
  EXPECT_EQ(refused({.layers = {0, 1}, .kv_heads = 2, .head_dim = 64}),
            ": cache 2: layer 2 of the plan stores no keys and values");
  EXPECT_EQ(refused({.layers = {0, 1, 2, 3}, .kv_heads = 2, .head_dim = 64}),
            ": row from layers: no records of layer 3");
}

}  // namespace
}  // namespace windrow
