#include "model/random_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/checked.h"
#include "base/float16.h"
#include "base/memory.h"

namespace windrow {
namespace {

// SplitMix64 (Steele, Lea, Flood 2014): a counter in, a well mixed number out.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

std::uint64_t seed_of(std::string_view name) {  // FNV-1a
  std::uint64_t h = 0xcbf29ce484222325;
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return mix(h);
}

// Random bits, `keep` of each 8 bytes, with `set` in the others.
void fill_bits(std::uint64_t seed, std::uint64_t keep, std::uint64_t set, std::byte* to, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += 8) {
    const std::uint64_t word = (mix(seed + i) & keep) | set;
    std::memcpy(to + i, &word, std::min<std::size_t>(8, bytes - i));
  }
}

// bf16 of either sign with magnitudes in [1, 2) times the power of two that makes their mean square (7 / 3
// of its square) about 1 / cols.
void fill_bf16(std::uint64_t seed, std::size_t cols, std::byte* to) {
  const int exponent = static_cast<int>(std::lround(-0.5 * std::log2(7.0 / 3.0 * static_cast<double>(cols))));
  constexpr std::uint64_t kEach = 0x0001000100010001;
  fill_bits(seed, 0x807f * kEach, static_cast<std::uint64_t>(exponent + 127) * 0x80 * kEach, to, 2 * cols);
}

// Scales in [1, 2) times a power of two, biases that centre the codes. Codes are uniform in 2^bits steps:
// their mean square is (steps * scale)^2 / 12.
void fill_params(const AffineFormat& format, std::uint64_t seed, std::size_t cols, std::byte* scales,
                 std::byte* biases) {
  const double steps = std::exp2(format.bits), size = std::sqrt(12.0 / static_cast<double>(cols)) / steps;
  const float base = static_cast<float>(std::exp2(std::floor(std::log2(size))));
  for (std::size_t g = 0; g < cols / static_cast<std::size_t>(format.group); g++) {
    const float scale = base * (1.0f + static_cast<float>(mix(seed + g) & 0x7f) / 128.0f);
    const std::uint16_t params[] = {bf16_from_f32(scale),
                                    bf16_from_f32(-scale * static_cast<float>((steps - 1) / 2))};
    std::memcpy(scales + 2 * g, &params[0], 2);
    std::memcpy(biases + 2 * g, &params[1], 2);
  }
}

std::size_t rows_of(std::span<const std::size_t> shape) {
  std::size_t rows = 1;
  for (std::size_t i = 0; i + 1 < shape.size(); i++) rows *= shape[i];
  return rows;
}

}  // namespace

bool RandomWeights::has(std::string_view tensor) const { return tensor.find(".switch_mlp.") != tensor.npos; }

Result<MatrixRows> RandomWeights::matrix(const std::string& tensor,
                                         std::span<const std::size_t> shape) const {
  const RowRange all{0, rows_of(shape)};
  return rows(tensor, shape, {&all, 1});
}

Result<MatrixRows> RandomWeights::rows(const std::string& tensor, std::span<const std::size_t> shape,
                                       std::span<const RowRange> ranges) const {
  MatrixRows m;
  m.cols = shape.back();
  m.dtype = DType::kBF16;
  if (format_ && m.cols % static_cast<std::size_t>(format_->group) == 0) m.format = format_;
  std::vector<std::size_t> which;  // the row of the tensor that each row is
  for (const RowRange& r : ranges) {
    for (std::size_t i = 0; i < r.count; i++) which.push_back(r.first + i);
  }
  m.rows = which.size();
  if (measures_only_) return m;

  const std::size_t row_bytes = m.row_bytes(), param_bytes = m.param_bytes();
  const auto bytes = checked_mul(m.rows, row_bytes + 2 * param_bytes);
  Result<Arena> arena = Arena::create(bytes.value_or(SIZE_MAX / 2), "random weights");
  if (!arena.ok()) return arena.status().with_context(fmt::format("tensor {}", tensor));
  auto owner = std::make_shared<Arena>(std::move(*arena));
  std::byte* const codes = owner->data();
  std::byte* const scales = codes + m.rows * row_bytes;
  std::byte* const biases = scales + m.rows * param_bytes;
  const std::uint64_t seed = seed_of(tensor);
  pool_->parallel_for(m.rows, [&](std::size_t r, int) {
    const std::uint64_t of_row = mix(seed + which[r]);
    if (!m.format) return fill_bf16(of_row, m.cols, codes + r * row_bytes);
    fill_bits(of_row, ~std::uint64_t{0}, 0, codes + r * row_bytes, row_bytes);
    fill_params(*m.format, mix(of_row), m.cols, scales + r * param_bytes, biases + r * param_bytes);
  });
  m.data.codes = codes;
  if (m.format) m.data.scales = scales, m.data.biases = biases;
  m.owner = std::move(owner);
  return m;
}

Result<std::vector<float>> RandomWeights::floats(const std::string& tensor,
                                                 std::span<const std::size_t> shape, float center) const {
  std::vector<float> values(rows_of(shape) * shape.back());
  const float middle = tensor.find("norm") != tensor.npos ? center : 0.0f;
  const std::uint64_t seed = seed_of(tensor);
  for (std::size_t i = 0; i < values.size(); i++)
    values[i] = middle + static_cast<float>(mix(seed + i) >> 40) * 0x1p-29f;  // up to 1/32 above
  return values;
}

}  // namespace windrow
