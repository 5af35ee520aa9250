// mlx-lm's prompt-cache files (save_prompt_cache, load_prompt_cache) in and out of rows.
//
//   in:   Result<MlxPromptCache> file = MlxPromptCache::open("prompt.safetensors");
//         Result<StatePlan> plan = file->plan({.rows = file->rows(), .tokens = 4096});   // or a model's
//         Result<std::vector<RowRecords>> rows = file->records(*plan);
//         Result<Row> row = store->adopt((*rows)[0]);
//   out:  save_mlx_prompt_cache("prompt.safetensors", store.plan(), *row.extract(), {});
//
// Such a file holds one cache a model layer, without token ids and without a word on the model that made it:
// the caller must know both. Classes that are read: KVCache, ConcatenateKVCache, RotatingKVCache (before and
// after it wrapped, and longer than its window after a chunk), QuantizedKVCache, BatchKVCache,
// BatchRotatingKVCache, ArraysCache of gated delta layers (a convolution's tail and a state; MambaCache in
// older files) and CacheList of these, whose caches count one by one. Others are refused by name.
// What ChunkedKVCache stores does not say where its chunk begins after a load.
//
// Files are untrusted: every name, number and size is checked before it is used. kCorrupt for what a file
// says of itself that can't be, kUnsupported for classes, kInvalidArgument for a plan that does not fit.
//
// Thread safety: an MlxPromptCache is immutable.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "windrow/export.h"
#include "windrow/plan.h"
#include "windrow/records.h"
#include "windrow/status.h"

namespace windrow {

class WINDROW_API MlxPromptCache {
 public:
  static Result<MlxPromptCache> open(const std::string& path);
  // Of bytes that outlive it; `name` begins its messages.
  static Result<MlxPromptCache> parse(std::span<const std::byte> bytes, const std::string& name);

  int caches() const noexcept;  // those of cache lists one by one
  int rows() const noexcept;    // sequences, the same of all caches
  // mlx-lm's name of the class of cache 0 <= i < caches().
  const std::string& class_of(int i) const noexcept;
  // What the writer added, e.g. "model".
  const std::map<std::string, std::string>& metadata() const noexcept;

  // Groups that hold the caches as they are stored: cache i is layer i. A ring of max_size and keep is a
  // window of max_size - keep with keep sinks.
  Result<StatePlan> plan(const Limits& limits) const;

  // Every row for StateStore::adopt, cache i as layer i of `plan`, which must be all its layers with stored
  // keys and values or states (layers that share keys and values have no cache, in mlx-lm's models too).
  // Arrays in the group's codec are taken bit for bit, plain ones are encoded. `length`: of rows that have
  // recurrent layers only, as ArraysCache does not count; else it must be 0.
  Result<std::vector<RowRecords>> records(const StatePlan& plan, int length = 0) const;
  // One attention cache of every row as records of a layer of `group`, for files whose caches are not the
  // layers of one model (they may have unequal lengths). kInvalidArgument if cache `i` has no keys and
  // values.
  Result<std::vector<LayerRecords>> layer(int i, const AttentionGroup& group, int layer) const;

 private:
  struct Impl;
  explicit MlxPromptCache(std::shared_ptr<const Impl> impl) noexcept;
  std::shared_ptr<const Impl> impl_;
};

// Writes a row as mlx-lm's load_prompt_cache reads it, at once (temporary file, fsync, rename; mode 0600).
// Layer i becomes cache i: KVCache, RotatingKVCache, QuantizedKVCache or ArraysCache, arrays in temporal
// order. What mlx-lm has no class for is decoded to bf16 (f32 of codecs with f32 input): quantized windows,
// 3, 5 and 6 bits, keys and values in different codecs. kInvalidArgument if the layers of the plan are not 0,
// 1, ... without a gap or a window's ring would exceed an int.
WINDROW_API Status save_mlx_prompt_cache(const std::string& path, const StatePlan& plan,
                                         const RowRecords& row,
                                         const std::map<std::string, std::string>& metadata = {});

}  // namespace windrow
