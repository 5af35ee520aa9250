#include "windrow/padded.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>

#include "base/checked.h"
#include "base/out_of_memory.h"

namespace windrow {
namespace {

Status invalid(std::string message) { return Status(StatusCode::kInvalidArgument, std::move(message)); }

Status check_size(const char* call, const char* what, std::size_t got, std::size_t positions,
                  std::size_t width, std::size_t element) {
  const auto expected = checked_product({positions, width, element});
  if (expected && got == *expected) return Status();
  return invalid(fmt::format("{}: {} has {} bytes, expected {} tokens of {} numbers of {} bytes", call, what,
                             got, positions, width, element));
}

}  // namespace

Result<PaddedBatch> PaddedBatch::create(int columns, std::span<const int> lengths, PadSide side) try {
  if (columns < 0) return invalid(fmt::format("padded batch: {} columns", columns));
  std::int64_t tokens = 0;
  for (std::size_t r = 0; r < lengths.size(); r++) {
    if (lengths[r] < 0 || lengths[r] > columns) {
      return invalid(fmt::format("padded batch: row {} has {} tokens in {} columns", r, lengths[r], columns));
    }
    tokens += lengths[r];
    if (tokens > std::numeric_limits<int>::max()) {
      return invalid(fmt::format("padded batch: {} tokens up to row {}, at most {} are possible", tokens, r,
                                 std::numeric_limits<int>::max()));
    }
  }
  PaddedBatch batch;
  batch.lengths_.assign(lengths.begin(), lengths.end());
  batch.columns_ = columns;
  batch.tokens_ = static_cast<int>(tokens);
  batch.side_ = side;
  return batch;
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

Status PaddedBatch::check_sizes(const char* call, std::size_t padded, std::size_t packed, std::size_t width,
                                std::size_t element) const {
  const auto cells = checked_mul(lengths_.size(), static_cast<std::size_t>(columns_));
  if (!cells) return invalid(fmt::format("{}: {} rows of {} columns are too many", call, rows(), columns_));
  if (Status s = check_size(call, "the padded array", padded, *cells, width, element); !s.ok()) return s;
  return check_size(call, "the packed array", packed, static_cast<std::size_t>(tokens_), width, element);
}

// copy(offset in the padded array, offset in the packed one, bytes) for each row's tokens.
template <typename Copy>
void PaddedBatch::for_each_row(std::size_t token_bytes, Copy copy) const {
  std::size_t packed = 0;
  for (int r = 0; r < rows(); r++) {
    const std::size_t bytes = static_cast<std::size_t>(lengths_[static_cast<std::size_t>(r)]) * token_bytes;
    if (bytes == 0) continue;
    const std::size_t cell = static_cast<std::size_t>(r) * static_cast<std::size_t>(columns_) +
                             static_cast<std::size_t>(first_column(r));
    copy(cell * token_bytes, packed, bytes);
    packed += bytes;
  }
}

Status PaddedBatch::pack_bytes(std::span<const std::byte> padded, std::size_t width, std::size_t element,
                               std::span<std::byte> packed) const try {
  if (Status s = check_sizes("pack", padded.size(), packed.size(), width, element); !s.ok()) return s;
  for_each_row(width * element, [&](std::size_t from, std::size_t to, std::size_t bytes) {
    std::memcpy(packed.data() + to, padded.data() + from, bytes);
  });
  return Status();
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

Status PaddedBatch::unpack_bytes(std::span<const std::byte> packed, std::size_t width, std::size_t element,
                                 std::span<std::byte> padded) const try {
  if (Status s = check_sizes("unpack", padded.size(), packed.size(), width, element); !s.ok()) return s;
  std::ranges::fill(padded, std::byte{0});
  for_each_row(width * element, [&](std::size_t to, std::size_t from, std::size_t bytes) {
    std::memcpy(padded.data() + to, packed.data() + from, bytes);
  });
  return Status();
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

Result<PaddedChunks> PaddedChunks::create(std::span<const int> lengths, int chunk_columns, PadSide side) try {
  if (chunk_columns < 1) return invalid(fmt::format("padded chunks: chunks of {} columns", chunk_columns));
  PaddedChunks chunks;
  for (std::size_t r = 0; r < lengths.size(); r++) {
    if (lengths[r] < 0) return invalid(fmt::format("padded chunks: row {} has {} tokens", r, lengths[r]));
    chunks.columns_ = std::max(chunks.columns_, lengths[r]);
  }
  chunks.lengths_.assign(lengths.begin(), lengths.end());
  chunks.chunk_columns_ = chunk_columns;
  chunks.side_ = side;
  return chunks;
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

int PaddedChunks::count() const noexcept {
  return static_cast<int>(
      div_up(static_cast<std::size_t>(columns_), static_cast<std::size_t>(chunk_columns_)));
}

Result<PaddedBatch> PaddedChunks::chunk(int i) const try {
  if (i < 0 || i >= count()) return invalid(fmt::format("padded chunks: chunk {} of {}", i, count()));
  const int begin = first_column(i), end = begin + std::min(chunk_columns_, columns_ - begin);
  std::vector<int> lengths;
  lengths.reserve(lengths_.size());
  for (const int length : lengths_) {
    // A row's tokens fill the columns [first, last) of the whole.
    const int first = side_ == PadSide::kLeft ? columns_ - length : 0, last = first + length;
    lengths.push_back(std::max(0, std::min(end, last) - std::max(begin, first)));
  }
  return PaddedBatch::create(end - begin, lengths, side_);
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

}  // namespace windrow
