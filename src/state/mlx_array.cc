#include "state/mlx_array.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "base/checked.h"
#include "base/float16.h"
#include "codec/affine.h"

namespace windrow::mlx {
namespace {

static_assert(std::endian::native == std::endian::little, "records and arrays share their byte order");

// Bytes of one vector.
struct VectorBytes {
  std::size_t data = 0;
  std::size_t params = 0;  // of the scales, and again of the biases
};

VectorBytes vector_bytes(const Codec& codec, int dim) {
  VectorBytes bytes{4 * static_cast<std::size_t>(codec.record_words(dim)), 0};
  if (codec.is_affine())
    bytes.params = static_cast<std::size_t>(dim / codec.group()) * dtype_size(codec.input());
  return bytes;
}

Result<VectorBytes> array_bytes(const std::string& name, const Codec& codec, const Shape& shape) {
  if (Status s = codec.check(shape.dim); !s.ok()) return s.with_context(name);
  const VectorBytes each = vector_bytes(codec, shape.dim);
  const auto data = checked_product({shape.batch, shape.heads, shape.slots, each.data});
  if (!data || *data > static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max())) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{}: {} rows x {} heads x {} slots of {} bytes are too many", name, shape.batch,
                              shape.heads, shape.slots, each.data));
  }
  // A vector has fewer bytes of scales than of codes (groups of 32 and more), so this can't overflow.
  return VectorBytes{*data, shape.batch * shape.heads * shape.slots * each.params};
}

float number_at(const std::byte* p, DType dtype, std::size_t i) {
  if (dtype == DType::kF32) {
    float f = 0;
    std::memcpy(&f, p + 4 * i, 4);
    return f;
  }
  std::uint16_t half = 0;
  std::memcpy(&half, p + 2 * i, 2);
  return dtype == DType::kF16 ? f32_from_f16(half) : f32_from_bf16(half);
}

void put_number(std::byte* p, DType dtype, std::size_t i, float f) {
  if (dtype == DType::kF32) {
    std::memcpy(p + 4 * i, &f, 4);
    return;
  }
  const std::uint16_t half = dtype == DType::kF16 ? f16_from_f32(f) : bf16_from_f32(f);
  std::memcpy(p + 2 * i, &half, 2);
}

}  // namespace

Status check_array(const std::string& name, const MlxArray& array, const Shape& shape) {
  Result<VectorBytes> bytes = array_bytes(name, array.codec, shape);
  if (!bytes.ok()) return bytes.status();
  const struct {
    const char* what;
    std::size_t got, expected;
  } parts[] = {{array.codec.is_affine() ? "codes" : "numbers", array.data.size(), bytes->data},
               {"scales", array.scales.size(), bytes->params},
               {"biases", array.biases.size(), bytes->params}};
  for (const auto& part : parts) {
    if (part.got == part.expected) continue;
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{}: {} bytes of {}, expected {} for [{}, {}, {}, {}] as {}", name, part.got,
                              part.what, part.expected, shape.batch, shape.heads, shape.slots, shape.dim,
                              array.codec.to_string()));
  }
  return Status();
}

Status check_conversion(const std::string& name, const Codec& from, const Codec& to) {
  if (from == to || !from.is_affine() || !to.is_affine()) return Status();
  return Status(StatusCode::kInvalidArgument,
                fmt::format("{}: {} can't become {}: that would quantize twice; go through plain numbers",
                            name, from.to_string(), to.to_string()));
}

