// Reading the BPE model of tokenizer.json.
#include <fmt/format.h>

#include <bit>
#include <random>

#include "base/utf8.h"
#include "text/bpe.h"

namespace windrow::text {

Bpe Bpe::parse(Component& model) {
  Bpe bpe;
  const std::string type = model.type(true);
  // Files of early versions leave the type out; merges are then what tells BPE from the others.
  if (type != "BPE" && !(type.empty() && model.has("merges"))) {
    if (type.empty()) {
      model.fail("type", "is missing");
    } else {
      model.refuse_type(type);
    }
  }
  model.allow({"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
               "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (model.has("dropout") && model.double_or("dropout", 0, 0, 1) != 0) {
    model.fail("dropout", "is not null, which is not supported", StatusCode::kUnsupported);
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (const std::string affix = model.string_or(key, ""); !affix.empty()) {
      model.fail(key, fmt::format("is {}, which is not supported", quote(affix)), StatusCode::kUnsupported);
    }
  }
  bpe.fuse_unknown_ = model.bool_or("fuse_unk", false);
  bpe.ignore_merges_ = model.bool_or("ignore_merges", false);
  if (model.ok()) bpe.read_vocabulary(model);
  if (model.ok()) bpe.read_merges(model);
  if (model.ok()) bpe.read_unknown(model);
  if (model.ok()) bpe.read_byte_pieces(model);
  if (model.ok()) bpe.map_characters();
  return bpe;
}

void Bpe::read_vocabulary(Component& model) {
  const Json* vocab = model.find("vocab");
  if (vocab == nullptr) return model.fail("vocab", "is missing");
  if (!vocab->is_object())
    return model.fail("vocab", fmt::format("is {}, expected an object", describe(*vocab)));
  if (vocab->empty()) return model.fail("vocab", "is empty");
  std::size_t bytes = 0;
  for (const auto& [piece, id] : vocab->items()) bytes += piece.size();
  vocabulary_.reserve(vocab->size(), bytes);
  for (const auto& [piece, value] : vocab->items()) {
    const auto id = json_uint(value);
    if (!id || *id >= kMaxIds) {
      return model.fail("vocab", fmt::format("gives {} the id {}, expected an integer from 0 to {}",
                                             quote(piece), describe(value), kMaxIds - 1));
    }
    const auto small = static_cast<std::int32_t>(*id);
    if (!vocabulary_.add(piece, small)) {
      return model.fail("vocab", fmt::format("gives {} the id {}, which {} has", quote(piece), small,
                                             quote(*vocabulary_.piece_of(small))));
    }
  }
}

void Bpe::add_merge(const Merge& merge) {
  std::size_t slot = slot_of(merge.pair);
  while (merges_[slot].pair != kFree && merges_[slot].pair != merge.pair)
    slot = (slot + 1) & (merges_.size() - 1);
  merges_[slot] = merge;  // of two merges of one pair the later counts, as in Hugging Face's reader
}

void Bpe::read_merges(Component& model) {
  const Json* merges = model.find("merges");
  if (merges == nullptr) return model.fail("merges", "is missing");
  if (!merges->is_array())
    return model.fail("merges", fmt::format("is {}, expected an array", describe(*merges)));
  std::random_device entropy;
  seed_ = static_cast<std::uint64_t>(entropy()) << 32 | entropy();
  merges_.assign(std::bit_ceil(2 * merges->size() + 2), Merge{kFree, 0, 0});
  std::string merged;
  for (std::size_t rank = 0; rank < merges->size(); rank++) {
    const Json& merge = (*merges)[rank];
    const auto wrong = [&](const std::string& what) {
      model.fail(fmt::format("merges[{}]", rank).c_str(), what);
    };
    std::string_view left, right;
    if (merge.is_string()) {
      const std::string_view both = merge.get_ref<const std::string&>();
      const std::size_t space = both.find(' ');
      if (space == both.npos || both.find(' ', space + 1) != both.npos) {
        return wrong(fmt::format("is {}, expected two pieces and a space between them", quote(both)));
      }
      left = both.substr(0, space);
      right = both.substr(space + 1);
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      left = merge[0].get_ref<const std::string&>();
      right = merge[1].get_ref<const std::string&>();
    } else {
      return wrong(fmt::format("is {}, expected two pieces", describe(merge)));
    }
    merged.assign(left).append(right);
    for (const std::string_view piece : {left, right, std::string_view(merged)}) {
      if (!vocabulary_.id_of(piece))
        return wrong(fmt::format("names {}, which is not in the vocabulary", quote(piece)));
    }
    const auto pair = static_cast<std::uint64_t>(*vocabulary_.id_of(left)) << 32 |
                      static_cast<std::uint32_t>(*vocabulary_.id_of(right));
    add_merge({pair, static_cast<std::int32_t>(rank), *vocabulary_.id_of(merged)});
  }
}

void Bpe::read_unknown(Component& model) {
  if (!model.has("unk_token")) return;
  const std::string piece = model.string_or("unk_token", "");
  if (const auto id = vocabulary_.id_of(piece)) {
    unknown_id_ = *id;
  } else {
    model.fail("unk_token", fmt::format("is {}, which is not in the vocabulary", quote(piece)));
  }
}

// All 256, or none (then byte_fallback changes nothing). With some of them a character would now and
// then have pieces for half of its bytes.
void Bpe::read_byte_pieces(Component& model) {
  if (!model.bool_or("byte_fallback", false)) return;
  for (int byte = 0; byte < 256; byte++) {
    if (const auto id = vocabulary_.id_of(fmt::format("<0x{:02X}>", byte))) byte_ids_.push_back(*id);
  }
  if (byte_ids_.empty() || byte_ids_.size() == 256) return;
  model.fail("byte_fallback",
             fmt::format("is true with {} of the 256 pieces <0x00> to <0xFF>", byte_ids_.size()),
             StatusCode::kUnsupported);
}

void Bpe::map_characters() {
  constexpr std::size_t kPages = 0x1100;  // of 256 characters, up to U+10FFFF
  pages_.assign(kPages, 0);
  character_ids_.assign(256, -1);
  for (std::int32_t id = 0; id < vocabulary_.end_id(); id++) {
    const auto piece = vocabulary_.piece_of(id);
    if (!piece || piece->empty() || utf8_length(*piece, 0) != piece->size()) continue;
    std::size_t at = 0;
    const char32_t c = next_utf8(*piece, at);
    std::uint16_t& page = pages_[c >> 8];
    if (page == 0) {
      page = static_cast<std::uint16_t>(character_ids_.size() >> 8);
      character_ids_.resize(character_ids_.size() + 256, -1);
    }
    character_ids_[static_cast<std::size_t>(page) << 8 | (c & 0xFF)] = id;
  }
}

}  // namespace windrow::text
