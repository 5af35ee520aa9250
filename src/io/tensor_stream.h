// A safetensors file of one tensor, written piece by piece: memory is bounded by the pieces.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "io/file.h"
#include "windrow/dtype.h"
#include "windrow/status.h"

namespace windrow {

class TensorStream {
 public:
  // Starts the file (see AtomicFile: it appears at `path` with finish(), or not at all).
  static Result<TensorStream> create(const std::string& path, const std::string& name, DType dtype,
                                     const std::vector<std::size_t>& shape, FileOps& ops = system_file_ops());
  // The next bytes, row-major; kInvalidArgument if they are more than the shape holds.
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
