#include "model/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/float16.h"
#include "base/json.h"
#include "base/load_float.h"

namespace windrow {

void RowTable::row(std::size_t row, float scale, float* out) const {
  const MatrixRows one = rows_.part({row, 1});
  if (one.format) return dequantize_row(*one.format, one.dtype, one.data, one.cols, scale, out);
  const std::byte* bytes = one.data.codes;
  if (one.dtype == DType::kBF16) {  // the common type, in a loop that compilers vectorize
    for (std::size_t i = 0; i < one.cols; i++) {
      std::uint16_t h;
      std::memcpy(&h, bytes + 2 * i, sizeof h);
      out[i] = f32_from_bf16(h) * scale;
    }
    return;
  }
  const std::size_t size = dtype_size(one.dtype);
  for (std::size_t i = 0; i < one.cols; i++) out[i] = load_float(one.dtype, bytes + i * size) * scale;
}

WeightReader::WeightReader(const WeightSource& source, ThreadPool& pool, Compute compute, Progress progress)
    : source_(&source), pool_(&pool), compute_(compute), progress_(std::move(progress)) {
  for (const TensorView& t : source.tensors()) {
    if (source.names().ours(t.name)) total_ += t.bytes.size();
  }
}

// A tensor was read; with codes go their scales and biases.
void WeightReader::take(const std::string& full, std::span<const std::size_t> shape, bool affine) {
  if (!taken_.insert(full).second) return;
  std::size_t elements = 1;
  for (const std::size_t dim : shape) elements *= dim;
  totals_.parameters += elements;
  if (affine) take_params(full);
}

void WeightReader::take_params(const std::string& full) {
  const std::string module(module_of(full));
  taken_.insert({module + ".scales", module + ".biases"});
}

Result<PackedMatrix> WeightReader::pack(const std::string& full, const MatrixRows& m) {
  totals_.numbers += m.rows * m.cols;
  if (source_->measures_only()) {
    totals_.matrix_bytes += m.bytes();
    return PackedMatrix();
  }
  Result<PackedMatrix> packed = m.format ? PackedMatrix::pack({m.data.codes, m.data.scales, m.data.biases,
                                                               m.dtype, m.format->bits, m.format->group},
                                                              m.rows, m.cols, compute_, *pool_)
                                         : PackedMatrix::pack(m.dtype, m.data.codes, m.rows, m.cols, *pool_);
  if (!packed.ok())
    return packed.status().with_context(fmt::format("{}: tensor {}", source_->name(), quote(full)));
  totals_.matrix_bytes += packed->bytes();
  done_ += m.bytes();
  if (progress_) progress_(std::min(done_, total_), total_);
  return packed;
}

Result<PackedMatrix> WeightReader::read(const std::string& full, std::span<const std::size_t> shape,
                                        std::span<const RowRange> ranges) {
  const Result<MatrixRows> rows = source_->rows(full, shape, ranges);
  if (!rows.ok()) return rows.status();
  take(full, shape, rows->format.has_value());
  return pack(full, *rows);
}

// Counts what packing added.
Result<PackedMatrix> WeightReader::of_expert(Result<PackedMatrix> packed, const WeightTotals& before) {
  totals_.expert_bytes += totals_.matrix_bytes - before.matrix_bytes;
  totals_.expert_numbers += totals_.numbers - before.numbers;
  return packed;
}

Result<PackedMatrix> WeightReader::matrix(const std::string& name, std::size_t rows, std::size_t cols) {
  const RowRange all{0, rows};
  return this->rows(name, rows, cols, {&all, 1});
}

Result<PackedMatrix> WeightReader::head(std::size_t rows, std::size_t cols) {
  const std::size_t shape[] = {rows, cols};
  const RowRange all{0, rows};
  return read(std::string(source_->names().head), shape, {&all, 1});
}

Result<PackedMatrix> WeightReader::rows(const std::string& name, std::size_t all, std::size_t cols,
                                        std::span<const RowRange> ranges) {
  const std::size_t shape[] = {all, cols};
  return read(full(name), shape, ranges);
}

Result<PackedMatrix> WeightReader::stacked(const std::string& name, std::size_t count, std::size_t index,
                                           std::size_t rows, std::size_t cols) {
  const std::size_t shape[] = {count, rows, cols};
  const RowRange range{index * rows, rows};
  const WeightTotals before = totals_;
  return of_expert(read(full(name), shape, {&range, 1}), before);
}

Result<PackedMatrix> WeightReader::transposed(const std::string& name, std::size_t count, std::size_t index,
                                              std::size_t cols, std::size_t all, std::size_t first,
                                              std::size_t step) {
  const std::size_t shape[] = {count, cols, all};
  const RowRange range{index * cols, cols};
  const Result<MatrixRows> source = source_->rows(full(name), shape, {&range, 1});
  if (!source.ok()) return source.status();
  take(full(name), shape, false);
  if (source->format) return unsupported(name, "is quantized along its outputs, which is not supported");
  const std::size_t size = dtype_size(source->dtype);
  MatrixRows turned = *source;
  turned.rows = (all - first + step - 1) / step;
  turned.cols = cols;
  std::vector<std::byte> bytes(turned.bytes());
  turned.data.codes = bytes.data();
  for (std::size_t c = 0; c < cols; c++) {
    for (std::size_t r = 0; r < turned.rows; r++) {
      std::memcpy(&bytes[(r * cols + c) * size], source->data.codes + (c * all + first + r * step) * size,
                  size);
    }
  }
  const WeightTotals before = totals_;
  return of_expert(pack(full(name), turned), before);
}

Result<RowTable> WeightReader::row_table(const std::string& name, std::size_t rows, std::size_t cols) {
  const std::size_t shape[] = {rows, cols};
  Result<MatrixRows> table = source_->matrix(full(name), shape);
  if (!table.ok()) return table.status();
  take(full(name), shape, table->format.has_value());
  totals_.table_bytes += table->bytes();
  return RowTable(std::move(*table));
}

Result<std::vector<float>> WeightReader::vector(const std::string& name, std::size_t size, float plus) {
  return floats(name, {size}, plus);
}

Result<std::vector<float>> WeightReader::floats(const std::string& name,
                                                std::initializer_list<std::size_t> shape, float plus) {
  const std::span<const std::size_t> dims(shape.begin(), shape.size());
  Result<std::vector<float>> values = source_->floats(full(name), dims, 1 - plus);
  if (!values.ok()) return values;
  take(full(name), dims, false);
  for (float& v : *values) v += plus;
  return values;
}

bool WeightReader::has(const std::string& name) const { return source_->has(full(name)); }

std::vector<std::size_t> WeightReader::shape(const std::string& name) const {
  return source_->shape(full(name));
}

void WeightReader::ignore(const std::string& name) {
  taken_.insert(full(name));
  take_params(full(name));
}

Status WeightReader::unsupported(const std::string& name, std::string_view why) const {
  return {StatusCode::kUnsupported,
          fmt::format("{}: tensor {}: {}", source_->name(), quote(full(name)), why)};
}

Status WeightReader::finish() {
  const TextNames& names = source_->names();
  for (const TensorView& t : source_->tensors()) {
    // A head beside tied embeddings repeats them (some exporters save both).
    const bool of_head = !t.name.starts_with(names.prefix);
    if (!names.ours(t.name) || of_head || taken_.contains(t.name)) continue;
    return Status(StatusCode::kUnsupported, fmt::format("{}: tensor {}: this model family has no use for it",
                                                        source_->name(), quote(t.name)));
  }
  if (progress_) progress_(total_, total_);
  return {};
}

}  // namespace windrow
