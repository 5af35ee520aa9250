// Where weights come from: the tensors of a model folder, or random numbers (random_weights.h).
//
// Matrices come as plain numbers or as affine codes, whichever the source holds; what reads them sees one
// kind of view. Names are whole here ("model.layers.0.mlp.up_proj.weight").
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codec/affine_rows.h"
#include "io/safetensors.h"
#include "model/quantization.h"
#include "windrow/dtype.h"
#include "windrow/status.h"

namespace windrow {

// Where the text model stands among a folder's tensors: under "model.", or under "language_model.model." or
// "model.language_model." in multimodal folders; the output head stands beside it.
struct TextNames {
  std::string_view prefix = "model.", head = "lm_head.weight";

  // Is a tensor the text model's? Buffers that follow from the config are not.
  bool ours(std::string_view name) const;
};
// kCorrupt when there is no "embed_tokens.weight" under any of the prefixes.
Result<TextNames> find_text_model(const ModelTensors& tensors);

// "a.b" of "a.b.weight": the module that a matrix belongs to; empty for other names.
std::string_view module_of(std::string_view tensor);

// Rows [first, first + count) of a matrix.
struct RowRange {
  std::size_t first = 0;
  std::size_t count = 0;
};

// Rows of a matrix somewhere in memory, at any alignment.
struct MatrixRows {
  std::size_t rows = 0, cols = 0;
  DType dtype = DType::kF32;           // of the numbers; of scales and biases
  std::optional<AffineFormat> format;  // nullopt: plain numbers
  AffineArrays<const std::byte> data;  // plain numbers: in data.codes
  // Where `data` is not the source's own: keeps it alive.
  std::shared_ptr<const void> owner;

  std::size_t row_bytes() const;  // of data.codes
  std::size_t param_bytes() const { return format ? affine_param_bytes(*format, cols, dtype) : 0; }
  std::size_t bytes() const { return rows * (row_bytes() + 2 * param_bytes()); }
  MatrixRows part(const RowRange& range) const;
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  virtual const std::string& name() const = 0;  // what messages begin with
  virtual const TextNames& names() const = 0;
  // All tensors; none where they are made as they are asked for.
  virtual std::span<const TensorView> tensors() const = 0;
  virtual bool has(std::string_view tensor) const = 0;
  // Of a tensor that is there and known; else empty.
  virtual std::vector<std::size_t> shape(std::string_view tensor) const = 0;
  // All rows of a tensor of this shape, its leading dimensions taken together. Errors name the tensor, what
  // it is and what was expected. What `owner` does not keep lives as long as the source.
  virtual Result<MatrixRows> matrix(const std::string& tensor, std::span<const std::size_t> shape) const = 0;
  // Only some of them, in the order of `ranges`; by default cut out of all.
  virtual Result<MatrixRows> rows(const std::string& tensor, std::span<const std::size_t> shape,
                                  std::span<const RowRange> ranges) const;
  // Plain numbers of any shape, as f32. `center`: about what they are, for a source that may choose.
  virtual Result<std::vector<float>> floats(const std::string& tensor, std::span<const std::size_t> shape,
                                            float center) const = 0;
  // Nobody will compute with what is read: matrices come without data.
  virtual bool measures_only() const { return false; }
};

// The tensors of a folder. A matrix is quantized where `<module>.scales` stands beside it, as config.json's
// "quantization" says.
class FolderWeights final : public WeightSource {
 public:
  static Result<std::unique_ptr<FolderWeights>> create(ModelTensors tensors,
                                                       std::optional<Quantization> quantization);
  const std::string& name() const override { return tensors_.source(); }
  const TextNames& names() const override { return names_; }
  std::span<const TensorView> tensors() const override { return tensors_.tensors(); }
  bool has(std::string_view tensor) const override { return tensors_.find(tensor) != nullptr; }
  std::vector<std::size_t> shape(std::string_view tensor) const override;
  Result<MatrixRows> matrix(const std::string& tensor, std::span<const std::size_t> shape) const override;
  Result<std::vector<float>> floats(const std::string& tensor, std::span<const std::size_t> shape,
                                    float center) const override;

 private:
  FolderWeights(ModelTensors tensors, std::optional<Quantization> quantization, const TextNames& names)
      : tensors_(std::move(tensors)), quantization_(std::move(quantization)), names_(names) {}
  Result<MatrixRows> affine(const std::string& tensor, const TensorView& scales,
                            std::span<const std::size_t> shape) const;
  Status expect(const std::string& tensor, const TensorView* view, std::vector<std::size_t> shape,
                std::optional<DType> dtype, const std::string& why) const;

  ModelTensors tensors_;
  std::optional<Quantization> quantization_;
  TextNames names_;
};

}  // namespace windrow
