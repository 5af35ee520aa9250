// Checksums of files and identities: XXH3 for accidents, SHA-256 for identity.
//
// Thread safety: free functions; a Sha256 or Xxh3 belongs to one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "windrow/status.h"

namespace windrow {

using Sha256Digest = std::array<std::byte, 32>;

// SHA-256 of bytes that come in pieces.
class Sha256 {
 public:
  static Result<Sha256> create();  // kResourceExhausted without memory
  // For the next text; what was put before is forgotten.
  void reset() noexcept;
  void update(std::span<const std::byte> bytes) noexcept;
  void update(std::string_view text) noexcept { update(std::as_bytes(std::span(text))); }
  Sha256Digest finish() noexcept;

 private:
  struct Free {
    void operator()(void* context) const noexcept;
  };
  explicit Sha256(void* context) noexcept : context_(context) {}
  std::unique_ptr<void, Free> context_;
};

// XXH3-64 with seed 0 of bytes that come in pieces.
class Xxh3 {
 public:
  static Result<Xxh3> create();  // kResourceExhausted without memory
  void reset() noexcept;
  void update(std::span<const std::byte> bytes) noexcept;
  std::uint64_t finish() const noexcept;

 private:
  struct Free {
    void operator()(void* state) const noexcept;
  };
  explicit Xxh3(void* state) noexcept : state_(state) {}
  std::unique_ptr<void, Free> state_;
};
std::uint64_t xxh3(std::span<const std::byte> bytes) noexcept;

inline constexpr std::size_t kSha256Digits = 64;
inline constexpr std::size_t kXxh3Digits = 16;

// Lower case hexadecimal digits, the most significant (the first byte of a digest) first; and back,
// from exactly kXxh3Digits of them.
std::string hex(const Sha256Digest& digest);
std::string hex(std::uint64_t xxh3);
std::optional<std::uint64_t> xxh3_from_hex(std::string_view digits) noexcept;

}  // namespace windrow
