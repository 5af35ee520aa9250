// The pure part of the format: cuts, tensors and the places of the digests.
#include "store/session_layout.h"

#include <fmt/format.h>

#include <cassert>

#include "base/checked.h"
#include "state/layer_records.h"
#include "store/digest.h"

namespace windrow::session {
namespace {

// The header begins with these; the digests stand between.
constexpr std::string_view kBeforeSha256 = "{\"__metadata__\":{\"sha256\":\"";
constexpr std::string_view kBeforeXxh3 = "\",\"xxh3\":\"";
constexpr std::string_view kBehind = "\",";

void add_side(std::vector<PieceTensor>& out, const Codec& codec, int dim, bool keys) {
  if (!codec.is_affine()) {
    out.push_back({keys, RecordPart::kCodes, codec.input(), static_cast<std::size_t>(dim)});
    return;
  }
  const auto groups = static_cast<std::size_t>(dim / codec.group());
  out.push_back({keys, RecordPart::kCodes, DType::kU32, static_cast<std::size_t>(codec.record_words(dim))});
  out.push_back({keys, RecordPart::kScales, codec.input(), groups});
  out.push_back({keys, RecordPart::kBiases, codec.input(), groups});
}

const char* suffix(RecordPart part) {
  return part == RecordPart::kCodes ? "" : part == RecordPart::kScales ? ".scales" : ".biases";
}

// Appends tensors one after another.
class Tensors {
 public:
  bool add(Tensor tensor, std::string name, DType dtype, std::vector<std::size_t> shape) {
    const std::optional<std::size_t> bytes = safetensors::shape_bytes(shape, dtype);
    const std::optional<std::size_t> end = bytes ? checked_add(end_, *bytes) : std::nullopt;
    if (!end || all_.size() >= safetensors::kMaxTensors) return false;
    tensor.entry = {std::move(name), dtype, std::move(shape), end_, *end};
    end_ = *end;
    all_.push_back(std::move(tensor));
    return true;
  }
  std::vector<Tensor> finish() && { return std::move(all_); }

 private:
  std::vector<Tensor> all_;
  std::size_t end_ = 0;
};

bool add_piece(Tensors& out, const Layout& layout, int i) {
  const Piece& piece = layout.pieces[static_cast<std::size_t>(i)];
  const AttentionGroup& group = layout.plan.group(piece.group);
  int part = 0;
  for (const PieceTensor& its : piece_tensors(group, piece.converted)) {
    const std::string name = fmt::format("piece{}.group{}.{}-{}.{}{}", i, piece.group, piece.begin, piece.end,
                                         its.keys ? "keys" : "values", suffix(its.part));
    if (!out.add({.kind = Tensor::Kind::kPiece,
                  .index = i,
                  .group = piece.group,
                  .part = part++,
                  .piece = its,
                  .entry = {}},
                 name, its.dtype,
                 {group.layers.size(), static_cast<std::size_t>(group.kv_heads),
                  static_cast<std::size_t>(piece.end - piece.begin), its.inner})) {
      return false;
    }
  }
  return true;
}

bool add_state(Tensors& out, const Layout& layout, int g, int i) {
  const RecurrentGroup& group = layout.plan.recurrent(g);
  const auto size = [](int n) { return static_cast<std::size_t>(n); };
  const GatedDeltaShape& delta = group.shape.delta;
  const CausalConvShape& conv = group.shape.conv;
  Tensor tensor{.kind = Tensor::Kind::kState, .index = i, .group = g, .part = 0, .piece = {}, .entry = {}};
  if (!out.add(tensor, fmt::format("recurrent{}.state.{}", g, i), DType::kF32,
               {group.layers.size(), size(delta.value_heads), size(delta.value_dim), size(delta.key_dim)})) {
    return false;
  }
  tensor.kind = Tensor::Kind::kTail;
  return out.add(tensor, fmt::format("recurrent{}.tail.{}", g, i), DType::kF32,
                 {group.layers.size(), size(conv.taps) - 1, size(conv.channels)});
}

}  // namespace

std::optional<Cuts::Range> Cuts::next() {
  if (at_ >= sinks_ && at_ < begin_) at_ = begin_;
  const int end = at_ < sinks_ ? sinks_ : length_;
  if (at_ >= end) return std::nullopt;
  Range range{at_, end};
  // Lengths go up to the largest int, where the next multiple is none.
  const int behind = kPiecePositions - at_ % kPiecePositions;
  if (end - at_ > behind) range.end = at_ + behind;
  at_ = range.end;
  return range;
}

std::vector<PieceTensor> piece_tensors(const AttentionGroup& group, bool converted) {
  std::vector<PieceTensor> out;
  add_side(out, key_codec(group, converted), group.head_dim, true);
  add_side(out, value_codec(group, converted), value_dim(group), false);
  return out;
}

std::optional<std::vector<Tensor>> tensors_of(const Layout& layout) {
  Tensors out;
  for (std::size_t i = 0; i < layout.token_lists.size(); i++) {
    if (!out.add({.kind = Tensor::Kind::kTokens,
                  .index = static_cast<int>(i),
                  .group = 0,
                  .part = 0,
                  .piece = {},
                  .entry = {}},
                 fmt::format("tokens.{}", i), DType::kI32,
                 {static_cast<std::size_t>(layout.token_lists[i])})) {
      return std::nullopt;
    }
  }
  for (std::size_t i = 0; i < layout.pieces.size(); i++) {
    if (!add_piece(out, layout, static_cast<int>(i))) return std::nullopt;
  }
  for (std::size_t g = 0; g < layout.states.size(); g++) {
    for (int i = 0; i < layout.states[g]; i++) {
      if (!add_state(out, layout, static_cast<int>(g), i)) return std::nullopt;
    }
  }
  return std::move(out).finish();
}

std::optional<SealPlaces> seal_places(std::string_view header) {
  SealPlaces places;
  const auto skip = [&](std::size_t at, std::string_view text) {
    return header.substr(at).starts_with(text);
  };
  if (header.size() < safetensors::kLengthBytes + kBeforeSha256.size() + kSha256Digits + kBeforeXxh3.size() +
                          kXxh3Digits + kBehind.size()) {
    return std::nullopt;
  }
  places.sha256 = safetensors::kLengthBytes + kBeforeSha256.size();
  places.xxh3 = places.sha256 + kSha256Digits + kBeforeXxh3.size();
  if (!skip(safetensors::kLengthBytes, kBeforeSha256) || !skip(places.sha256 + kSha256Digits, kBeforeXxh3) ||
      !skip(places.xxh3 + kXxh3Digits, kBehind)) {
    return std::nullopt;
  }
  return places;
}

std::uint64_t header_xxh3(std::string header, const SealPlaces& places) {
  header.replace(places.xxh3, kXxh3Digits, kXxh3Digits, '0');
  return xxh3(std::as_bytes(std::span(header)));
}

std::string blanked(std::string header, const SealPlaces& places) {
  header.replace(places.sha256, kSha256Digits, kSha256Digits, '0');
  header.replace(places.xxh3, kXxh3Digits, kXxh3Digits, '0');
  return header;
}

void seal(std::string& header, const Sha256Digest& sha256) {
  const std::optional<SealPlaces> places = seal_places(header);
  assert(places);
  header.replace(places->sha256, kSha256Digits, hex(sha256));
  header.replace(places->xxh3, kXxh3Digits, hex(header_xxh3(header, *places)));
}

}  // namespace windrow::session
