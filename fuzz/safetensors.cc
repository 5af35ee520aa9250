// Any bytes as a safetensors file: refused, or tensors that tile the data.
#include "io/safetensors.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

using windrow::Result;
using windrow::SafetensorsFile;
using windrow::TensorView;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  const Result<SafetensorsFile> file = SafetensorsFile::parse(bytes, "fuzz");
  if (!file.ok()) return 0;
  std::size_t total = 0;
  unsigned sum = 0;
  for (const TensorView& tensor : file->tensors()) {
    std::size_t elements = 1;
    for (const std::size_t dim : tensor.shape) elements *= dim;
    if (elements != tensor.elements()) std::abort();
    if (file->find(tensor.name) != &tensor) std::abort();
    for (const std::byte b : tensor.bytes) sum += std::to_integer<unsigned>(b);  // ASan sees every read
    total += tensor.bytes.size();
  }
  unsigned expected = 0;
  for (const std::byte b : bytes.last(total)) expected += std::to_integer<unsigned>(b);
  if (sum != expected) std::abort();
  return 0;
}
