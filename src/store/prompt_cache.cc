// Rows out of mlx-lm's prompt-cache files.
#include "windrow/prompt_cache.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/load_float.h"
#include "base/out_of_memory.h"
#include "store/prompt_cache_file.h"
#include "windrow/mlx.h"

namespace windrow {

using prompt_cache::Contents;
using prompt_cache::Leaf;

struct MlxPromptCache::Impl {
  SafetensorsFile file;
  Contents contents;
  std::string name;
};

namespace {

Status invalid(std::string message) { return {StatusCode::kInvalidArgument, std::move(message)}; }

// The shape of a recurrent leaf as a plan has it. Keys and queries of the layer are not stored; as many heads
// as values have hold any state.
RecurrentShape recurrent_shape(const Leaf& leaf) {
  RecurrentShape shape;
  const auto dim = [&](std::size_t i) { return static_cast<int>(leaf.state.shape[i]); };
  shape.delta = {dim(1), dim(1), dim(3), dim(2), DecayGate::kScalar};
  shape.conv = {static_cast<int>(leaf.tail.shape[2]), static_cast<int>(leaf.tail.shape[1]) + 1};
  return shape;
}

// Part `row` of the `rows` that a tensor's first dimension counts.
std::vector<float> floats_of_row(const TensorView& view, int row, int rows) {
  const std::size_t n = view.elements() / static_cast<std::size_t>(rows);
  std::vector<float> values(n);
  const std::size_t each = dtype_size(view.dtype);
  const std::byte* from = view.bytes.data() + static_cast<std::size_t>(row) * n * each;
  for (std::size_t i = 0; i < n; i++) values[i] = load_float(view.dtype, from + i * each);
  return values;
}

MlxArray row_of(const MlxArray& array, int row, int rows) {
  const auto part = [&](std::span<const std::byte> all) {
    const std::size_t n = all.size() / static_cast<std::size_t>(rows);
    return all.subspan(static_cast<std::size_t>(row) * n, n);
  };
  return {array.codec, part(array.data), part(array.scales), part(array.biases), array.owner};
}

// One row's part of a class that has one offset for all its rows.
MlxSerialCache serial_of(const Leaf& leaf, int row) {
  MlxSerialCache cache;
  cache.keys = row_of(leaf.keys, row, leaf.rows);
  cache.values = row_of(leaf.values, row, leaf.rows);
  cache.slots = leaf.slots;
  cache.offset = leaf.offset;
  cache.idx = leaf.idx;
  cache.keep = leaf.keep;
  cache.max_size = leaf.max_size;
  return cache;
}

MlxBatchCache batch_of(const Leaf& leaf) {
  MlxBatchCache cache;
  cache.keys = leaf.keys;
  cache.values = leaf.values;
  cache.slots = leaf.slots;
  cache.offset = leaf.offsets;
  cache.left_padding = leaf.left_padding;
  cache.idx = leaf.idx;
  cache.columns = leaf.offset;
  cache.rotated = leaf.rotated;
  cache.max_size = leaf.max_size;
  return cache;
}

Result<std::vector<LayerRecords>> attention_records(const Leaf& leaf, const AttentionGroup& group,
                                                    int layer) {
  if (leaf.key_dim != group.head_dim || leaf.heads != group.kv_heads ||
      leaf.value_dim != (group.value_dim == 0 ? group.head_dim : group.value_dim)) {
    return invalid(fmt::format("{}: {} heads of dims {} and {}, layer {} of the plan has {} of {} and {}",
                               leaf.name, leaf.heads, leaf.key_dim, leaf.value_dim, layer, group.kv_heads,
                               group.head_dim, group.value_dim));
  }
  if (leaf.batched) return records_from_mlx(batch_of(leaf), group, layer);
  std::vector<LayerRecords> rows;
  for (int r = 0; r < leaf.rows; r++) {
    Result<LayerRecords> records = records_from_mlx(serial_of(leaf, r), group, layer);
    if (!records.ok()) return records.status();
    rows.push_back(std::move(*records));
  }
  return rows;
}

Status check_recurrent(const Leaf& leaf, const StatePlan& plan, int layer) {
  const int g = plan.recurrent_of_layer(layer);
  if (g < 0) return invalid(fmt::format("{}: layer {} of the plan is no recurrent one", leaf.name, layer));
  const RecurrentShape have = recurrent_shape(leaf), want = plan.recurrent(g).shape;
  if (have.delta.value_heads == want.delta.value_heads && have.delta.key_dim == want.delta.key_dim &&
      have.delta.value_dim == want.delta.value_dim && have.conv == want.conv) {
    return {};
  }
  return invalid(fmt::format(
      "{}: {} heads of {} x {} and a tail of {} x {}, layer {} of the plan has {} of {} x {} and {} x {}",
      leaf.name, have.delta.value_heads, have.delta.value_dim, have.delta.key_dim, have.conv.taps - 1,
      have.conv.channels, layer, want.delta.value_heads, want.delta.value_dim, want.delta.key_dim,
      want.conv.taps - 1, want.conv.channels));
}

}  // namespace

MlxPromptCache::MlxPromptCache(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}

namespace {

template <class Impl>
Result<std::shared_ptr<const Impl>> take_apart(Result<SafetensorsFile> file, const std::string& name) {
  if (!file.ok()) return file.status();
  Result<Contents> contents = prompt_cache::read(*file, name);
  if (!contents.ok()) return contents.status();
  return std::shared_ptr<const Impl>(
      std::make_shared<Impl>(Impl{std::move(*file), std::move(*contents), name}));
}

}  // namespace

Result<MlxPromptCache> MlxPromptCache::open(const std::string& path) try {
  auto impl = take_apart<Impl>(SafetensorsFile::open(path), path);
  if (!impl.ok()) return impl.status();
  return MlxPromptCache(std::move(*impl));
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

Result<MlxPromptCache> MlxPromptCache::parse(std::span<const std::byte> bytes, const std::string& name) try {
  auto impl = take_apart<Impl>(SafetensorsFile::parse(bytes, name), name);
  if (!impl.ok()) return impl.status();
  return MlxPromptCache(std::move(*impl));
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

int MlxPromptCache::caches() const noexcept { return static_cast<int>(impl_->contents.leaves.size()); }
int MlxPromptCache::rows() const noexcept { return impl_->contents.leaves[0].rows; }
const std::string& MlxPromptCache::class_of(int i) const noexcept {
  return impl_->contents.leaves[static_cast<std::size_t>(i)].class_name;
}
const std::map<std::string, std::string>& MlxPromptCache::metadata() const noexcept {
  return impl_->contents.metadata;
}

Result<StatePlan> MlxPromptCache::plan(const Limits& limits) const try {
  std::vector<AttentionGroup> groups;
  std::vector<RecurrentGroup> recurrent;
  for (std::size_t i = 0; i < impl_->contents.leaves.size(); i++) {
    const Leaf& leaf = impl_->contents.leaves[i];
    const int layer = static_cast<int>(i);
    if (leaf.recurrent) {
      const RecurrentShape shape = recurrent_shape(leaf);
      const auto home = std::ranges::find(recurrent, shape, &RecurrentGroup::shape);
      if (home == recurrent.end()) {
        recurrent.push_back({{layer}, shape});
      } else {
        home->layers.push_back(layer);
      }
      continue;
    }
    const bool ring = leaf.max_size != kFullWindow;
    const int window = ring ? leaf.max_size - leaf.keep : kFullWindow, sinks = ring ? leaf.keep : 0;
    const auto home = std::ranges::find_if(groups, [&](const AttentionGroup& g) {
      return g.window == window && g.sinks == sinks && g.kv_heads == leaf.heads &&
             g.head_dim == leaf.key_dim && g.value_dim == leaf.value_dim && g.keys == leaf.keys.codec &&
             g.values == leaf.values.codec;
    });
    if (home != groups.end()) {
      home->layers.push_back(layer);
      continue;
    }
    groups.push_back({.layers = {layer},
                      .window = window,
                      .sinks = sinks,
                      .kv_heads = leaf.heads,
                      .head_dim = leaf.key_dim,
                      .value_dim = leaf.value_dim,
                      .keys = leaf.keys.codec,
                      .values = leaf.values.codec});
  }
  StatePlan::Builder builder(limits);
  for (AttentionGroup& g : groups) builder.attention(std::move(g));
  for (RecurrentGroup& g : recurrent) builder.recurrent(std::move(g));
  Result<StatePlan> plan = builder.build();
  if (!plan.ok()) return plan.status().with_context(impl_->name);
  return plan;
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

Result<std::vector<LayerRecords>> MlxPromptCache::layer(int i, const AttentionGroup& group, int layer) const
    try {
  if (i < 0 || i >= caches() || impl_->contents.leaves[static_cast<std::size_t>(i)].recurrent) {
    return invalid(fmt::format("{}: cache {} of {} has no keys and values", impl_->name, i, caches()));
  }
  Result<std::vector<LayerRecords>> records =
      attention_records(impl_->contents.leaves[static_cast<std::size_t>(i)], group, layer);
  if (!records.ok()) return records.status().with_context(impl_->name);
  return records;
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

Result<std::vector<RowRecords>> MlxPromptCache::records(const StatePlan& plan, int length) const try {
  const std::size_t count = static_cast<std::size_t>(rows());
  std::vector<std::vector<LayerRecords>> layers(count);
  std::vector<std::vector<RecurrentRecords>> recurrent(count);
  for (std::size_t i = 0; i < impl_->contents.leaves.size(); i++) {
    const Leaf& leaf = impl_->contents.leaves[i];
    const int layer = static_cast<int>(i);
    if (leaf.recurrent) {
      if (Status s = check_recurrent(leaf, plan, layer); !s.ok()) return s.with_context(impl_->name);
      for (std::size_t r = 0; r < count; r++) {
        const int row = static_cast<int>(r);
        recurrent[r].push_back(
            {layer, floats_of_row(leaf.state, row, leaf.rows), floats_of_row(leaf.tail, row, leaf.rows)});
      }
      continue;
    }
    const int g = plan.group_of_layer(layer);
    if (g < 0 || plan.owner_of_layer(layer) != layer) {
      return invalid(fmt::format("{}: {}: layer {} of the plan stores no keys and values", impl_->name,
                                 leaf.name, layer));
    }
    Result<std::vector<LayerRecords>> of_rows = attention_records(leaf, plan.group(g), layer);
    if (!of_rows.ok()) return of_rows.status().with_context(impl_->name);
    for (std::size_t r = 0; r < count; r++) layers[r].push_back(std::move((*of_rows)[r]));
  }
  const bool counted = !layers[0].empty();
  if (length < 0 || (counted && length != 0)) {
    return invalid(fmt::format("{}: length {}: expected {}", impl_->name, length,
                               counted ? "0, as attention layers count it" : "the tokens of the rows"));
  }
  std::vector<RowRecords> result;
  for (std::size_t r = 0; r < count; r++) {
    Result<RowRecords> row = row_from_layers(plan, std::move(layers[r]), std::move(recurrent[r]));
    if (!row.ok()) return row.status().with_context(impl_->name);
    if (!counted) row->length = length;
    result.push_back(std::move(*row));
  }
  return result;
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

}  // namespace windrow
