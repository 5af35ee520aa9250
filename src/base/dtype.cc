#include "windrow/dtype.h"

#include <array>

namespace windrow {
namespace {

struct Row {
  DType dtype;
  std::size_t size;
  std::string_view name;
};

constexpr std::array<Row, 13> kTypes = {{{DType::kF32, 4, "F32"},
                                         {DType::kF16, 2, "F16"},
                                         {DType::kBF16, 2, "BF16"},
                                         {DType::kF64, 8, "F64"},
                                         {DType::kU8, 1, "U8"},
                                         {DType::kI8, 1, "I8"},
                                         {DType::kU16, 2, "U16"},
                                         {DType::kI16, 2, "I16"},
                                         {DType::kU32, 4, "U32"},
                                         {DType::kI32, 4, "I32"},
                                         {DType::kU64, 8, "U64"},
                                         {DType::kI64, 8, "I64"},
                                         {DType::kBool, 1, "BOOL"}}};

const Row& row(DType dtype) noexcept { return kTypes[static_cast<std::size_t>(dtype)]; }

}  // namespace

std::size_t dtype_size(DType dtype) noexcept { return row(dtype).size; }
std::string_view dtype_name(DType dtype) noexcept { return row(dtype).name; }

std::optional<DType> dtype_from_name(std::string_view name) noexcept {
  for (const Row& r : kTypes) {
    if (r.name == name) return r.dtype;
  }
  return std::nullopt;
}

}  // namespace windrow