void read_vector(const MlxArray& array, int dim, std::size_t at, const Codec& codec,
                 std::span<std::uint32_t> words, std::span<std::uint32_t> params) {
  const VectorBytes each = vector_bytes(array.codec, dim);
  const std::byte* data = array.data.data() + at * each.data;
  const auto n = static_cast<std::size_t>(dim);
  if (!array.codec.is_affine() && array.codec != codec) {
    std::array<float, affine::kMaxDim> numbers;
    for (std::size_t i = 0; i < n; i++) numbers[i] = number_at(data, array.codec.input(), i);
    encode_record(codec, std::span(numbers).first(n), words, params);
    return;
  }
  const auto copy_record = [&](std::span<std::uint32_t> w, std::span<std::uint32_t> p) {
    std::memcpy(w.data(), data, each.data);
    const std::byte* scales = array.scales.data() + at * each.params;
    const std::byte* biases = array.biases.data() + at * each.params;
    const std::size_t groups =
        array.codec.is_affine() ? n / static_cast<std::size_t>(array.codec.group()) : 0;
    for (std::size_t g = 0; g < groups; g++) {
      if (array.codec.input() == DType::kF32) {
        std::memcpy(&p[2 * g], scales + 4 * g, 4);
        std::memcpy(&p[2 * g + 1], biases + 4 * g, 4);
      } else {
        std::uint16_t scale = 0, bias = 0;
        std::memcpy(&scale, scales + 2 * g, 2);
        std::memcpy(&bias, biases + 2 * g, 2);
        p[g] = scale | static_cast<std::uint32_t>(bias) << 16;
      }
    }
  };
  if (array.codec == codec) return copy_record(words, params);
  // A triple that becomes plain numbers.
  std::array<std::uint32_t, affine::kMaxWords> w;
  std::array<std::uint32_t, affine::kMaxParams> p;
  std::array<float, affine::kMaxDim> numbers;
  const auto own_words = std::span(w).first(static_cast<std::size_t>(array.codec.record_words(dim)));
  const auto own_params = std::span(p).first(static_cast<std::size_t>(array.codec.record_params(dim)));
  copy_record(own_words, own_params);
  decode_record(array.codec, own_words, own_params, std::span(numbers).first(n));
  encode_record(codec, std::span(numbers).first(n), words, params);
}

Result<ArrayWriter> ArrayWriter::create(const std::string& name, const Codec& codec, const Shape& shape) {
  Result<VectorBytes> bytes = array_bytes(name, codec, shape);
  if (!bytes.ok()) return bytes.status();
  ArrayWriter writer;
  writer.codec_ = codec;
  writer.dim_ = shape.dim;
  writer.bytes_ = std::make_shared<Bytes>();
  writer.bytes_->data.resize(bytes->data);
  writer.bytes_->scales.resize(bytes->params);
  writer.bytes_->biases.resize(bytes->params);
  return writer;
}

void ArrayWriter::write(std::size_t at, const Codec& codec, std::span<const std::uint32_t> words,
                        std::span<const std::uint32_t> params) {
  const VectorBytes each = vector_bytes(codec_, dim_);
  const auto n = static_cast<std::size_t>(dim_);
  std::byte* data = bytes_->data.data() + at * each.data;
  if (codec != codec_ && !codec_.is_affine()) {
    std::array<float, affine::kMaxDim> numbers;
    decode_record(codec, words, params, std::span(numbers).first(n));
    for (std::size_t i = 0; i < n; i++) put_number(data, codec_.input(), i, numbers[i]);
    return;
  }
  std::array<std::uint32_t, affine::kMaxWords> w;
  std::array<std::uint32_t, affine::kMaxParams> p;
  if (codec != codec_) {  // plain numbers that become a triple
    std::array<float, affine::kMaxDim> numbers;
    decode_record(codec, words, params, std::span(numbers).first(n));
    const auto own_words = std::span(w).first(static_cast<std::size_t>(codec_.record_words(dim_)));
    const auto own_params = std::span(p).first(static_cast<std::size_t>(codec_.record_params(dim_)));
    encode_record(codec_, std::span(numbers).first(n), own_words, own_params);
    words = own_words;
    params = own_params;
  }
  std::memcpy(data, words.data(), each.data);
  if (!codec_.is_affine()) return;
  std::byte* scales = bytes_->scales.data() + at * each.params;
  std::byte* biases = bytes_->biases.data() + at * each.params;
  for (std::size_t g = 0; g < n / static_cast<std::size_t>(codec_.group()); g++) {
    if (codec_.input() == DType::kF32) {
      std::memcpy(scales + 4 * g, &params[2 * g], 4);
      std::memcpy(biases + 4 * g, &params[2 * g + 1], 4);
    } else {
      const auto scale = static_cast<std::uint16_t>(params[g]),
                 bias = static_cast<std::uint16_t>(params[g] >> 16);
      std::memcpy(scales + 2 * g, &scale, 2);
      std::memcpy(biases + 2 * g, &bias, 2);
    }
  }
}

MlxArray ArrayWriter::finish() && {
  return {codec_, bytes_->data, bytes_->scales, bytes_->biases, std::move(bytes_)};
}

}  // namespace windrow::mlx
