// Decoding, piece by piece.
#include "text/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/utf8.h"
#include "text/byte_level.h"
#include "text/normalizer.h"

namespace windrow::text {
namespace {

std::optional<unsigned> hex_digit(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a') + 10;
  if (c >= 'A' && c <= 'F') return static_cast<unsigned>(c - 'A') + 10;
  return std::nullopt;
}

// The byte of a piece like <0x0A>.
std::optional<char> byte_piece(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece.back() != '>') return std::nullopt;
  const auto high = hex_digit(piece[3]), low = hex_digit(piece[4]);
  if (!high || !low) return std::nullopt;
  return static_cast<char>(*high << 4 | *low);
}

// The length of up to `most` copies of `character` at the end of `text`.
std::size_t trailing(std::string_view text, std::string_view character, std::size_t most) {
  std::size_t n = 0;
  while (most-- > 0 && text.substr(0, text.size() - n).ends_with(character)) n += character.size();
  return n;
}

void strip_piece(const Strip& strip, std::string& piece) {
  std::string_view rest = piece;
  for (std::size_t i = 0; i < strip.start && rest.starts_with(strip.character); i++) {
    rest.remove_prefix(strip.character.size());
  }
  rest.remove_suffix(trailing(rest, strip.character, strip.stop));
  piece = std::string(rest);
}

}  // namespace

DecoderChain DecoderChain::parse(Component& component) {
  DecoderChain chain;
  chain.between_.clear();
  chain.append(component);
  return chain;
}

void DecoderChain::append_piece_step(Component& component, PieceStep step) {
  if (fused_ || bytes_ != Bytes::kNone) {
    return component.fail_here(
        fmt::format("has type {} behind Fuse, ByteFallback or ByteLevel, which is not supported",
                    quote(component.type())));
  }
  piece_steps_.push_back(std::move(step));
}

void DecoderChain::append_strip(Component& component) {
  constexpr int kMost = 1 << 20;
  component.allow({"content", "start", "stop"});
  Strip strip;
  append_utf8(strip.character, component.require_char("content"));
  strip.start = static_cast<std::size_t>(component.require_int("start", 0, kMost));
  strip.stop = static_cast<std::size_t>(component.require_int("stop", 0, kMost));
  if (fused_) {
    strips_.push_back(std::move(strip));
  } else {
    append_piece_step(component, {Kind::kStrip, Pattern(), "", false, std::move(strip)});
  }
}

void DecoderChain::append(Component& component) {
  const std::string type = component.type();
  if (type == "Sequence") {
    component.allow({"decoders"});
    component.each("decoders", [this](Component& item) { append(item); });
  } else if (type == "Replace") {
    component.allow({"pattern", "content"});
    Pattern pattern = Pattern::parse(component, "pattern");
    append_piece_step(
        component, {Kind::kReplace, std::move(pattern), component.require_string("content"), false, Strip()});
  } else if (type == "Metaspace") {
    component.allow({"replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"});
    std::string replacement;
    append_utf8(replacement, component.require_char("replacement"));
    const bool add = component.bool_or("add_prefix_space", true);
    const bool drop = component.string_or("prepend_scheme", add ? "always" : "never") != "never";
    append_piece_step(component, {Kind::kMetaspace, Pattern::of_literal(replacement), " ", drop, Strip()});
  } else if (type == "Strip") {
    append_strip(component);
  } else if (type == "Fuse") {
    component.allow({});
    fused_ = true;
  } else if (type == "ByteFallback" || type == "ByteLevel") {
    if (fused_ || bytes_ != Bytes::kNone) {
      return component.fail_here(fmt::format(
          "has type {} behind Fuse, ByteFallback or ByteLevel, which is not supported", quote(type)));
    }
    const bool level = type == "ByteLevel";
    if (level) {
      component.allow({"add_prefix_space", "trim_offsets", "use_regex"});  // of the way to ids
    } else {
      component.allow({});
    }
    bytes_ = level ? Bytes::kByteLevel : Bytes::kFallback;
    fused_ = level;  // it joins all pieces
  } else {
    component.refuse_type(type);
  }
}

DecoderState::DecoderState(const DecoderChain& chain) : chain_(&chain), strips_(chain.strips_.size()) {}

Status DecoderState::push(std::string_view piece, std::string& out) {
  using Bytes = DecoderChain::Bytes;
  std::string text(piece);
  for (const auto& step : chain_->piece_steps_) {
    if (step.kind == DecoderChain::Kind::kStrip) {
      strip_piece(step.strip, text);
    } else {
      const bool drop = step.drop_first && pieces_ == 0;
      if (Status status = replace_all(step.pattern, drop ? "" : step.content, text); !status.ok())
        return status;
    }
  }
  std::string done;
  if (pieces_ > 0) done += chain_->between_;
  pieces_++;
  if (chain_->bytes_ == Bytes::kNone) {
    done += text;
  } else if (chain_->bytes_ == Bytes::kByteLevel) {
    append_bytes_of(text, bytes_);
    take_bytes(false, done);
  } else if (const auto byte = byte_piece(text)) {
    bytes_ += *byte;
    take_bytes(false, done);
  } else {
    take_bytes(true, done);
    done += text;
  }
  strip_whole(std::move(done), out);
  return Status();
}

// Moves from bytes_ to `out` what can't be the beginning of a character, all of it if no more comes.
void DecoderState::take_bytes(bool last, std::string& out) {
  std::size_t at = 0;
  while (at < bytes_.size()) {
    if (const std::size_t n = utf8_length(bytes_, at)) {
      out.append(bytes_, at, n);
      at += n;
      continue;
    }
    if (!last && utf8_cut_length(bytes_, at) > 0) break;
    out += kReplacementCharacter;
    at += chain_->bytes_ == DecoderChain::Bytes::kByteLevel ? utf8_bad_length(bytes_, at) : 1;
  }
  bytes_.erase(0, at);
}

void DecoderState::strip_whole(std::string text, std::string& out) {
  for (std::size_t i = 0; i < strips_.size(); i++) {
    const Strip& strip = chain_->strips_[i];
    StripState& state = strips_[i];
    std::string_view rest = text;
    while (!state.started && state.cut < strip.start && rest.starts_with(strip.character)) {
      rest.remove_prefix(strip.character.size());
      state.cut++;
    }
    state.started = state.started || !rest.empty();
    std::string whole = std::move(state.held);
    whole += rest;
    const std::size_t keep = whole.size() - trailing(whole, strip.character, strip.stop);
    state.held = whole.substr(keep);
    whole.resize(keep);
    text = std::move(whole);
  }
  out += text;
}

void DecoderState::finish(std::string& out) {
  std::string done;
  take_bytes(true, done);
  strip_whole(std::move(done), out);
  // What the first strip holds is what it cuts: it never reaches the next one.
  *this = DecoderState(*chain_);
}

}  // namespace windrow::text
