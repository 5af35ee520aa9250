// The "decoder" of tokenizer.json: pieces back to text, one at a time.
//
// What it may be: per piece any of Replace, Strip, Metaspace; then ByteFallback or ByteLevel, which
// turn bytes into characters; then Fuse; then Strip, of the whole text. null puts a space between
// pieces. Other types and orders are refused by name.
//
// Bytes that are no UTF-8: ByteLevel writes one U+FFFD for each longest beginning of a character
// (Unicode's "maximal subpart", what Hugging Face's lossy conversion does). ByteFallback writes one
// U+FFFD for each byte that belongs to no character. Hugging Face there gives up all characters of an
// uninterrupted run of byte pieces as soon as one of its bytes is bad; that can't be said before the
// run ends, so it would hold back text without bound, and it loses good characters.
//
// Thread safety: a DecoderChain is immutable after parse; a DecoderState belongs to one thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/component.h"
#include "text/regex.h"
#include "windrow/status.h"

namespace windrow::text {

// Cuts up to `start` of `character` off the beginning and up to `stop` off the end.
struct Strip {
  std::string character;
  std::size_t start = 0;
  std::size_t stop = 0;
};

class DecoderState;

class DecoderChain {
 public:
  DecoderChain() : between_(" ") {}  // of "decoder": null
  // Errors go to the component.
  static DecoderChain parse(Component& component);

 private:
  friend class DecoderState;
  enum class Kind { kReplace, kStrip, kMetaspace };
  enum class Bytes { kNone, kFallback, kByteLevel };
  struct PieceStep {
    Kind kind;
    Pattern pattern;          // of Replace; of Metaspace: what stands for a space
    std::string content;      // of Replace and Metaspace: what the matches become
    bool drop_first = false;  // of Metaspace: in the first piece they become nothing
    Strip strip;
  };
  void append(Component& component);
  void append_piece_step(Component& component, PieceStep step);
  void append_strip(Component& component);

  std::vector<PieceStep> piece_steps_;
  Bytes bytes_ = Bytes::kNone;
  bool fused_ = false;
  std::vector<Strip> strips_;
  std::string between_;  // pieces
};

class DecoderState {
 public:
  explicit DecoderState(const DecoderChain& chain);  // which must outlive it
  // Appends to `out` what became final with this piece. After an error nothing has changed.
  Status push(std::string_view piece, std::string& out);
  // Appends what was held back; the state is as new.
  void finish(std::string& out);

 private:
  struct StripState {
    std::size_t cut = 0;   // characters cut off the beginning
    bool started = false;  // text has come that is not cut
    std::string held;      // may be the end that is cut
  };
  void take_bytes(bool last, std::string& out);
  void strip_whole(std::string text, std::string& out);

  const DecoderChain* chain_;
  std::size_t pieces_ = 0;
  std::string bytes_;  // the beginning of a character
  std::vector<StripState> strips_;
};

}  // namespace windrow::text
