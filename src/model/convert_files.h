// The safetensors files of a conversion: tensors one after another into the files they belong to.
#pragma once

#include <atomic>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/tensor_stream.h"
#include "windrow/convert.h"
#include "windrow/status.h"

namespace windrow {

class ConvertedFiles {
 public:
  // `files`: the tensors of each, in the order in which they will come; `total`: bytes of all. Progress and
  // cancellation are those of `options`, which must outlive the object.
  ConvertedFiles(std::string folder, std::vector<std::vector<TensorInfo>> files, std::size_t total,
                 const ConvertOptions& options)
      : folder_(std::move(folder)), files_(std::move(files)), total_(total), options_(options) {}

  // To be called before the bytes of each tensor; append() then takes them in pieces.
  Status next_tensor();
  Status append(std::span<const std::byte> bytes);
  // Once, behind the last tensor: with an index where there are several files.
  Status finish(std::size_t parameters);
  // Another file of the folder.
  Status write_text(const std::string& file, const std::string& text) const;

 private:
  std::string name(std::size_t file) const;
  Status finish_file();

  std::string folder_;
  std::vector<std::vector<TensorInfo>> files_;
  std::size_t total_, done_ = 0;
  const ConvertOptions& options_;
  std::optional<TensorStream> stream_;
  std::size_t file_ = 0, left_ = 0;  // the next file; tensors that the open one still waits for
};

}  // namespace windrow
