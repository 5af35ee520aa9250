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

class WINDROW_API Tokenizer {
 public:
  // Reads a tokenizer.json. What is not supported is refused by name, never ignored.
  static Result<Tokenizer> load(const std::string& path);
  static Result<Tokenizer> parse(std::string_view json);

  // O(n log n) in the text. With `special`, the post-processor's template is applied (bos, ...).
  // Text that is not UTF-8 is kInvalidArgument with the byte offset.
  Result<std::vector<std::int32_t>> encode(std::string_view text, bool special = true) const;
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
