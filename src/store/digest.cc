#include "store/digest.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <xxhash.h>

#include "base/out_of_memory.h"

namespace windrow {
namespace {

EVP_MD_CTX* context_of(void* context) { return static_cast<EVP_MD_CTX*>(context); }
XXH3_state_t* state_of(void* state) { return static_cast<XXH3_state_t*>(state); }

}  // namespace

// After create() the calls on a context can fail no more: the digest is fetched and its state allocated.
Result<Sha256> Sha256::create() {
  Sha256 sha(EVP_MD_CTX_new());
  if (sha.context_ == nullptr ||
      EVP_DigestInit_ex(context_of(sha.context_.get()), EVP_sha256(), nullptr) != 1)
    return out_of_memory();
  return sha;
}
void Sha256::Free::operator()(void* context) const noexcept { EVP_MD_CTX_free(context_of(context)); }
void Sha256::reset() noexcept { (void)EVP_DigestInit_ex(context_of(context_.get()), nullptr, nullptr); }
void Sha256::update(std::span<const std::byte> bytes) noexcept {
  (void)EVP_DigestUpdate(context_of(context_.get()), bytes.data(), bytes.size());
}
Sha256Digest Sha256::finish() noexcept {
  Sha256Digest digest = {};
  (void)EVP_DigestFinal_ex(context_of(context_.get()), reinterpret_cast<unsigned char*>(digest.data()),
                           nullptr);
  return digest;
}

Result<Xxh3> Xxh3::create() {
  Xxh3 hash(XXH3_createState());
  if (hash.state_ == nullptr) return out_of_memory();
  hash.reset();
  return hash;
}
void Xxh3::Free::operator()(void* state) const noexcept { (void)XXH3_freeState(state_of(state)); }
void Xxh3::reset() noexcept { (void)XXH3_64bits_reset(state_of(state_.get())); }
void Xxh3::update(std::span<const std::byte> bytes) noexcept {
  (void)XXH3_64bits_update(state_of(state_.get()), bytes.data(), bytes.size());
}
std::uint64_t Xxh3::finish() const noexcept { return XXH3_64bits_digest(state_of(state_.get())); }

std::uint64_t xxh3(std::span<const std::byte> bytes) noexcept {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::string hex(const Sha256Digest& digest) {
  std::string digits;
  for (const std::byte b : digest) digits += fmt::format("{:02x}", std::to_integer<unsigned>(b));
  return digits;
}
std::string hex(std::uint64_t xxh3) { return fmt::format("{:016x}", xxh3); }

std::optional<std::uint64_t> xxh3_from_hex(std::string_view digits) noexcept {
  if (digits.size() != kXxh3Digits) return std::nullopt;
  std::uint64_t value = 0;
  for (const char c : digits) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return std::nullopt;
    value = value << 4 | static_cast<std::uint64_t>(digit);
  }
  return value;
}

}  // namespace windrow
