// Records -> MLX caches.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <new>

#include "base/checked.h"
#include "base/out_of_memory.h"
#include "state/mlx_group.h"

namespace windrow {
namespace {

using mlx::invalid;

// Both sides of a cache while it is filled.
struct Writers {
  mlx::ArrayWriter keys, values;
  mlx::Shape shape;

  static Result<Writers> create(const std::string& name, const AttentionGroup& group, const Codec& k,
                                const Codec& v, std::size_t batch, int slots) {
    const mlx::Shape shape = mlx::key_shape(group, batch, slots);
    Result<mlx::ArrayWriter> keys = mlx::ArrayWriter::create(name + ": keys", k, shape);
    if (!keys.ok()) return keys.status();
    Result<mlx::ArrayWriter> values =
        mlx::ArrayWriter::create(name + ": values", v, mlx::value_shape(group, batch, slots));
    if (!values.ok()) return values.status();
    return Writers{*std::move(keys), *std::move(values), shape};
  }

  // Position i of the records goes to slot_at(i).
  template <class SlotAt>
  void write_row(const AttentionGroup& group, const LayerRecords& records, std::size_t b,
                 const SlotAt& slot_at) {
    const Codec& k = key_codec(group, records.converted);
    const Codec& v = value_codec(group, records.converted);
    const auto part = [](const std::vector<std::uint32_t>& all, std::size_t i, int each) {
      const auto size = static_cast<std::size_t>(each);
      return std::span(all).subspan(i * size, size);
    };
    const auto n = static_cast<std::size_t>(records.positions());
    for (std::size_t h = 0; h < shape.heads; h++) {
      for (std::size_t i = 0; i < n; i++) {
        const std::size_t from = h * n + i, to = shape.at(b, h, static_cast<std::size_t>(slot_at(i)));
        keys.write(to, k, part(records.key_words, from, k.record_words(group.head_dim)),
                   part(records.key_params, from, k.record_params(group.head_dim)));
        values.write(to, v, part(records.value_words, from, v.record_words(value_dim(group))),
                     part(records.value_params, from, v.record_params(value_dim(group))));
      }
    }
  }
};

// Of the arrays: what the form asks for, else the records'.
struct Codecs {
  Codec keys, values;
};
Result<Codecs> codecs_of(const std::string& name, const AttentionGroup& group, bool converted,
                         const MlxForm& form) {
  const Codecs own{key_codec(group, converted), value_codec(group, converted)};
  const Codecs wanted{form.keys.value_or(own.keys), form.values.value_or(own.values)};
  if (Status s = mlx::check_conversion(name + ": keys", own.keys, wanted.keys); !s.ok()) return s;
  if (Status s = mlx::check_conversion(name + ": values", own.values, wanted.values); !s.ok()) return s;
  return wanted;
}

// A ring of `max_size` slots whose head is to be at idx > keep, of rows that hold `held` positions.
Status check_head(const std::string& name, int max_size, int keep, int idx, int held, const MlxForm& form) {
  if (max_size == kFullWindow || idx <= keep || idx > max_size || form.slots > 0) {
    return invalid(
        fmt::format("{}: a ring with its head at {} and {} slots asked for; it has {} and keeps {}", name,
                    idx, form.slots, max_size, keep));
  }
  if (held == max_size) return Status();
  return Status(StatusCode::kFailedPrecondition,
                fmt::format("{}: {} positions can't fill a ring of {}; temporal order can hold them", name,
                            held, max_size));
}

}  // namespace

Result<MlxSerialCache> mlx_from_records(const LayerRecords& records, const AttentionGroup& group,
                                        const MlxForm& form) try {
  const std::string name = fmt::format("mlx cache: layer {}", records.layer);
  if (Status s = mlx::check_group(name, group); !s.ok()) return s;
  if (Status s = check_layer_records(name, group, records); !s.ok()) return s;
  Result<Codecs> codecs = codecs_of(name, group, records.converted, form);
  if (!codecs.ok()) return codecs.status();
  Result<int> max_size = mlx::ring_size(name, group);
  if (!max_size.ok()) return max_size.status();
  const int held = records.positions(), keep = group.sinks;
  MlxSerialCache out;
  out.offset = records.end;
  out.keep = keep;
  out.max_size = *max_size;
  out.slots = out.idx = held;
  if (form.ring) {
    // The first token behind a full ring goes to slot `keep`, the next ones behind it.
    out.idx = form.idx != 0 ? form.idx : keep + 1 + std::max(0, records.end - keep - 1) % group.window;
    if (Status s = check_head(name, *max_size, keep, out.idx, held, form); !s.ok()) return s;
  } else if (form.slots > 0) {
    if (form.slots < held || form.slots > *max_size || held != records.end) {
      return invalid(fmt::format("{}: {} slots for {} of {} positions of a ring of {}", name, form.slots,
                                 held, records.end, *max_size));
    }
    out.slots = form.slots;
  }
  Result<Writers> writers = Writers::create(name, group, codecs->keys, codecs->values, 1, out.slots);
  if (!writers.ok()) return writers.status();
  const auto fixed = static_cast<std::size_t>(std::min(keep, held)),
             end = static_cast<std::size_t>(out.slots);
  const std::size_t first = form.ring ? static_cast<std::size_t>(out.idx) : fixed;
  writers->write_row(group, records, 0, [&](std::size_t i) {
    if (i < fixed) return i;
    const std::size_t slot = first + i - fixed;
    return slot < end ? slot : fixed + slot - end;
  });
  out.keys = std::move(writers->keys).finish();
  out.values = std::move(writers->values).finish();
  return out;
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

Result<MlxBatchCache> mlx_from_records(std::span<const LayerRecords* const> rows, const AttentionGroup& group,
                                       const MlxForm& form) try {
  const std::string name =
      rows.empty() ? std::string("mlx batch") : fmt::format("mlx batch: layer {}", rows.front()->layer);
  if (Status s = mlx::check_group(name, group); !s.ok()) return s;
  if (group.sinks > 0)
    return invalid(fmt::format("{}: MLX's batches keep no sinks, the group has {}", name, group.sinks));
  MlxBatchCache out;
  out.max_size = group.window;
  out.whole_windows = true;
  int longest = 0;
  std::optional<Codecs> wanted;
  for (std::size_t b = 0; b < rows.size(); b++) {
    const std::string row = fmt::format("{}: row {}", name, b);
    const LayerRecords& records = *rows[b];
    if (records.layer != rows.front()->layer)
      return invalid(fmt::format("{} is of layer {}", row, records.layer));
    if (Status s = check_layer_records(row, group, records); !s.ok()) return s;
    Result<Codecs> codecs = codecs_of(row, group, records.converted, form);
    if (!codecs.ok()) return codecs.status();
    if (wanted && (wanted->keys != codecs->keys || wanted->values != codecs->values)) {
      return invalid(fmt::format("{} stands in {} and {}, rows before in {} and {}; ask for plain arrays",
                                 row, codecs->keys.to_string(), codecs->values.to_string(),
                                 wanted->keys.to_string(), wanted->values.to_string()));
    }
    wanted = *codecs;
    out.offset.push_back(records.end);
    longest = std::max(longest, records.end);
    out.slots = std::max(out.slots, records.positions());
  }
  if (!wanted) wanted = Codecs{form.keys.value_or(group.keys), form.values.value_or(group.values)};
  const int width = out.slots;
  for (const LayerRecords* row : rows) out.left_padding.push_back(width - row->positions());
  out.idx = width;
  // A row that lost positions must not look as if it could be trimmed.
  out.columns = std::max(width, std::min(longest, group.window));
  if (form.ring) {
    out.idx = form.idx == 0 ? group.window : form.idx;
    if (Status s = check_head(name, group.window, 0, out.idx, width, form); !s.ok()) return s;
    out.rotated = true;
  } else if (form.slots > 0) {
    if (form.slots < width || form.slots > group.window || width < longest) {
      return invalid(fmt::format("{}: {} slots for {} of {} positions of a ring of {}", name, form.slots,
                                 width, longest, group.window));
    }
    out.slots = form.slots;
  }
  Result<Writers> writers =
      Writers::create(name, group, wanted->keys, wanted->values, rows.size(), out.slots);
  if (!writers.ok()) return writers.status();
  const auto head = static_cast<std::size_t>(form.ring ? out.idx : 0),
             end = static_cast<std::size_t>(out.slots);
  for (std::size_t b = 0; b < rows.size(); b++) {
    const auto padding = static_cast<std::size_t>(out.left_padding[b]);
    writers->write_row(group, *rows[b], b, [&](std::size_t i) { return (head + padding + i) % end; });
  }
  out.keys = std::move(writers->keys).finish();
  out.values = std::move(writers->values).finish();
  return out;
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

}  // namespace windrow
