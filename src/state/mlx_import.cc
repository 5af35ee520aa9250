// MLX caches -> records.
#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "base/checked.h"
#include "base/out_of_memory.h"
#include "state/mlx_group.h"

namespace windrow {
namespace {

using mlx::invalid;

// Temporal column c of a row stands in slot `first` + c, wrapped to `wrap` behind slot end - 1; the first
// `fixed` columns stand where they are.
struct Columns {
  int count = 0;
  int fixed = 0;
  int first = 0;
  int wrap = 0;
  int end = 0;

  std::size_t slot_at(int column) const {
    if (column < fixed) return static_cast<std::size_t>(column);
    const std::int64_t slot = std::int64_t{first} + column - fixed;
    return static_cast<std::size_t>(slot < end ? slot : wrap + slot - end);
  }
};

// Whether the row stays in the codecs that come first.
bool stays_early(const AttentionGroup& group, int length, const MlxArray& keys, const MlxArray& values) {
  return group.delayed && length <= group.delayed->start &&
         !(keys.codec == group.keys && values.codec == group.values);
}

// The newest positions of a row of `length` whose last columns they are, and its sinks. REQUIRES that the
// arrays have their sizes. `held`: how many of the columns, from the newest on, are the row's.
Result<LayerRecords> take_row(const std::string& name, const MlxArray& keys, const MlxArray& values,
                              const AttentionGroup& group, int layer, std::size_t batch, std::size_t b,
                              int slots, int length, int held, const Columns& columns) {
  const bool whole = held == length;  // nothing was lost
  const int newest = whole ? held : held - columns.fixed;
  const int needed = whole ? length : std::min(length, group.window - 1);
  if (newest < needed || (!whole && columns.fixed < group.sinks)) {
    return invalid(fmt::format("{}: {} columns of a row of {} tokens, the next one needs {} and {} sinks",
                               name, held, length, needed, group.sinks));
  }
  LayerRecords out;
  out.layer = layer;
  out.converted = !stays_early(group, length, keys, values);
  out.end = length;
  out.begin = length - std::min(newest, std::min(length, group.window));
  out.sinks = std::min(group.sinks, out.begin);
  if (out.begin <= group.sinks) out.begin = out.sinks = 0;  // they touch; so all of it is there
  const Codec& k = key_codec(group, out.converted);
  const Codec& v = value_codec(group, out.converted);
  if (Status s = mlx::check_conversion(name + ": keys", keys.codec, k); !s.ok()) return s;
  if (Status s = mlx::check_conversion(name + ": values", values.codec, v); !s.ok()) return s;
  const mlx::Shape in = mlx::key_shape(group, batch, slots);
  const std::size_t n = static_cast<std::size_t>(out.positions());
  const auto kw = static_cast<std::size_t>(k.record_words(group.head_dim)),
             kp = static_cast<std::size_t>(k.record_params(group.head_dim)),
             vw = static_cast<std::size_t>(v.record_words(value_dim(group))),
             vp = static_cast<std::size_t>(v.record_params(value_dim(group)));
  // No larger than the arrays, but for the codec: at most 4 bytes a number, and scales.
  out.key_words.resize(in.heads * n * kw);
  out.key_params.resize(in.heads * n * kp);
  out.value_words.resize(in.heads * n * vw);
  out.value_params.resize(in.heads * n * vp);
  for (std::size_t h = 0; h < in.heads; h++) {
    for (std::size_t i = 0; i < n; i++) {
      const int at = static_cast<int>(i);
      const int column = at < out.sinks ? at : columns.count - out.positions() + at;
      const std::size_t from = in.at(b, h, columns.slot_at(column)), to = h * n + i;
      mlx::read_vector(keys, group.head_dim, from, k, std::span(out.key_words).subspan(to * kw, kw),
                       std::span(out.key_params).subspan(to * kp, kp));
      mlx::read_vector(values, value_dim(group), from, v, std::span(out.value_words).subspan(to * vw, vw),
                       std::span(out.value_params).subspan(to * vp, vp));
    }
  }
  return out;
}

Status check_arrays(const std::string& name, const MlxArray& keys, const MlxArray& values,
                    const AttentionGroup& group, std::size_t batch, int slots) {
  if (Status s = mlx::check_group(name, group); !s.ok()) return s;
  if (slots < 0) return invalid(fmt::format("{}: {} slots", name, slots));
  if (Status s = mlx::check_array(name + ": keys", keys, mlx::key_shape(group, batch, slots)); !s.ok())
    return s;
  return mlx::check_array(name + ": values", values, mlx::value_shape(group, batch, slots));
}

// Whether the group is that ring.
Status check_ring(const std::string& name, const AttentionGroup& group, int max_size, int keep) {
  Result<int> size = mlx::ring_size(name, group);
  if (!size.ok()) return size.status();
  if (*size == max_size && group.sinks == keep) return Status();
  return invalid(fmt::format("{}: a ring of {} slots that keeps {}, the group has window {} and {} sinks",
                             name, max_size, keep, group.window, group.sinks));
}

}  // namespace

Result<LayerRecords> records_from_mlx(const MlxSerialCache& cache, const AttentionGroup& group,
                                      int layer) try {
  const std::string name = fmt::format("mlx cache: layer {}", layer);
  if (Status s = check_arrays(name, cache.keys, cache.values, group, 1, cache.slots); !s.ok()) return s;
  if (Status s = check_ring(name, group, cache.max_size, cache.keep); !s.ok()) return s;
  const int slots = cache.slots, idx = cache.idx;
  const bool turned = idx < slots && idx < cache.offset;
  if (cache.offset < 0 || idx < 0 || idx > slots ||
      (turned && (slots != cache.max_size || idx <= cache.keep))) {
    return invalid(fmt::format("{}: offset {} and _idx {} in {} slots of a ring of {} that keeps {}", name,
                               cache.offset, idx, slots, cache.max_size, cache.keep));
  }
  Columns columns{.count = turned ? slots : idx, .end = slots};
  if (columns.count > cache.offset) {
    return invalid(fmt::format("{}: {} columns of a row of {} tokens", name, columns.count, cache.offset));
  }
  columns.fixed = std::min(cache.keep, columns.count);
  columns.first = turned ? idx : columns.fixed;
  columns.wrap = cache.keep;
  const bool sure = cache.max_size == kFullWindow || turned || cache.whole_window;
  const int held = sure ? columns.count : std::min(columns.count, columns.fixed + group.window - 1);
  return take_row(name, cache.keys, cache.values, group, layer, 1, 0, slots, cache.offset, held, columns);
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

Result<std::vector<LayerRecords>> records_from_mlx(const MlxBatchCache& cache, const AttentionGroup& group,
                                                   int layer) try {
  const std::string name = fmt::format("mlx batch: layer {}", layer);
  const std::size_t batch = cache.offset.size();
  if (Status s = check_arrays(name, cache.keys, cache.values, group, batch, cache.slots); !s.ok()) return s;
  if (Status s = check_ring(name, group, cache.max_size, 0); !s.ok()) return s;
  const int slots = cache.slots, idx = cache.idx;
  if (cache.left_padding.size() != batch || idx < 0 || idx > slots ||
      (cache.rotated && (slots != cache.max_size || idx == 0))) {
    return invalid(fmt::format("{}: {} offsets, {} left paddings, _idx {} in {} slots of a ring of {}{}",
                               name, batch, cache.left_padding.size(), idx, slots, cache.max_size,
                               cache.rotated ? ", rotated" : ""));
  }
  Columns columns{.count = cache.rotated ? slots : idx, .end = slots};
  columns.first = cache.rotated ? idx % slots : 0;
  // The column before the newest W - 1 may be padding that was rolled there. A write in place, which rotates,
  // goes over it.
  const bool sure = cache.max_size == kFullWindow || cache.rotated || cache.whole_windows;
  std::vector<LayerRecords> rows;
  for (std::size_t b = 0; b < batch; b++) {
    const int length = std::max(cache.offset[b], 0);
    int held = std::min(columns.count - std::clamp(cache.left_padding[b], 0, columns.count), length);
    if (!sure) held = std::min(held, group.window - 1);
    Result<LayerRecords> row = take_row(fmt::format("{}: row {}", name, b), cache.keys, cache.values, group,
                                        layer, batch, b, slots, length, held, columns);
    if (!row.ok()) return row.status();
    rows.push_back(*std::move(row));
  }
  return rows;
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

Result<RowRecords> row_from_layers(const StatePlan& plan, std::vector<LayerRecords> layers,
                                   std::vector<RecurrentRecords> recurrent) try {
  RowRecords row;
  row.signature = plan.signature();
  row.length = layers.empty() ? 0 : layers.front().end;
  const int first = layers.empty() ? -1 : layers.front().layer;
  for (int g = 0; g < plan.group_count(); g++) {
    for (const int layer : plan.group(g).layers) {
      const auto its = std::ranges::find(layers, layer, &LayerRecords::layer);
      if (its == layers.end()) return invalid(fmt::format("row from layers: no records of layer {}", layer));
      if (its->end != row.length) {
        return invalid(fmt::format("row from layers: layer {} has {} positions, layer {} has {}", layer,
                                   its->end, first, row.length));
      }
      row.layers.push_back(std::move(*its));
      layers.erase(its);
    }
  }
  const bool blank = recurrent.empty() && row.length == 0;
  for (int g = 0; g < plan.recurrent_count(); g++) {
    const RecurrentShape& shape = plan.recurrent(g).shape;
    for (const int layer : plan.recurrent(g).layers) {
      if (blank) {
        row.recurrent.push_back({layer, std::vector<float>(shape.delta.state_floats()),
                                 std::vector<float>(shape.conv.tail_floats())});
        continue;
      }
      const auto its = std::ranges::find(recurrent, layer, &RecurrentRecords::layer);
      if (its == recurrent.end())
        return invalid(fmt::format("row from layers: no state of recurrent layer {}", layer));
      row.recurrent.push_back(std::move(*its));
      recurrent.erase(its);
    }
  }
  if (!layers.empty() || !recurrent.empty()) {
    return invalid(fmt::format("row from layers: layer {} is not in the plan, or twice here",
                               layers.empty() ? recurrent.front().layer : layers.front().layer));
  }
  return row;
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

}  // namespace windrow
