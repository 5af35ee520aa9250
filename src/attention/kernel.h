// The seams between the attention driver (plain C++, attend.cc) and its SIMD parts, which are
// compiled once per instruction set: plain structs of pointers, and a table of functions.
//
// The arithmetic of one query, in this order and no other, whatever surrounds it (invariant 1):
//   for each segment (tasks.h), ascending, from nothing:
//     for every softmax block, cut at multiples of block_tokens, ascending:
//       score[p]  = sum over groups g: scale[p,g] * (sum over dims of q * code) + bias[p,g] * (sum of q)
//       m, l, out = online softmax of the block's visible scores
//       out[d]   += sum over p ascending: (weight[p] * scale[p,g]) * code
//       mix_bias[g] += sum over p: weight[p] * bias[p,g], in chains that p's place in the block chooses
//     fold m, l, out, mix_bias into those of the segments before
//   result[d] = (out[d] + mix_bias[g]) / l
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/block_layout.h"
#include "windrow/dtype.h"

namespace windrow::internal {

// Positions of a softmax block, part of the definition of a result's bits, so a function of the group alone:
// 128, of which the K codes at q4 and 256 dims are 16 KiB, half of a common L1; heads of up to 64 dims take
// 256, for they pay more for the softmax and less in L1. kBlock is the most; arrays have that many.
inline constexpr int kBlock = 256;
constexpr int block_tokens(int head_dim) { return head_dim <= 64 ? kBlock : kBlock / 2; }
inline constexpr int kBlockTiles = kBlock / kTile;
// Queries that one task carries at most: heads of one kv head, then tokens. They share the unpacked
// codes; more would push their sums (16 x 256 x 4 bytes) out of L1.
inline constexpr int kMaxQueries = 16;
// Floats between the score rows of two queries: a kernel may write up to 128 scores past the last
// tile (it works on whole groups of vectors).
inline constexpr std::size_t kScoreStride = kBlock + 128;

// How codes are stored, as an index: 0 f32, 1 f16, 2 bf16, then q2 q3 q4 q5 q6 q8.
inline constexpr int kStorageKinds = 9;
inline int storage_kind(const Codec& codec) {
  if (codec.is_affine()) return codec.bits() == 8 ? 8 : codec.bits() + 1;
  return codec.input() == DType::kF32 ? 0 : codec.input() == DType::kF16 ? 1 : 2;
}
// How values are sliced, as an index: 0 not, 1 over 2 words, 2 over 4, 3 over 8.
inline constexpr int kSliceKinds = 4;
constexpr int slice_kind(int slice) { return slice == 8 ? 3 : slice / 2; }

// Codes are used as code * 2^shift: masked where they lie and converted, and 2^-shift is folded
// into the other factor, exactly.
//
// Keys are taken from the bit stream in fields of one word: 32 bits where codes divide a word, and for 3,
// 5 and 6 bits the largest power of two of codes that leaves bit 31 free: 8, 4 and 4.
constexpr int key_field_codes(int bits) { return 32 % bits == 0 ? 32 / bits : bits == 3 ? 8 : 4; }
// Where a field's code `slot` lies; one at the word's top is shifted down (a signed conversion could not
// take bit 31).
constexpr int slot_shift(int bits, int slot) {
  const int bit = slot * bits;
  return bit + bits == 32 ? 0 : bit;
}
constexpr int key_shift(int bits, int element) { return slot_shift(bits, element % key_field_codes(bits)); }
// Values that are sliced (codec/slices.h) lie in slots of words; others are picked byte by byte: the shift
// is where the code begins in its first byte.
constexpr int value_shift(int bits, int slice, int element) {
  return slice > 1 ? slot_shift(bits, element / slice % (32 / bits)) : element * bits % 8;
}
constexpr float exp2_of_minus(int shift) { return 1.0f / static_cast<float>(std::uint32_t{1} << shift); }
// Both patterns repeat after so many elements: units of slices have up to 8 * 32 / 2 = 128.
inline constexpr int kFoldPeriod = 128;

// Where the tiles of one side of a softmax block lie: those that are looked at.
struct Tiles {
  int begin = 0, end = 0;  // the others' places are anything
  int code_lines = 0;      // 64-byte lines a tile
  int param_lines = 0;
  const std::byte* codes[kBlockTiles];
  const std::byte* params[kBlockTiles];
};

// Scores of tiles [tile_begin, tile_end) for all queries.
struct KeyPass {
  const Tiles* tiles = nullptr;  // codes: [words][kTile] words a tile; params: [params][kTile]
  int tile_begin = 0, tile_end = 0;
  int head_dim = 0;
  int group = 0;  // dims that share params; plain: head_dim
  DType param_type = DType::kBF16;
  int queries = 0;                     // of the task
  int query_begin = 0, query_end = 0;  // those wanted; scores of others may be written too
  const float* q = nullptr;            // panels of pack_queries
  const float* q_sums = nullptr;       // [queries][groups]
  float* scores = nullptr;             // [queries][kScoreStride], from the block's first position
  const Tiles* prefetch = nullptr;     // tile i goes with tile i; never null
};

// out[query][dim] += sum over positions [begin, end) of the block: weight * code.
struct ValuePass {
  const Tiles* tiles = nullptr;  // codes: [kTile][words] words a tile
  std::size_t stride = 0;        // bytes of one position's codes
  int begin = 0, end = 0;
  int dims = 0;
  int group = 0;  // dims that share a weight; plain: dims
  int queries = 0;
  const float* weights = nullptr;  // [queries] at weight_rows floats; [groups][kBlock] inside
  std::size_t weight_rows = 0;
  float* out = nullptr;  // [queries] at out_rows floats
  std::size_t out_rows = 0;
  const Tiles* prefetch = nullptr;  // its first tile goes with the pass's first, and so on; never null
};

// Running state of one query's softmax.
struct SoftmaxState {
  bool seen = false;       // whether any position was visible so far
  float top = 0;           // the highest score so far
  float sums[kTile] = {};  // sums of exp(score - top), one a lane
};

struct SoftmaxPass {
  float* scores = nullptr;  // in: K . q; out: weights, 0 where masked
  int begin = 0, end = 0;   // visible range inside scores
  int tiles = 0;
  float scale = 1;
  float softcap = 0;
};

// What a query has gathered of the positions so far.
struct QueryState {
  SoftmaxState* softmax = nullptr;
  float* out = nullptr;       // [dims]
  float* mix_bias = nullptr;  // [groups][kTile], sums by lane; [bias_row] in all
};

// Folds the params of a block's positions [begin, end) into a query's weights:
//   weights[g][p] = probability[p] * scale[p][g];  mix_bias[g][p % kTile] += probability[p] * bias[p][g]
// Nothing outside the range matters; weights become anything there.
struct WeighPass {
  const Tiles* tiles = nullptr;  // params: [params][kTile] words a tile
  DType param_type = DType::kBF16;
  int begin = 0, end = 0;
  int groups = 1;
  const float* probability = nullptr;  // [kBlock]
  float* weights = nullptr;            // [groups][kBlock]
  float* mix_bias = nullptr;
};

// One instruction set's functions.
struct Kernels {
  const char* target = nullptr;
  int lanes = 1;              // f32 of a vector
  bool converts_f16 = false;  // by an instruction

