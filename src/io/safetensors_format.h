// What the reader and the writer of safetensors files share: the format's constants and limits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "base/checked.h"
#include "io/tensor_stream.h"
#include "windrow/dtype.h"
#include "windrow/status.h"

namespace windrow::safetensors {

inline constexpr std::size_t kLengthBytes = 8;  // of the header length before the header
// The limit of the reference implementation: no file it wrote has a longer header.
inline constexpr std::size_t kMaxHeaderBytes = 100'000'000;
// The largest published checkpoints have 140,000 tensors over all shards; seven times that in one file.
inline constexpr std::size_t kMaxTensors = std::size_t{1} << 20;
// Dimensions of one tensor; NumPy's limit, far above any weight's.
inline constexpr std::size_t kMaxRank = 32;
inline constexpr const char* kMetadataKey = "__metadata__";

// nullopt where the product overflows. Zeros are left out, so that the product of any of the dimensions
// fits as well and later code may multiply them in any order.
inline std::optional<std::size_t> shape_bytes(std::span<const std::size_t> shape, DType dtype) {
  std::size_t bytes = dtype_size(dtype);
  bool empty = false;
  for (const std::size_t dim : shape) {
    empty = empty || dim == 0;
    const std::optional<std::size_t> product = checked_mul(bytes, std::max<std::size_t>(dim, 1));
    if (!product) return std::nullopt;
    bytes = *product;
  }
  return empty ? 0 : bytes;
}

// What stands in a file before its data, and how many bytes of data follow. kInvalidArgument, without the
// file's name, for a name that is reserved, given twice or not UTF-8, and for sizes that no file can have.
struct FileHead {
  std::string text;  // the length and the header, padded so that the data starts at a multiple of 8
  std::size_t data_bytes = 0;
};
Result<FileHead> file_head(std::span<const TensorInfo> tensors,
                           const std::map<std::string, std::string>& metadata);

}  // namespace windrow::safetensors
