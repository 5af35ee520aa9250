// Element types of tensors and the rounding between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "windrow/export.h"

namespace windrow {

enum class DType : std::uint8_t {
  kF32,
  kF16,
  kBF16,
  kF64,
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kU64,
  kI64,
  kBool
};

// Bytes of one element.
WINDROW_API std::size_t dtype_size(DType dtype) noexcept;

// The name used in safetensors files ("F32", "BF16", "BOOL", ...) and back.
WINDROW_API std::string_view dtype_name(DType dtype) noexcept;
WINDROW_API std::optional<DType> dtype_from_name(std::string_view name) noexcept;

// f32, f16 or bf16: the types of weights, activations and plain storage.
constexpr bool is_float(DType dtype) noexcept {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

}  // namespace windrow
