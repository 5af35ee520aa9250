// MlxArray <-> records, one position of one head at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "windrow/mlx.h"

namespace windrow::mlx {

// What one side (keys or values) of a cache looks like.
struct Shape {
  std::size_t batch = 1, heads = 1, slots = 0;
  int dim = 0;

  std::size_t at(std::size_t b, std::size_t h, std::size_t slot) const {
    return (b * heads + h) * slots + slot;
  }
};

// kOk when `array` has the sizes of its codec and the shape.
Status check_array(const std::string& name, const MlxArray& array, const Shape& shape);
// kOk when arrays of codec `from` can be written as `to`: equal, from plain numbers or to plain numbers.
Status check_conversion(const std::string& name, const Codec& from, const Codec& to);

// Vector number `at` of the array as a record of `codec`. REQUIRES both checks.
void read_vector(const MlxArray& array, int dim, std::size_t at, const Codec& codec,
                 std::span<std::uint32_t> words, std::span<std::uint32_t> params);

// An array to be filled, zeros at first.
class ArrayWriter {
 public:
  // Throws bad_alloc. kInvalidArgument for sizes that overflow.
  static Result<ArrayWriter> create(const std::string& name, const Codec& codec, const Shape& shape);

  // A record of `codec` as vector number `at`. REQUIRES check_conversion(codec, the array's).
  void write(std::size_t at, const Codec& codec, std::span<const std::uint32_t> words,
             std::span<const std::uint32_t> params);
  MlxArray finish() &&;

 private:
  struct Bytes {
    std::vector<std::byte> data, scales, biases;
  };
  Codec codec_;
  int dim_ = 0;
  std::shared_ptr<Bytes> bytes_;
};

}  // namespace windrow::mlx
