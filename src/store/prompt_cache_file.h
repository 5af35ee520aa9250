// What a prompt-cache file holds, taken apart: one leaf a cache.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "io/safetensors.h"
#include "windrow/mlx.h"
#include "windrow/recurrent.h"

namespace windrow::prompt_cache {

// One cache. Which parts are used depends on its class.
struct Leaf {
  std::string name;  // "cache 3", "cache 3.1" of a list
  std::string class_name;
  bool recurrent = false;
  bool batched = false;  // offset, left_padding: one a row
  int rows = 0;

  // Attention: arrays of all rows [rows, heads, slots, dim].
  MlxArray keys, values;
  int heads = 0, slots = 0, key_dim = 0, value_dim = 0;
  int keep = 0, max_size = kFullWindow;
  int offset = 0, idx = 0;
  std::vector<int> offsets, left_padding;
  bool rotated = false;

  // Recurrent: [rows, taps - 1, channels] and [rows, value_heads, value_dim, key_dim].
  TensorView tail, state;
};

// The caches in order, and the user's metadata. Messages begin with `name`.
struct Contents {
  std::vector<Leaf> leaves;
  std::map<std::string, std::string> metadata;
};
Result<Contents> read(const SafetensorsFile& file, const std::string& name);

}  // namespace windrow::prompt_cache
