// What readers and writers of safetensors files share: the format's constants and limits, and the header by
// itself, for files that are read or written in parts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

// A tensor by where it lies in the data.
struct Entry {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::size_t> shape;
  std::size_t begin = 0;
  std::size_t end = 0;
};
struct Header {
  std::vector<Entry> tensors;  // in file order: they tile the data
  std::map<std::string, std::string> metadata;
};

// The first kLengthBytes of a file of `file_bytes`, as the length of the header: kCorrupt when that is beyond
// the limit or the file.
Result<std::size_t> parse_length(std::span<const std::byte> bytes, std::size_t file_bytes);
// The header's text, behind which `data_bytes` follow; `name` stands in errors. Throws bad_alloc.
Result<Header> parse_header(std::string_view text, std::size_t data_bytes, const std::string& name);

using MetadataItem = std::pair<std::string, std::string>;
// What stands in a file before its data, and how many bytes of data follow. Tensors and metadata (unique
// keys) in the given order. kInvalidArgument, without the file's name, for a name that is reserved, given
// twice or not UTF-8, and for sizes that no file can have. Throws bad_alloc.
struct FileHead {
  std::string text;  // the length and the header, padded so that the data starts at a multiple of 8
  std::size_t data_bytes = 0;
};
Result<FileHead> file_head(std::span<const TensorInfo> tensors, std::span<const MetadataItem> metadata);
Result<FileHead> file_head(std::span<const TensorInfo> tensors,
                           const std::map<std::string, std::string>& metadata);

}  // namespace windrow::safetensors
