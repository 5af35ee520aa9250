// Reads a family's weights out of a source: names them below the text model's prefix, packs matrices for the
// products, converts the rest, reports progress, and knows at the end which tensors nobody asked for.
#pragma once

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/product.h"
#include "model/weight_source.h"
#include "windrow/compute.h"
#include "windrow/status.h"
#include "windrow/threads.h"

namespace windrow {

// One matrix whose rows are read one at a time, as f32, from where the source holds it.
class RowTable {
 public:
  RowTable() = default;
  explicit RowTable(MatrixRows rows) : rows_(std::move(rows)) {}
  // out[cols] = row * scale. REQUIRES row < rows of the tensor.
  void row(std::size_t row, float scale, float* out) const;

 private:
  MatrixRows rows_;
};

// What was read.
struct WeightTotals {
  std::size_t parameters = 0;    // numbers that the tensors stand for, each tensor once
  std::size_t matrix_bytes = 0;  // of all packed matrices
  std::size_t expert_bytes = 0;  // of those of them that are experts
  std::size_t numbers = 0;       // in the matrices
  std::size_t expert_numbers = 0;
  std::size_t table_bytes = 0;  // of row tables, where the source holds them
};

class WeightReader {
 public:
  using Progress = std::function<void(std::size_t, std::size_t)>;
  // `compute`: of products by quantized weights. Errors begin with source.name().
  WeightReader(const WeightSource& source, ThreadPool& pool, Compute compute, Progress progress);

  // `name` without the prefix, e.g. "layers.0.mlp.up_proj.weight". Errors name the whole tensor.
  Result<PackedMatrix> matrix(const std::string& name, std::size_t rows, std::size_t cols);
  // The output head, which stands beside the text model, not in it.
  Result<PackedMatrix> head(std::size_t rows, std::size_t cols);
  // A matrix of the given rows, in the order of `ranges`, out of a tensor [all, cols] that holds several
  // projections.
  Result<PackedMatrix> rows(const std::string& name, std::size_t all, std::size_t cols,
                            std::span<const RowRange> ranges);
  // Number `index` of the matrices of a tensor [count, rows, cols].
  Result<PackedMatrix> stacked(const std::string& name, std::size_t count, std::size_t index,
                               std::size_t rows, std::size_t cols);
  // Of number `index` of a tensor [count, cols, all] of plain numbers, whose matrices are transposed: the
  // outputs first, first + step, ... below `all`.
  Result<PackedMatrix> transposed(const std::string& name, std::size_t count, std::size_t index,
                                  std::size_t cols, std::size_t all, std::size_t first, std::size_t step);
  Result<RowTable> row_table(const std::string& name, std::size_t rows, std::size_t cols);
  // As f32, with `plus` added to each (Gemma's norms store w - 1).
  Result<std::vector<float>> vector(const std::string& name, std::size_t size, float plus);
  // The same for a tensor of any shape.
  Result<std::vector<float>> floats(const std::string& name, std::initializer_list<std::size_t> shape,
                                    float plus);

  bool has(const std::string& name) const;
  // Of a tensor that is there; else empty.
  std::vector<std::size_t> shape(const std::string& name) const;
  // finish() does not mind the tensor, if it is there.
  void ignore(const std::string& name);
  // kUnsupported: tensor `name`: `why`.
  Status unsupported(const std::string& name, std::string_view why) const;

  // kUnsupported, by name, when the text model holds a tensor that was never read.
  Status finish();
  const WeightTotals& totals() const noexcept { return totals_; }

 private:
  std::string full(const std::string& name) const { return std::string(source_->names().prefix) + name; }
  void take(const std::string& full, std::span<const std::size_t> shape, bool affine);
  void take_params(const std::string& full);
  Result<PackedMatrix> pack(const std::string& full, const MatrixRows& rows);
  Result<PackedMatrix> of_expert(Result<PackedMatrix> packed, const WeightTotals& before);
  Result<PackedMatrix> read(const std::string& full, std::span<const std::size_t> shape,
                            std::span<const RowRange> ranges);

  const WeightSource* source_;
  ThreadPool* pool_;
  Compute compute_;
  Progress progress_;
  std::set<std::string, std::less<>> taken_;
  std::size_t done_ = 0;
  std::size_t total_ = 0;
  WeightTotals totals_;
};

}  // namespace windrow
