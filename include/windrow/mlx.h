// The cache layouts of MLX (mlx-lm, and engines that kept them), in and out of rows.
//
//   in:   Result<LayerRecords> l = records_from_mlx(cache, plan.group(g), layer);        // each layer
//         Result<Row> row = store->adopt(*row_from_layers(plan, std::move(layers)));
//   out:  Result<LayerRecords> l = row.extract(layer);
//         Result<MlxSerialCache> cache = mlx_from_records(*l, plan.group(g));
//
// Four of mlx-lm's classes and their quantized twins:
//   KVCache              MlxSerialCache with max_size kFullWindow (idx = offset)
//   RotatingKVCache      MlxSerialCache; a ring of max_size slots of which the first `keep` stay for ever
//   BatchKVCache         MlxBatchCache with max_size kFullWindow
//   BatchRotatingKVCache MlxBatchCache
// A ring is a group with window = max_size - keep and sinks = keep. Other pairs are refused: a ring holds
// what its own window needs, no more and no less.
//
// Every size is checked against the group before anything is read or allocated. All functions answer
// kInvalidArgument, naming layer, row and numbers, unless said otherwise; kResourceExhausted without memory.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "windrow/codec.h"
#include "windrow/export.h"
#include "windrow/kv_read.h"
#include "windrow/plan.h"
#include "windrow/records.h"
#include "windrow/status.h"

namespace windrow {

// Keys or values of all rows, packed and row-major, in the machine's byte order (little endian).
//   plain codec    data: [batch, heads, slots, dim] numbers of that type
//   affine codec   a triple: data [batch, heads, slots, dim * bits / 32] uint32; scales and biases
//                  [batch, heads, slots, dim / group] numbers of codec.input()
struct MlxArray {
  Codec codec = Codec::f32();
  std::span<const std::byte> data, scales, biases;
  std::shared_ptr<const void> owner;  // keeps an exported array's memory; null: borrowed, for the call
};

struct MlxSerialCache {
  MlxArray keys, values;  // batch 1
  int slots = 0;          // columns that the arrays have
  int offset = 0;         // tokens of the row
  int idx = 0;            // _idx: the slot behind the newest token
  int keep = 0;
  int max_size = kFullWindow;
  bool whole_window = true;  // false: mlx-lm's extract cut it out of a batch without whole_windows, see there
};

struct MlxBatchCache {
  MlxArray keys, values;
  int slots = 0;
  std::vector<int> offset;        // [batch]: tokens of each row; below 0 while it has only padding
  std::vector<int> left_padding;  // [batch]: the column where position 0 stands, or would; may be below 0
  int idx = 0;                    // _idx: the slot behind every row's newest token
  int columns = 0;                // _offset: columns ever written; for MLX, not looked at on the way in
  bool rotated = false;           // the oldest column stands at idx
  int max_size = kFullWindow;
  // Of a ring that is not rotated: whether a row longer than W - 1 tokens has its newest W in place. MLX
  // promises W - 1: a padded chunk or rejected drafts may have left a column of padding before those, and its
  // own fields do not tell. True for what is exported here and after mlx-lm's merge.
  bool whole_windows = false;
};

// The newest min(length, W) positions and the sinks of the cache's row, as records of the group's codecs.
//   Arrays in the group's codecs are copied bit for bit (C25: the order is the ring's, as it was laid out);
//   plain arrays are encoded; triples of another codec are refused, as that would quantize twice. In a group
//   with delayed codecs a row no longer than their start is taken into those, unless its arrays are in the
//   group's own codecs already.
WINDROW_API Result<LayerRecords> records_from_mlx(const MlxSerialCache& cache, const AttentionGroup& group,
                                                  int layer);
// Of each row. Padding is never read. Right padding must have been rolled out (finalize). Of a ring that is
// not rotated W - 1 positions are taken, which is all that the next query needs, unless whole_windows says
// more.
WINDROW_API Result<std::vector<LayerRecords>> records_from_mlx(const MlxBatchCache& cache,
                                                               const AttentionGroup& group, int layer);

// What StateStore::adopt takes: the layers in the plan's order, under its signature. Every attention layer
// once, all of one length, and every recurrent one; recurrent states of an empty row are zero and may be
// left out together.
WINDROW_API Result<RowRecords> row_from_layers(const StatePlan& plan, std::vector<LayerRecords> layers,
                                               std::vector<RecurrentRecords> recurrent = {});

// How an export is laid out.
struct MlxForm {
  // Of the arrays. None: the records' own, bit for bit. A plain codec: decoded, rounded to that type.
  std::optional<Codec> keys = {}, values = {};
  // false: temporal order, oldest first, the sinks before all; idx = the number of columns.
  // true: a full ring that wrapped, with its head at idx (C6).
  bool ring = false;
  // ring: the slot behind the newest token, keep < idx <= max_size; 0: where decoding one token at a time
  // from the start leaves it (batched: max_size).
  int idx = 0;
  // Columns of the arrays, if more than there are positions: zeros behind them, as in MLX's buffers, which
  // grow in steps. Not for rings and not for rows that already lost positions.
  int slots = 0;
};

// One layer of a row as MLX would have it. Temporal order is legal for MLX at any length (it is what a
// chunk of several tokens leaves). kFailedPrecondition for a ring of a row that does not hold all max_size
// positions: it is shorter, or a truncation left W - 1.
WINDROW_API Result<MlxSerialCache> mlx_from_records(const LayerRecords& records, const AttentionGroup& group,
                                                    const MlxForm& form = {});
// The same layer of several rows, right-aligned as mlx-lm's merge does it: left_padding = the widest row's
// positions - the row's, zeros there. Not for groups with sinks. No rows make an empty batch.
WINDROW_API Result<MlxBatchCache> mlx_from_records(std::span<const LayerRecords* const> rows,
                                                   const AttentionGroup& group, const MlxForm& form = {});

// The live windows of chosen rows of a read, tentative tokens included, in temporal order and right-aligned:
// what an attention over arrays needs right after Step::append (C28, C15). Column i of row b is
// its slot [0, sinks[b]) and then [begin[b], end[b]), behind left_padding[b] columns of zeros; slots equal
// positions but in token trees (kv_read.h). All that some token of the row sees is there, which is for
// one token the newest W, for L tokens W - 1 + L. A row without tokens has no columns.
struct MlxWindow {
  MlxArray keys, values;
  int slots = 0;
  std::vector<int> left_padding, sinks, begin, end;  // [rows]
};
// `keys` and `values`: as in MlxForm; needed when rows of the read stand in different codecs. read_masks
// (masks.h) answers for the same rows which query sees which column. REQUIRES a read of an append.
WINDROW_API Result<MlxWindow> mlx_window(const KvRead& read, std::span<const int> rows,
                                         std::optional<Codec> keys = {}, std::optional<Codec> values = {});

}  // namespace windrow
