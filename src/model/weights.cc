#include "model/weights.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>

#include "base/float16.h"
#include "base/json.h"

namespace windrow {
namespace {

struct Naming {
  std::string_view prefix, head;
};
// The most specific first: "model." is a prefix of the third.
constexpr Naming kNamings[] = {{"language_model.model.", "language_model.lm_head.weight"},
                               {"model.language_model.", "lm_head.weight"},
                               {"model.", "lm_head.weight"}};

// Buffers that old checkpoints saved although they follow from the config.
bool is_derived(std::string_view name) { return name.ends_with(".rotary_emb.inv_freq"); }

float load_number(DType dtype, const std::byte* bytes) {
  if (dtype == DType::kF32) {
    float f;
    std::memcpy(&f, bytes, sizeof f);
    return f;
  }
  std::uint16_t h;
  std::memcpy(&h, bytes, sizeof h);
  return dtype == DType::kBF16 ? f32_from_bf16(h) : f32_from_f16(h);
}

}  // namespace

void RowTable::row(std::size_t row, float scale, float* out) const {
  const std::size_t size = dtype_size(view_.dtype);
  const std::byte* bytes = view_.bytes.data() + row * cols_ * size;
  if (view_.dtype == DType::kBF16) {  // the common type, in a loop that compilers vectorize
    for (std::size_t i = 0; i < cols_; i++) {
      std::uint16_t h;
      std::memcpy(&h, bytes + 2 * i, sizeof h);
      out[i] = f32_from_bf16(h) * scale;
    }
    return;
  }
  for (std::size_t i = 0; i < cols_; i++) out[i] = load_number(view_.dtype, bytes + i * size) * scale;
}

WeightReader::WeightReader(const ModelTensors& tensors, ThreadPool& pool, Progress progress,
                           std::string_view prefix, std::string_view head)
    : tensors_(&tensors), pool_(&pool), progress_(std::move(progress)), prefix_(prefix), head_(head) {
  for (const TensorView& t : tensors.tensors()) {
    if (ours(t.name)) total_ += t.bytes.size();
  }
}

Result<WeightReader> WeightReader::create(const ModelTensors& tensors, ThreadPool& pool, Progress progress) {
  for (const Naming& n : kNamings) {
    if (tensors.find(std::string(n.prefix) + "embed_tokens.weight") == nullptr) continue;
    return WeightReader(tensors, pool, std::move(progress), n.prefix, n.head);
  }
  return Status(StatusCode::kCorrupt,
                tensors.source() +
                    ": no tensor \"model.embed_tokens.weight\" (nor under \"language_model.model.\" or "
                    "\"model.language_model.\")");
}

bool WeightReader::ours(std::string_view name) const {
  return (name.starts_with(prefix_) || name == head_) && !is_derived(name);
}

Result<TensorView> WeightReader::take(const std::string& full, std::span<const std::size_t> shape) {
  Result<TensorView> view = tensors_->get_float(full, shape);
  if (view.ok() && taken_.insert(full).second) parameters_ += view->elements();
  return view;
}

Result<PackedMatrix> WeightReader::pack(const TensorView& view, const std::byte* data, std::size_t rows,
                                        std::size_t cols) {
  Result<PackedMatrix> packed = PackedMatrix::pack(view.dtype, data, rows, cols, *pool_);
  if (!packed.ok())
    return packed.status().with_context(fmt::format("{}: tensor {}", tensors_->source(), quote(view.name)));
  done_ += rows * cols * dtype_size(view.dtype);
  if (progress_) progress_(done_, total_);
  return packed;
}

Result<PackedMatrix> WeightReader::pack(const std::string& full, std::size_t rows, std::size_t cols) {
  const std::size_t shape[] = {rows, cols};
  Result<TensorView> view = take(full, shape);
  if (!view.ok()) return view.status();
  return pack(*view, view->bytes.data(), rows, cols);
}

Result<PackedMatrix> WeightReader::rows(const std::string& name, std::size_t all, std::size_t cols,
                                        std::span<const RowRange> ranges) {
  const std::size_t shape[] = {all, cols};
  Result<TensorView> view = take(std::string(prefix_) + name, shape);
  if (!view.ok()) return view.status();
  const std::size_t row_bytes = cols * dtype_size(view->dtype);
  if (ranges.size() == 1) {
    return pack(*view, view->bytes.data() + ranges[0].first * row_bytes, ranges[0].count, cols);
  }
  std::vector<std::byte> gathered;
  std::size_t count = 0;
  for (const RowRange& r : ranges) {
    const std::byte* from = view->bytes.data() + r.first * row_bytes;
    gathered.insert(gathered.end(), from, from + r.count * row_bytes);
    count += r.count;
  }
  return pack(*view, gathered.data(), count, cols);
}

Result<PackedMatrix> WeightReader::stacked(const std::string& name, std::size_t count, std::size_t index,
                                           std::size_t rows, std::size_t cols) {
  const std::size_t shape[] = {count, rows, cols};
  Result<TensorView> view = take(std::string(prefix_) + name, shape);
  if (!view.ok()) return view.status();
  return pack(*view, view->bytes.data() + index * rows * cols * dtype_size(view->dtype), rows, cols);
}

Result<PackedMatrix> WeightReader::transposed(const std::string& name, std::size_t count, std::size_t index,
                                              std::size_t cols, std::size_t all, std::size_t first,
                                              std::size_t step) {
  const std::size_t shape[] = {count, cols, all};
  Result<TensorView> view = take(std::string(prefix_) + name, shape);
  if (!view.ok()) return view.status();
  const std::size_t size = dtype_size(view->dtype), rows = (all - first + step - 1) / step;
  const std::byte* from = view->bytes.data() + index * cols * all * size;
  std::vector<std::byte> turned(rows * cols * size);
  for (std::size_t c = 0; c < cols; c++) {
    for (std::size_t r = 0; r < rows; r++) {
      std::memcpy(&turned[(r * cols + c) * size], from + (c * all + first + r * step) * size, size);
    }
  }
  return pack(*view, turned.data(), rows, cols);
}

Result<PackedMatrix> WeightReader::matrix(const std::string& name, std::size_t rows, std::size_t cols) {
  return pack(std::string(prefix_) + name, rows, cols);
}

Result<PackedMatrix> WeightReader::head(std::size_t rows, std::size_t cols) {
  return pack(std::string(head_), rows, cols);
}

Result<RowTable> WeightReader::row_table(const std::string& name, std::size_t rows, std::size_t cols) {
  const std::size_t shape[] = {rows, cols};
  Result<TensorView> view = take(std::string(prefix_) + name, shape);
  if (!view.ok()) return view.status();
  return RowTable(std::move(*view));
}

Result<std::vector<float>> WeightReader::vector(const std::string& name, std::size_t size, float plus) {
  return floats(name, {size}, plus);
}

Result<std::vector<float>> WeightReader::floats(const std::string& name,
                                                std::initializer_list<std::size_t> shape, float plus) {
  Result<TensorView> view = take(std::string(prefix_) + name, {shape.begin(), shape.size()});
  if (!view.ok()) return view.status();
  std::vector<float> values(view->elements());
  const std::size_t each = dtype_size(view->dtype);
  for (std::size_t i = 0; i < values.size(); i++)
    values[i] = load_number(view->dtype, view->bytes.data() + i * each) + plus;
  return values;
}

bool WeightReader::has(const std::string& name) const {
  return tensors_->find(std::string(prefix_) + name) != nullptr;
}

std::vector<std::size_t> WeightReader::shape(const std::string& name) const {
  const TensorView* view = tensors_->find(std::string(prefix_) + name);
  return view == nullptr ? std::vector<std::size_t>() : view->shape;
}

void WeightReader::ignore(const std::string& name) { taken_.insert(std::string(prefix_) + name); }

Status WeightReader::unsupported(const std::string& name, std::string_view why) const {
  return {StatusCode::kUnsupported,
          fmt::format("{}: tensor {}: {}", tensors_->source(), quote(std::string(prefix_) + name), why)};
}

Status WeightReader::finish() {
  for (const TensorView& t : tensors_->tensors()) {
    // A head beside tied embeddings repeats them (some exporters save both).
    if (!ours(t.name) || t.name == head_ || taken_.contains(t.name)) continue;
    return Status(StatusCode::kUnsupported, fmt::format("{}: tensor {}: this model family has no use for it",
                                                        tensors_->source(), quote(t.name)));
  }
  if (progress_) progress_(total_, total_);
  return {};
}

}  // namespace windrow