  void (*score[kStorageKinds])(const KeyPass&) = {};
  void (*mix[kStorageKinds][kSliceKinds])(const ValuePass&) = {};  // null where a codec is not sliced so

  // Queries as the score kernels take them: panels of as many as they compute at once, [head_dim] x [queries
  // of the panel], of q[d] * fold[d % kFoldPeriod]; sums[query][g] = the sum of q over group g.
  void (*pack_queries)(const float* const* q, int queries, int head_dim, int group, const float* fold,
                       float* panels, float* sums) = nullptr;
  void (*begin_softmax)(SoftmaxState&) = nullptr;
  // Weights of the block; returns what sums made so far must be multiplied with.
  float (*softmax)(SoftmaxState&, const SoftmaxPass&) = nullptr;
  float (*softmax_sum)(const SoftmaxState&) = nullptr;
  void (*rescale)(float* values, int count, float factor) = nullptr;
  // Folds what later positions gave into what earlier ones did; both have seen some.
  void (*merge)(const QueryState& before, const QueryState& after, int dims, int bias_row) = nullptr;
  void (*weigh)(const WeighPass&) = nullptr;
  // result[d] = (sums[d] * fold[d % kFoldPeriod] + sum of mix_bias[d / group]) * factor
  void (*finish)(const float* sums, int dims, int group, const float* fold, const float* mix_bias,
                 float factor, float* result) = nullptr;
};

// The table of the best instruction set that this machine supports and this build has.
Kernels select_kernels();

// Its parts, one a source file.
void select_key_kernels(Kernels& kernels);
void select_value_kernels(Kernels& kernels);
void select_softmax_kernels(Kernels& kernels);

}  // namespace windrow::internal
