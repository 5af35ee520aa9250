// Any bytes as a model.safetensors.index.json: refused, or plain shard names.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto map = windrow::parse_safetensors_index({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!map.ok()) return 0;
  for (const auto& [tensor, shard] : *map) {
    const bool plain = !shard.empty() && shard != "." && shard != ".." && shard.find('/') == shard.npos &&
                       shard.find('\0') == shard.npos;
    if (!plain) std::abort();
  }
  return 0;
}
