// A reader for our own golden files, for as long as the library's is not merged.
#pragma once

#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace windrow::testing {

struct TinyTensor {
  std::string dtype;
  std::vector<std::size_t> shape;
  std::vector<std::uint8_t> bytes;
};

inline std::map<std::string, TinyTensor> read_tiny_safetensors(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::vector<std::uint8_t> all((std::istreambuf_iterator<char>(in)), {});
  std::size_t header = 0;
  for (std::size_t i = 0; i < 8; i++) header |= static_cast<std::size_t>(all.at(i)) << (8 * i);
  const auto json = nlohmann::json::parse(all.begin() + 8, all.begin() + 8 + static_cast<long>(header));
  std::map<std::string, TinyTensor> tensors;
  for (const auto& [name, info] : json.items()) {
    if (name == "__metadata__") continue;
    const long begin = info["data_offsets"][0].get<long>(), end = info["data_offsets"][1].get<long>();
    const auto data = all.begin() + 8 + static_cast<long>(header);
    tensors[name] = {info["dtype"].get<std::string>(), info["shape"].get<std::vector<std::size_t>>(),
                     std::vector<std::uint8_t>(data + begin, data + end)};
  }
  return tensors;
}

}  // namespace windrow::testing
