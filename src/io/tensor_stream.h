// A safetensors file written piece by piece: memory is bounded by the pieces.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "io/file.h"
#include "windrow/dtype.h"
#include "windrow/status.h"

namespace windrow {

// What a file's header says of a tensor, but for its place.
struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::size_t> shape;
};

class TensorStream {
 public:
  // Starts the file (see AtomicFile: it appears at `path` with finish(), or not at all). Names must be
  // unique, valid UTF-8 and not "__metadata__".
  static Result<TensorStream> create(const std::string& path, std::span<const TensorInfo> tensors,
                                     const std::map<std::string, std::string>& metadata = {},
                                     FileOps& ops = system_file_ops());
  // A file of one tensor.
  static Result<TensorStream> create(const std::string& path, const std::string& name, DType dtype,
                                     const std::vector<std::size_t>& shape, FileOps& ops = system_file_ops());
  // The next bytes of the tensors' data, one after another, row-major; kInvalidArgument if they are more than
  // the shapes hold.
  Status append(std::span<const std::byte> bytes);
  // kFailedPrecondition, and no file, if bytes are missing.
  Status finish();

 private:
  TensorStream(AtomicFile file, std::string path, std::size_t total)
      : file_(std::move(file)), path_(std::move(path)), total_(total) {}

  AtomicFile file_;
  std::string path_;
  std::size_t total_;
  std::size_t done_ = 0;
};

}  // namespace windrow
