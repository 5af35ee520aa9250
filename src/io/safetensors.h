// safetensors files, read through a memory mapping and written atomically; and the tensors of a
// model folder, in one file or in the shards of an index.
//
// Everything in a file is hostile until checked: header length and size limits, JSON depth,
// dtypes, shapes (checked products), offsets (inside the data, equal to shape x dtype, no
// overlap, no hole, no duplicate name, no duplicate JSON key). `"__metadata__": null` is legal
// (MLX writes it), as is data that starts at any byte offset.
//
// Thread safety: immutable after open.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "windrow/dtype.h"
#include "windrow/status.h"

namespace windrow {

struct TensorView {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::size_t> shape;     // empty: a scalar
  std::span<const std::byte> bytes;   // into the mapping; ANY alignment: read through memcpy
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
  std::shared_ptr<const Impl> impl_;
};

// The tensors of a model folder: model.safetensors, or model.safetensors.index.json and its
// shards, which must lie in the folder (a symlink of the Hugging Face cache may lead out, the
// name in the index may not).
class ModelTensors {
 public:
  static Result<ModelTensors> open(const std::string& folder);
  const TensorView* find(std::string_view name) const noexcept;
  // The tensor, with a float dtype and exactly this shape; the error names the tensor, what it
  // is and what was expected.
  Result<TensorView> get_float(std::string_view name, std::span<const std::size_t> shape) const;
  const std::vector<TensorView>& tensors() const noexcept;

 private:
  struct Impl;
  explicit ModelTensors(std::shared_ptr<const Impl> impl) noexcept;
  std::shared_ptr<const Impl> impl_;
};

// Writes a file through a temporary name in the same folder, fsync and rename: either the whole
// file stands at `path` or what stood there before. Tensors in the given order.
Status write_safetensors(const std::string& path, std::span<const TensorView> tensors,
                         const std::map<std::string, std::string>& metadata = {});

}  // namespace windrow
