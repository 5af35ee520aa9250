// Codec: names, limits and their messages.
#include "windrow/codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

namespace windrow {
namespace {

constexpr int kMinHeadDim = 16;
constexpr int kMaxHeadDim = 1024;
constexpr int kDefaultGroup = 64;

constexpr bool affine_bits_ok(int bits) { return (bits >= 2 && bits <= 6) || bits == 8; }
constexpr bool group_ok(int group) { return group == 32 || group == 64 || group == 128; }

struct FloatName {
  std::string_view name;
  DType dtype;
};
constexpr std::array<FloatName, 3> kFloats = {
    {{"f32", DType::kF32}, {"f16", DType::kF16}, {"bf16", DType::kBF16}}};

std::optional<DType> float_from_name(std::string_view name) {
  for (const FloatName& f : kFloats) {
    if (f.name == name) return f.dtype;
  }
  return std::nullopt;
}

std::string_view float_name(DType dtype) {
  for (const FloatName& f : kFloats) {
    if (f.dtype == dtype) return f.name;
  }
  return dtype_name(dtype);
}

// The text as a message may show it: one line, printable, of bounded length.
std::string quoted(std::string_view text) {
  constexpr std::size_t kShown = 32;
  std::string out = "\"";
  for (const char c : text.substr(0, kShown)) {
    if (c == '"' || c == '\\') out += '\\';
    if (c >= ' ' && c <= '~') {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  if (text.size() > kShown) return out + fmt::format("...\" ({} bytes)", text.size());
  return out + "\"";
}

// 1 to 3 digits, no sign, no leading zero: enough for every number of a codec's name.
std::optional<int> small_number(std::string_view text) {
  if (text.empty() || text.size() > 3 || text[0] == '0') return std::nullopt;
  int n = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    n = 10 * n + (c - '0');
  }
  return n;
}

Status parse_error(std::string_view text, std::string_view what) {
  return Status(StatusCode::kInvalidArgument, fmt::format("codec {}: {}", quoted(text), what));
}

constexpr std::string_view kBitsRule = "affine bits are 2, 3, 4, 5, 6 or 8";
constexpr std::string_view kGroupRule = "the group is 32, 64 or 128";
constexpr std::string_view kInputRule = "the input type is f32, f16 or bf16";

}  // namespace

bool Codec::valid() const noexcept {
  if (is_affine()) return affine_bits_ok(bits_) && group_ok(group_) && is_float(input_);
  return true;  // only the three factories make a plain one
}

Result<Codec> Codec::parse(std::string_view text) {
  if (const auto plain = float_from_name(text)) {
    if (*plain == DType::kF32) return f32();
    return *plain == DType::kF16 ? f16() : bf16();
  }
  if (text.empty() || text[0] != 'q') {
    return parse_error(text, "expected f32, f16, bf16, qBITS, qBITS:GROUP or qBITS:GROUP:INPUT, lower case");
  }
  std::string_view rest = text.substr(1);
  const auto next_field = [&rest]() -> std::optional<std::string_view> {
    if (rest.data() == nullptr) return std::nullopt;
    const std::size_t colon = rest.find(':');
    const std::string_view field = rest.substr(0, colon);
    rest = colon == std::string_view::npos ? std::string_view() : rest.substr(colon + 1);
    return field;
  };
  const auto bits = small_number(next_field().value_or(""));
  if (!bits || !affine_bits_ok(*bits)) return parse_error(text, kBitsRule);
  int group = kDefaultGroup;
  if (const auto field = next_field()) {
    const auto n = small_number(*field);
    if (!n || !group_ok(*n)) return parse_error(text, kGroupRule);
    group = *n;
  }
  DType input = DType::kBF16;
  if (const auto field = next_field()) {
    const auto dtype = float_from_name(*field);
    if (!dtype) return parse_error(text, kInputRule);
    input = *dtype;
  }
  if (next_field()) return parse_error(text, "nothing follows the input type");
  return affine(*bits, group, input);
}

std::string Codec::to_string() const {
  if (!is_affine()) return std::string(float_name(input_));
  if (input_ == DType::kBF16) return fmt::format("q{}:{}", bits_, group_);
  return fmt::format("q{}:{}:{}", bits_, group_, float_name(input_));
}

Status Codec::check(int head_dim) const {
  const auto error = [this](std::string_view what) {
    return Status(StatusCode::kInvalidArgument, fmt::format("codec {}: {}", to_string(), what));
  };
  if (is_affine() && !affine_bits_ok(bits_)) return error(kBitsRule);
  if (is_affine() && !group_ok(group_)) return error(kGroupRule);
  if (is_affine() && !is_float(input_)) return error(kInputRule);
  if (head_dim < kMinHeadDim || head_dim > kMaxHeadDim) {
    return error(fmt::format("head_dim {}, expected {} to {}", head_dim, kMinHeadDim, kMaxHeadDim));
  }
  const int unit = is_affine() ? group_ : kMinHeadDim;
  if (head_dim % unit != 0) {
    return error(fmt::format("head_dim {} is not a multiple of {}{}", head_dim, unit,
                             is_affine() ? ", the group" : ""));
  }
  return Status();
}

}  // namespace windrow
