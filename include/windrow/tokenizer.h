// Text <-> token ids, from a Hugging Face tokenizer.json (BPE models).
//
// Limits: a file of 256 MiB, a text (also after normalization) of 16 MiB, ids below 2^21, an added
// token of 1024 bytes; beyond them kResourceExhausted or kCorrupt names the limit, as does a regular
// expression that needs more steps than 16 a byte plus 10,000 at one place.
// Regular expressions are Oniguruma's, run by PCRE2; a construct whose meaning differs is refused.
// Holes in the ids are legal, decoding one is refused. A byte-fallback piece that is not part of valid
// UTF-8 decodes to U+FFFD, one for each byte.
//
// Thread safety: a loaded Tokenizer is immutable; a Decoder belongs to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "windrow/export.h"
#include "windrow/status.h"

namespace windrow {

// A piece of a text, and whether control tokens in it are meant.
struct TextSegment {
  std::string text;
  bool plain = true;  // from a user, a document, a tool: nothing in it is a control token
};

class WINDROW_API Tokenizer {
 public:
  // Reads a tokenizer.json. What is not supported is refused by name, never ignored.
  static Result<Tokenizer> load(const std::string& path);
  static Result<Tokenizer> parse(std::string_view json);

  // O(n log n) in the text. With `special`, the post-processor's template is applied (bos, ...).
  // Text that is not UTF-8 is kInvalidArgument with the byte offset.
  Result<std::vector<std::int32_t>> encode(std::string_view text, bool special = true) const;
  // The text of all segments in a row, without the post-processor, where no byte of a plain segment
  // becomes part of a control token: it is encoded in other pieces, as if the vocabulary lacked the token.
  // All else is as encode() of the whole text: words and merges don't see where segments meet. Control
  // tokens are the special added tokens, and other added tokens that stand in `markup` (a chat template's
  // source) and look like markup: of 3 bytes or more, with an ASCII punctuation sign.
  // Where the text normalization of the file makes a control token of plain text, it is none either.
  Result<std::vector<std::int32_t>> encode_segments(std::span<const TextSegment> segments,
                                                    std::string_view markup = {}) const;
  // Special tokens are skipped unless `keep_special`. An id outside the vocabulary is
  // kInvalidArgument.
  Result<std::string> decode(std::span<const std::int32_t> ids, bool keep_special = false) const;

  int vocab_size() const noexcept;  // 1 + the largest id
  std::optional<std::int32_t> id_of(std::string_view token) const;
  std::optional<std::string_view> token_of(std::int32_t id) const;
  bool is_special(std::int32_t id) const noexcept;

  // Incremental decoding: push() returns the text that became final with this id, which may be
  // empty, and never ends inside a UTF-8 character; finish() returns what was held back. All
  // pieces together equal decode() of all ids.
  class WINDROW_API Decoder {
   public:
    explicit Decoder(const Tokenizer& tokenizer);
    Decoder(Decoder&&) noexcept;
    Decoder& operator=(Decoder&&) noexcept;
    ~Decoder();
    Result<std::string> push(std::int32_t id);
    std::string finish();

   private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
  };

 private:
  struct Impl;
  explicit Tokenizer(std::shared_ptr<const Impl> impl) noexcept;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace windrow
