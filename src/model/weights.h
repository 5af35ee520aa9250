// Reads a family's tensors out of a model folder: finds where the text model's names start, checks
// shapes, converts, reports progress, and knows at the end which tensors nobody asked for.
#pragma once

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.h"
#include "model/product.h"
#include "windrow/status.h"
#include "windrow/threads.h"

namespace windrow {

// One matrix whose rows are read one at a time from the mapping, as f32.
class RowTable {
 public:
  RowTable() = default;
  explicit RowTable(TensorView view) : view_(std::move(view)), cols_(view_.shape.at(1)) {}
  // out[cols] = row * scale. REQUIRES row < rows of the tensor.
  void row(std::size_t row, float scale, float* out) const;

 private:
  TensorView view_;
  std::size_t cols_ = 0;
};

// Rows [first, first + count) of a matrix.
struct RowRange {
  std::size_t first = 0;
  std::size_t count = 0;
};

class WeightReader {
 public:
  using Progress = std::function<void(std::size_t, std::size_t)>;
  // Text models stand under "model.", or under "language_model.model." or "model.language_model."
  // in multimodal folders. kCorrupt when there is no "embed_tokens.weight" under any of them. Errors begin
  // with tensors.source().
  static Result<WeightReader> create(const ModelTensors& tensors, ThreadPool& pool, Progress progress);

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
  // Of number `index` of a tensor [count, cols, all], whose matrices are transposed: the outputs first,
  // first + step, ... below `all`.
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
  // Numbers in the tensors read, each tensor once.
  std::size_t parameters() const noexcept { return parameters_; }

 private:
  WeightReader(const ModelTensors& tensors, ThreadPool& pool, Progress progress, std::string_view prefix,
               std::string_view head);
  Result<TensorView> take(const std::string& full, std::span<const std::size_t> shape);
  Result<PackedMatrix> pack(const std::string& full, std::size_t rows, std::size_t cols);
  Result<PackedMatrix> pack(const TensorView& view, const std::byte* data, std::size_t rows,
                            std::size_t cols);
  bool ours(std::string_view name) const;

  const ModelTensors* tensors_;
  ThreadPool* pool_;
  Progress progress_;
  std::string_view prefix_;
  std::string_view head_;
  std::set<std::string> taken_;
  std::size_t done_ = 0;
  std::size_t total_ = 0;
  std::size_t parameters_ = 0;
};

}  // namespace windrow
