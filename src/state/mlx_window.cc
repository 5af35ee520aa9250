// The live windows of a read, as arrays.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <new>

#include "base/out_of_memory.h"
#include "codec/affine.h"
#include "codec/block_layout.h"
#include "state/mlx_array.h"
#include "state/read_columns.h"

namespace windrow {
namespace {

// One side of one position, through a buffer of the record.
void copy_vector(const SideLayout& side, const std::byte* block, int position, std::size_t to,
                 mlx::ArrayWriter& writer) {
  std::array<std::uint32_t, affine::kMaxWords> words;
  std::array<std::uint32_t, affine::kMaxParams> params;
  const auto w = std::span(words).first(static_cast<std::size_t>(side.words));
  const auto p = std::span(params).first(static_cast<std::size_t>(side.params));
  side.get(block, position, w, p);
  writer.write(to, side.codec, w, p);
}

// What the rows' columns become: the codec asked for, or the one that all of them stand in.
Result<Codec> common_codec(const std::string& name, std::span<const Codec> rows, const Codec& empty,
                           const std::optional<Codec>& wanted) {
  const Codec codec = wanted.value_or(rows.empty() ? empty : rows.front());
  for (const Codec& row : rows) {
    if (!wanted && row != codec) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("{}: rows stand in {} and in {}; ask for plain arrays", name,
                                codec.to_string(), row.to_string()));
    }
    if (Status s = mlx::check_conversion(name, row, codec); !s.ok()) return s;
  }
  return codec;
}

}  // namespace

Result<MlxWindow> mlx_window(const KvRead& read, std::span<const int> rows, std::optional<Codec> keys,
                             std::optional<Codec> values) try {
  const std::string name = fmt::format("mlx window: layer {}", read.layer);
  MlxWindow out;
  std::vector<Codec> key_codecs, value_codecs;
  for (const int r : rows) {
    if (r < 0 || static_cast<std::size_t>(r) >= read.rows.size()) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("{}: row {} of a read of {}", name, r, read.rows.size()));
    }
    const auto row = static_cast<std::size_t>(r);
    const ReadColumns columns = read_columns(read, row);
    out.slots = std::max(out.slots, columns.count());
    out.sinks.push_back(columns.sinks);
    out.begin.push_back(columns.begin);
    out.end.push_back(columns.end);
    const BlockLayout& layout = *read.storages[read.rows[row].storage].layout;
    key_codecs.push_back(layout.keys.codec);
    value_codecs.push_back(layout.values.codec);
  }
  const BlockLayout& final = *read.storages[0].layout;
  Result<Codec> k = common_codec(name + ": keys", key_codecs, final.keys.codec, keys);
  if (!k.ok()) return k.status();
  Result<Codec> v = common_codec(name + ": values", value_codecs, final.values.codec, values);
  if (!v.ok()) return v.status();
  const mlx::Shape shape{rows.size(), static_cast<std::size_t>(read.kv_heads),
                         static_cast<std::size_t>(out.slots), read.head_dim};
  mlx::Shape value_shape = shape;
  value_shape.dim = read.value_dim;
  Result<mlx::ArrayWriter> key_writer = mlx::ArrayWriter::create(name + ": keys", *k, shape);
  if (!key_writer.ok()) return key_writer.status();
  Result<mlx::ArrayWriter> value_writer = mlx::ArrayWriter::create(name + ": values", *v, value_shape);
  if (!value_writer.ok()) return value_writer.status();
  for (std::size_t b = 0; b < rows.size(); b++) {
    const auto row = static_cast<std::size_t>(rows[b]);
    const KvRead::Row& its = read.rows[row];
    const BlockLayout& layout = *read.storages[its.storage].layout;
    const ReadColumns columns = read_columns(read, row);
    const int padding = out.slots - columns.count();
    out.left_padding.push_back(padding);
    for (int h = 0; h < read.kv_heads; h++) {
      for (int c = 0; c < columns.count(); c++) {
        const std::int32_t slot = columns.slot_at(c), b_tokens = read.page_tokens;
        const std::byte* block = read.block(its, slot / b_tokens, h);
        const std::size_t to =
            shape.at(b, static_cast<std::size_t>(h), static_cast<std::size_t>(padding + c));
        copy_vector(layout.keys, block, slot % b_tokens, to, *key_writer);
        copy_vector(layout.values, block, slot % b_tokens, to, *value_writer);
      }
    }
  }
  out.keys = std::move(*key_writer).finish();
  out.values = std::move(*value_writer).finish();
  return out;
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

}  // namespace windrow
