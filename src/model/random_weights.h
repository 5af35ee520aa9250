// Random weights of any shape, for measuring speed without a download.
//
// Matrices are bf16, or affine codes with bf16 parameters made directly as a file would hold them. Numbers
// follow from a tensor's name and the row, not from what was asked for before, and are of the size that keeps
// activations near 1: uniform, with a mean square of about 1 / cols.
#pragma once

#include <optional>

#include "model/weight_source.h"
#include "windrow/threads.h"

namespace windrow {

class RandomWeights final : public WeightSource {
 public:
  // `format`: of matrices whose columns its group divides; nullopt: all are bf16. `measures_only`: matrices
  // come without data, so that a loader can tell its bytes. `pool` must outlive the source.
  RandomWeights(std::optional<AffineFormat> format, bool measures_only, ThreadPool& pool)
      : format_(format), measures_only_(measures_only), pool_(&pool) {}

  const std::string& name() const override { return name_; }
  const TextNames& names() const override { return names_; }
  std::span<const TensorView> tensors() const override { return {}; }
  // What a family asks for by name it gets; of what is optional only experts in stacks, which load fastest.
  bool has(std::string_view tensor) const override;
  std::vector<std::size_t> shape(std::string_view) const override { return {}; }
  Result<MatrixRows> matrix(const std::string& tensor, std::span<const std::size_t> shape) const override;
  Result<MatrixRows> rows(const std::string& tensor, std::span<const std::size_t> shape,
                          std::span<const RowRange> ranges) const override;
  Result<std::vector<float>> floats(const std::string& tensor, std::span<const std::size_t> shape,
                                    float center) const override;
  bool measures_only() const override { return measures_only_; }

 private:
  std::string name_ = "random weights";
  TextNames names_;
  std::optional<AffineFormat> format_;
  bool measures_only_;
  ThreadPool* pool_;
};

}  // namespace windrow
