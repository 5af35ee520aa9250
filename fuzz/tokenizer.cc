// Fuzzes the tokenizer. The first byte chooses: 0 a tokenizer.json and a text behind it, split at the
// last byte 0xFF (which neither can hold); 1, 2, 3 a text for the fixed tokenizers below; 4, 5, 6 ids
// for them, two bytes each.
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "windrow/tokenizer.h"

namespace {

using windrow::Tokenizer;

// Byte pieces, unk, merges, a normalizer and every kind of added token; a byte-level one with GPT-2's
// expression; a Metaspace one that strips.
constexpr const char* kFallback =
    R"({"normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "_"},
 "added_tokens": [{"id": 6, "content": "<s>", "special": true}, {"id": 7, "content": "<m>", "lstrip": true, "rstrip": true},
  {"id": 8, "content": "ab", "single_word": true}, {"id": 9, "content": "<s><m>"}],
 "model": {"vocab": {"a": 0, "b": 1, "c": 2, "_": 3, "?": 4, "bc": 5, "_a": 10, "_abc": 11, "aa": 12, "aaaa": 13},
  "unk_token": "?", "merges": ["b c", "_ a", "_a bc", "a a", "aa aa"]},
 "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "_"}, "content": " "},
  {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 1}]}})";
constexpr const char* kByteLevel = R"({"normalizer": {"type": "NFC"},
 "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": true},
 "model": {"vocab": {"a": 0, "\u0120": 1, "\u00c3": 2, "\u00a9": 3, "\u00e2": 4, "\u0122": 5, "\u0120a": 6, "?": 7},
  "unk_token": "?", "merges": [["\u0120", "a"]]}, "decoder": {"type": "ByteLevel"}})";
constexpr const char* kMetaspace = R"({"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKD"},
  {"type": "StripAccents"}, {"type": "Lowercase"}, {"type": "Strip"}]},
 "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Punctuation", "behavior": "MergedWithNext"},
  {"type": "Digits"}, {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first"}]},
 "model": {"vocab": {"a": 0, "_": 1, "_a": 2, "<0x41>": 3, "?": 4}, "unk_token": "?", "fuse_unk": true,
  "merges": [["_", "a"]]}, "decoder": {"type": "Metaspace", "replacement": "_"}})";

const Tokenizer& fixed_tokenizer(std::size_t which) {
  static const Tokenizer kAll[] = {*Tokenizer::parse(kFallback), *Tokenizer::parse(kByteLevel),
                                   *Tokenizer::parse(kMetaspace)};
  return kAll[which % 3];
}

void check(bool holds) {
  if (!holds) std::abort();
}

// Ids of an encoding are in the vocabulary, and pieces of a decoding make up the whole.
void decode(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids, bool must_hold) {
  const auto whole = tokenizer.decode(ids);
  Tokenizer::Decoder decoder(tokenizer);
  std::string pieces;
  bool ok = true;
  for (std::size_t i = 0; ok && i < ids.size(); i++) {
    const auto piece = decoder.push(ids[i]);
    ok = piece.ok();
    if (ok) pieces += *piece;
  }
  pieces += decoder.finish();
  check(ok == whole.ok());
  if (ok) check(pieces == *whole);
  if (must_hold) check(ok || whole.status().code() == windrow::StatusCode::kResourceExhausted);
}

void encode(const Tokenizer& tokenizer, std::string_view text) {
  const auto ids = tokenizer.encode(text);
  if (ids.ok()) decode(tokenizer, *ids, true);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data + 1), size - 1);
  if (data[0] == 0) {
    const std::size_t cut = input.rfind('\xFF');
    const auto tokenizer = Tokenizer::parse(input.substr(0, cut));
    if (tokenizer.ok()) encode(*tokenizer, cut == input.npos ? "a b ab\xC3\xA9 12." : input.substr(cut + 1));
  } else if (data[0] <= 3) {
    encode(fixed_tokenizer(data[0]), input);
  } else if (data[0] <= 6) {
    std::vector<std::int32_t> ids;
    for (std::size_t i = 0; i + 1 < input.size(); i += 2) {
      ids.push_back(static_cast<unsigned char>(input[i]) | static_cast<signed char>(input[i + 1]) * 256);
    }
    decode(fixed_tokenizer(data[0]), ids, false);
  }
  return 0;
}
