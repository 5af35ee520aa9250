// Rectangular batches at the door. Rows have no padding inside a store; an engine whose tensors are
// [rows, columns, ...] with padding on the left or the right takes the real tokens out of them here, and
// puts packed outputs back (C22, C11).
//
//   Result<PaddedChunks> chunks = PaddedChunks::create(prompt_lengths, 512, PadSide::kRight);
//   for (int i = 0; i < chunks->count(); i++) {
//     Result<PaddedBatch> batch = chunks->chunk(i);               // columns [first_column(i), ...)
//     Result<Step> step = store->begin(rows, batch->lengths());   // rows of length 0 stand by
//     batch->pack<float>(k, kv_heads * head_dim, packed_k);       // [rows, columns, heads, dim] -> [tokens,
//     ..] step->append(layer, packed_k, packed_v); kernels->attend(*step->read(layer), packed_q, params,
//     packed_out, &pool); batch->unpack<float>(packed_out, q_heads * value_dim, out);  // padding: zeros
//   }
//
// What stands in padding is never read, so nothing there (NaN, ids that are none) can reach a row.
// Packed arrays are ordered as those of a step: by row, and by column inside a row.
//
// Thread safety: immutable values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "windrow/export.h"
#include "windrow/status.h"

namespace windrow {

enum class PadSide : std::uint8_t {
  kLeft,   // a row's real tokens stand in its last columns
  kRight,  // in its first columns
};

class WINDROW_API PaddedBatch {
 public:
  // Row r has lengths[r] real tokens of `columns`. kInvalidArgument, naming the row, for a length that is
  // negative or beyond the columns, for negative columns, and for more tokens than an int counts. No rows, no
  // columns and rows without a token are legal.
  static Result<PaddedBatch> create(int columns, std::span<const int> lengths, PadSide side);

  int rows() const noexcept { return static_cast<int>(lengths_.size()); }
  int columns() const noexcept { return columns_; }
  int tokens() const noexcept { return tokens_; }  // real ones
  PadSide side() const noexcept { return side_; }
  // [rows]: what StateStore::begin takes, and StepRow::length.
  std::span<const int> lengths() const noexcept { return lengths_; }
  // The column of a row's first real token; the rest follow it. REQUIRES 0 <= row < rows().
  int first_column(int row) const noexcept {
    return side_ == PadSide::kLeft ? columns_ - lengths_[static_cast<std::size_t>(row)] : 0;
  }

  // padded [rows, columns, width] -> packed [tokens, width]. `width` counts numbers of a token (heads * dim;
  // 1 for ids). kInvalidArgument, naming both sizes, unless both arrays have exactly theirs.
  template <typename T>
  Status pack(std::span<const std::type_identity_t<T>> padded, std::size_t width, std::span<T> packed) const {
    static_assert(std::is_trivially_copyable_v<T>);
    return pack_bytes(std::as_bytes(padded), width, sizeof(T), std::as_writable_bytes(packed));
  }
  // packed [tokens, width] -> padded [rows, columns, width], zeros in the padding. Errors likewise.
  template <typename T>
  Status unpack(std::span<const std::type_identity_t<T>> packed, std::size_t width,
                std::span<T> padded) const {
    static_assert(std::is_trivially_copyable_v<T>);
    return unpack_bytes(std::as_bytes(packed), width, sizeof(T), std::as_writable_bytes(padded));
  }
  // The same of bytes, for element types that only the caller knows: a token has width * element of them.
  Status pack_bytes(std::span<const std::byte> padded, std::size_t width, std::size_t element,
                    std::span<std::byte> packed) const;
  Status unpack_bytes(std::span<const std::byte> packed, std::size_t width, std::size_t element,
                      std::span<std::byte> padded) const;

 private:
  PaddedBatch() = default;
  Status check_sizes(const char* call, std::size_t padded, std::size_t packed, std::size_t width,
                     std::size_t element) const;
  template <typename Copy>
  void for_each_row(std::size_t token_bytes, Copy copy) const;

  std::vector<int> lengths_;
  int columns_ = 0;
  int tokens_ = 0;
  PadSide side_ = PadSide::kRight;
};

// Prompts of different lengths, padded to the longest, fed in chunks of columns.
class WINDROW_API PaddedChunks {
 public:
  // kInvalidArgument for chunk_columns < 1 and negative lengths.
  static Result<PaddedChunks> create(std::span<const int> lengths, int chunk_columns, PadSide side);

  int rows() const noexcept { return static_cast<int>(lengths_.size()); }
  int columns() const noexcept { return columns_; }  // the longest length
  int count() const noexcept;                        // of chunks; the last may have fewer columns
  int first_column(int chunk) const noexcept { return chunk * chunk_columns_; }
  // Chunk i, 0 <= i < count(): its columns, and how many real tokens each row has in them, maybe none. A
  // chunk is padded on the same side as the whole. kInvalidArgument for another i.
  Result<PaddedBatch> chunk(int i) const;

 private:
  PaddedChunks() = default;
  std::vector<int> lengths_;
  int columns_ = 0;
  int chunk_columns_ = 1;
  PadSide side_ = PadSide::kRight;
};

}  // namespace windrow
