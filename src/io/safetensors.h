// safetensors files, read through a memory mapping and written atomically; and the tensors of a
// model folder, in one file or in the shards of an index.
//
// Format (https://github.com/huggingface/safetensors): u64 little endian N, N bytes of JSON that
// start with '{', then the data. The JSON maps a tensor's name to {"dtype": "F32", "shape": [2, 3],
// "data_offsets": [begin, end]}, offsets from the start of the data.
//
// Everything in a file is hostile until checked: header length and size limits, JSON depth,
// dtypes, shapes (checked products), offsets (inside the data, equal to shape x dtype, no
// overlap, no hole, no duplicate name, no duplicate JSON key, no unknown key). The tensors may stand in
// any order in the JSON but must tile the data exactly. A tensor of no elements is legal, as is a file
// of no tensors, `"__metadata__": null` (MLX writes it) and data that starts at any byte offset.
// Errors: kIo (the system), kCorrupt (the format), kUnsupported (a dtype we do not know, by name).
//
// Thread safety: immutable after open. Copies share the mapping.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/file.h"
#include "windrow/dtype.h"
#include "windrow/status.h"

namespace windrow {

struct TensorView {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::size_t> shape;    // empty: a scalar
  std::span<const std::byte> bytes;  // into the mapping; ANY alignment: read through memcpy
  std::size_t elements() const { return bytes.size() / dtype_size(dtype); }
};

class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::string& path);
  // The same over bytes in memory, which must outlive the object (fuzzing, tests).
  static Result<SafetensorsFile> parse(std::span<const std::byte> bytes, const std::string& name);

  const std::vector<TensorView>& tensors() const noexcept;  // in file order
  const TensorView* find(std::string_view name) const noexcept;
  const std::map<std::string, std::string>& metadata() const noexcept;

 private:
  struct Impl;
  explicit SafetensorsFile(std::shared_ptr<const Impl> impl) noexcept;
  static Result<SafetensorsFile> build(std::shared_ptr<Impl> impl, std::span<const std::byte> bytes,
                                       const std::string& name);
  std::shared_ptr<const Impl> impl_;
};

// The `weight_map` of a model.safetensors.index.json: tensor name -> shard, a plain file name (no '/',
// not "..", no NUL). Other keys (`metadata`, whose total_size is wrong in published files) are ignored.
Result<std::map<std::string, std::string>> parse_safetensors_index(std::string_view text,
                                                                   const std::string& name);

// The tensors of a model folder: model.safetensors where it stands (as transformers prefers it), else
// model.safetensors.index.json and its shards, which must lie in the folder (a symlink of the
// Hugging Face cache may lead out, the name in the index may not). Every tensor of the index must
// stand in its shard and in no other. A tensor that the index does not name is no error, published
// checkpoints have some, and is not found.
class ModelTensors {
 public:
  static Result<ModelTensors> open(const std::string& folder);
  const TensorView* find(std::string_view name) const noexcept;
  // The tensor, with a float dtype and exactly this shape; the error names the tensor, what it
  // is and what was expected.
  Result<TensorView> get_float(std::string_view name, std::span<const std::size_t> shape) const;
  // In file order, shard after shard in the order of their names.
  const std::vector<TensorView>& tensors() const noexcept;
  // What messages name: the path of the single file, or of the index.
  const std::string& source() const noexcept;

 private:
  struct Impl;
  explicit ModelTensors(std::shared_ptr<const Impl> impl) noexcept;
  static Result<ModelTensors> open_shards(const std::string& folder, const std::string& index);
  std::shared_ptr<const Impl> impl_;
};

// Writes a file through a temporary name in the same folder, fsync and rename: either the whole
// file stands at `path` or what stood there before (see write_atomically). Tensors in the given order;
// the header is padded with spaces so that the data starts at a multiple of 8. Names must be unique,
// valid UTF-8 and not "__metadata__"; bytes must agree with dtype and shape.
Status write_safetensors(const std::string& path, std::span<const TensorView> tensors,
                         const std::map<std::string, std::string>& metadata = {},
                         FileOps& ops = system_file_ops());

}  // namespace windrow
