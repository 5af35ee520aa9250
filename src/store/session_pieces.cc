#include "store/session_pieces.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "state/layer_records.h"

namespace windrow::session {
namespace {

std::size_t positions(const Piece& p) { return static_cast<std::size_t>(p.end - p.begin); }

// The words of one head's vectors [first, first + count) apart, as the tensor has them.
void put_records(const PieceTensor& tensor, std::span<const std::uint32_t> words,
                 std::span<const std::uint32_t> params, std::size_t count, std::byte* to) {
  if (tensor.part == RecordPart::kCodes) {
    std::memcpy(to, words.data(), count * tensor.bytes());
    return;
  }
  // scale | bias << 16 in one word, or one word each.
  const bool bias = tensor.part == RecordPart::kBiases, wide = tensor.dtype == DType::kF32;
  for (std::size_t i = 0; i < count * tensor.inner; i++) {
    if (wide) {
      std::memcpy(to + 4 * i, &params[2 * i + bias], 4);
    } else {
      const auto half = static_cast<std::uint16_t>(params[i] >> (bias ? 16 : 0));
      std::memcpy(to + 2 * i, &half, 2);
    }
  }
}

// The place of a position in a layer's records.
std::size_t index_of(const LayerRecords& records, int position) {
  return static_cast<std::size_t>(position < records.sinks ? position
                                                           : position - records.begin + records.sinks);
}

PieceData render(const Piece& place, const AttentionGroup& group, std::span<const LayerRecords> layers) {
  PieceData data{place, {}};
  const std::size_t n = positions(place), heads = static_cast<std::size_t>(group.kv_heads);
  for (const PieceTensor& tensor : piece_tensors(group, place.converted)) {
    std::vector<std::byte>& bytes = data.tensors.emplace_back(layers.size() * heads * n * tensor.bytes());
    std::byte* to = bytes.data();
    const Codec& codec =
        tensor.keys ? key_codec(group, place.converted) : value_codec(group, place.converted);
    const int dim = tensor.keys ? group.head_dim : value_dim(group);
    const auto words = static_cast<std::size_t>(codec.record_words(dim));
    const auto params = static_cast<std::size_t>(codec.record_params(dim));
    for (const LayerRecords& layer : layers) {
      const auto all = static_cast<std::size_t>(layer.positions());
      for (std::size_t h = 0; h < heads; h++, to += n * tensor.bytes()) {
        const std::size_t first = h * all + index_of(layer, place.begin);
        const auto part = [&](const std::vector<std::uint32_t>& of, std::size_t each) {
          return std::span(of).subspan(first * each, n * each);
        };
        put_records(tensor, part(tensor.keys ? layer.key_words : layer.value_words, words),
                    part(tensor.keys ? layer.key_params : layer.value_params, params), n, to);
      }
    }
  }
  return data;
}

// Runs f(a's bytes, b's bytes, how many) over what two pieces of one range have of [begin, end).
template <typename A, typename B, typename F>
bool visit_common(const AttentionGroup& group, A& a, B& b, int begin, int end, const F& f) {
  const std::vector<PieceTensor> tensors = piece_tensors(group, a.place.converted);
  const std::size_t outer = group.layers.size() * static_cast<std::size_t>(group.kv_heads);
  for (std::size_t t = 0; t < tensors.size(); t++) {
    const std::size_t each = tensors[t].bytes();
    const auto at = [&](auto& piece, std::size_t o) {
      return piece.tensors[t].data() +
             (o * positions(piece.place) + static_cast<std::size_t>(begin - piece.place.begin)) * each;
    };
    for (std::size_t o = 0; o < outer; o++) {
      if (!f(at(a, o), at(b, o), static_cast<std::size_t>(end - begin) * each)) return false;
    }
  }
  return true;
}

bool agree(const AttentionGroup& group, const PieceData& a, const PieceData& b) {
  const int begin = std::max(a.place.begin, b.place.begin), end = std::min(a.place.end, b.place.end);
  return begin < end &&
         visit_common(group, a, b, begin, end, [](const std::byte* x, const std::byte* y, std::size_t bytes) {
           return std::memcmp(x, y, bytes) == 0;
         });
}

// What both hold, which agree.
PieceData join(const AttentionGroup& group, const PieceData& a, const PieceData& b) {
  PieceData out{a.place, {}};
  out.place.begin = std::min(a.place.begin, b.place.begin);
  out.place.end = std::max(a.place.end, b.place.end);
  for (std::size_t t = 0; t < a.tensors.size(); t++)
    out.tensors.emplace_back(a.tensors[t].size() / positions(a.place) * positions(out.place));
  for (const PieceData* from : {&a, &b}) {
    visit_common(group, *from, out, from->place.begin, from->place.end,
                 [](const std::byte* x, std::byte* y, std::size_t bytes) {
                   std::memcpy(y, x, bytes);
                   return true;
                 });
  }
  return out;
}

}  // namespace

int Pieces::add(const Piece& place, std::span<const LayerRecords> layers) {
  const AttentionGroup& group = plan_->group(place.group);
  PieceData fresh = render(place, group, layers);
  for (std::size_t i = 0; i < pieces_.size(); i++) {
    PieceData& old = pieces_[i];
    if (old.place.group != place.group || old.place.converted != place.converted ||
        old.place.begin / kPiecePositions != place.begin / kPiecePositions || !agree(group, old, fresh)) {
      continue;
    }
    if (old.place.begin > place.begin || old.place.end < place.end) {
      PieceData joined = join(group, old, fresh);
      if (i < committed_) before_.push_back({i, {}});
      std::swap(old, joined);
      if (i < committed_) before_.back().data = std::move(joined);
    }
    return static_cast<int>(i);
  }
  pieces_.push_back(std::move(fresh));
  return static_cast<int>(pieces_.size() - 1);
}

void Pieces::commit() {
  before_.clear();
  committed_ = pieces_.size();
}

void Pieces::rollback() noexcept {
  pieces_.erase(pieces_.begin() + static_cast<std::ptrdiff_t>(committed_), pieces_.end());
  for (; !before_.empty(); before_.pop_back()) pieces_[before_.back().index] = std::move(before_.back().data);
}

}  // namespace windrow::session
