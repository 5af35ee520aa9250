// Affine weights from MLX's packing into tiles: 32 codes of a row at a time are spread to bytes and
// gathered into bit planes.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/checked.h"
#include "model/product.h"
#include "model/product_affine.h"

namespace windrow {
namespace {

using internal::AffineFormat;
using internal::high_plane;
using internal::kChunk;
using internal::kTileRows;
using internal::low_plane;

static_assert(std::endian::native == std::endian::little, "dwords of the layout are byte streams");

// Four neighbouring codes, the low 4 * bits of `x`, to the four bytes of a dword.
template <int bits>
std::uint32_t spread(std::uint32_t x) {
  constexpr std::uint32_t pair = (1u << 2 * bits) - 1, one = ((1u << bits) - 1) * 0x00010001u;
  x = (x & pair) | (x & pair << 2 * bits) << (16 - 2 * bits);
  return (x & one) | (x & one << bits) << (8 - bits);
}

// Dword l of a plane of `width` bits that begin at bit `from` of the codes.
template <int width, int from>
std::uint32_t plane_dword(const std::uint32_t (&codes)[8], int l) {
  constexpr int per_line = 8 / width;
  constexpr std::uint32_t mask = ((1u << width) - 1) * 0x01010101u;
  std::uint32_t out = 0;
  for (int i = 0; i < per_line; i++) out |= (codes[l * per_line + i] >> from & mask) << (i * width);
  return out;
}

// One row's 32 codes, `bits` dwords of the file, to the row's dword of each of the chunk's lines.
template <int bits>
void pack_chunk(const std::byte* in, std::byte* out) {
  const auto put = [&](int line, std::uint32_t dword) {
    std::memcpy(out + static_cast<std::size_t>(line) * 64, &dword, sizeof dword);
  };
  constexpr std::size_t size = static_cast<std::size_t>(bits) * 4;
  std::byte buffer[size + 8] = {};  // what is read beyond the chunk
  std::memcpy(buffer, in, size);
  std::uint32_t codes[8];
  for (int j = 0; j < 8; j++) {
    std::uint64_t window;
    std::memcpy(&window, buffer + j * 4 * bits / 8, sizeof window);
    const std::uint64_t four = window >> (j * 4 * bits % 8) & ((std::uint64_t{1} << 4 * bits) - 1);
    codes[j] = spread<bits>(static_cast<std::uint32_t>(four));
  }
  constexpr int low = low_plane(bits), high = high_plane(bits);
  for (int l = 0; l < low; l++) put(l, plane_dword<low, 0>(codes, l));
  if constexpr (high != 0) {
    for (int l = 0; l < high; l++) put(low + l, plane_dword<high, low>(codes, l));
  }
}
template <>
void pack_chunk<8>(const std::byte* in, std::byte* out) {  // bytes in order already
  for (std::size_t line = 0; line < 8; line++) std::memcpy(out + line * 64, in + line * 4, 4);
}

struct Source {
  const std::byte *codes, *scales, *biases;  // of the tile's first row
  std::size_t rows, cols;
};

void pack_params(const AffineFormat& f, const Source& s, std::size_t group, std::byte* out) {
  const std::size_t size = dtype_size(f.params), groups = s.cols / f.group;
  for (std::size_t r = 0; r < s.rows; r++) {
    const std::size_t from = (r * groups + group) * size;
    if (f.params == DType::kBF16) {  // a column pair of bf16 is one dword an output
      std::memcpy(out + r * 4, s.scales + from, 2);
      std::memcpy(out + r * 4 + 2, s.biases + from, 2);
    } else {
      std::memcpy(out + r * size, s.scales + from, size);
      std::memcpy(out + (kTileRows + r) * size, s.biases + from, size);
    }
  }
}

template <int bits>
void pack_tile(const AffineFormat& f, const Source& s, std::byte* out) {
  const std::size_t row_bytes = s.cols / kChunk * bits * 4;
  for (std::size_t g = 0; g < s.cols / f.group; g++, out += f.group_bytes()) {
    for (std::size_t r = 0; r < s.rows; r++) {
      const std::byte* in = s.codes + r * row_bytes + g * (f.group / kChunk) * bits * 4;
      for (std::size_t c = 0; c < f.group / kChunk; c++) {
        pack_chunk<bits>(in + c * bits * 4, out + c * f.chunk_bytes() + r * 4);
      }
    }
    pack_params(f, s, g, out + f.code_bytes());
  }
}

void pack_tile(const AffineFormat& f, const Source& s, std::byte* out) {
  switch (f.bits) {
    case 2: return pack_tile<2>(f, s, out);
    case 3: return pack_tile<3>(f, s, out);
    case 4: return pack_tile<4>(f, s, out);
    case 5: return pack_tile<5>(f, s, out);
    case 6: return pack_tile<6>(f, s, out);
    default: return pack_tile<8>(f, s, out);
  }
}

Status check(const AffineWeights& w, std::size_t rows, std::size_t cols, Compute compute) {
  const auto invalid = [](std::string message) {
    return Status(StatusCode::kInvalidArgument, "quantized weights: " + message);
  };
  if (!is_float(w.params)) {
    return Status(StatusCode::kUnsupported,
                  fmt::format("quantized weights: scales of type {}, supported are F32, F16 and BF16",
                              dtype_name(w.params)));
  }
  if (!internal::is_affine_bits(w.bits)) {
    return invalid(fmt::format("{} bits, supported are 2, 3, 4, 5, 6 and 8", w.bits));
  }
  if (!internal::is_affine_group(w.group)) {
    return invalid(fmt::format("groups of {}, supported are 32, 64 and 128", w.group));
  }
  if (static_cast<unsigned>(compute) > static_cast<unsigned>(Compute::kF32)) {
    return invalid(fmt::format("compute mode {}", static_cast<unsigned>(compute)));
  }
  if (rows == 0 || cols == 0) return invalid(fmt::format("shape [{}, {}] is empty", rows, cols));
  if (cols % static_cast<std::size_t>(w.group) != 0) {
    return invalid(fmt::format("{} columns are no whole groups of {}", cols, w.group));
  }
  if (w.codes == nullptr || w.scales == nullptr || w.biases == nullptr) {
    return invalid(fmt::format("no {} for shape [{}, {}]",
                               w.codes == nullptr    ? "codes"
                               : w.scales == nullptr ? "scales"
                                                     : "biases",
                               rows, cols));
  }
  return {};
}

}  // namespace

Result<PackedMatrix> PackedMatrix::pack(const AffineWeights& w, std::size_t rows, std::size_t cols,
                                        Compute compute, ThreadPool& pool) {
  if (Status status = check(w, rows, cols, compute); !status.ok()) return status;
  const AffineFormat format{w.bits, static_cast<std::size_t>(w.group), w.params};
  const std::size_t tiles = div_up(rows, kTileRows), groups = cols / format.group;
  const auto tile_stride = checked_mul(groups, format.group_bytes());
  const auto bytes = tile_stride ? checked_mul(*tile_stride, tiles) : std::nullopt;
  if (!bytes) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("quantized weights: shape [{}, {}] of {} bits exceeds the address space", rows,
                              cols, w.bits));
  }
  Result<Arena> arena = Arena::create(*bytes, "quantized weights");
  if (!arena.ok()) return arena.status();

  PackedMatrix packed;
  packed.arena_ = std::move(*arena);  // zero filled: rows past the last are code 0, scale 0, bias 0
  packed.rows_ = rows;
  packed.cols_ = cols;
  packed.tile_stride_ = *tile_stride;
  packed.dtype_ = w.params;
  packed.bits_ = w.bits;
  packed.group_ = w.group;
  packed.compute_ = compute;
  const std::size_t row_codes = cols / kChunk * static_cast<std::size_t>(w.bits) * 4;
  const std::size_t row_params = groups * dtype_size(w.params);
  pool.parallel_for(tiles, [&](std::size_t tile, int) {
    const std::size_t row = tile * kTileRows;
    pack_tile(
        format,
        {w.codes + row * row_codes, static_cast<const std::byte*>(w.scales) + row * row_params,
         static_cast<const std::byte*>(w.biases) + row * row_params, std::min(kTileRows, rows - row), cols},
        packed.arena_.data() + tile * *tile_stride);
  });
  return packed;
}

}  // namespace windrow
