// Session files made by hand: any header, with the checksums that belong to it, so that what lies behind the
// checksums is reached. For hostile files and for fuzzing.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "io/safetensors_format.h"
#include "store/session_layout.h"

namespace windrow::testing {

inline std::string with_length(std::string_view json) {
  std::string header;
  for (std::size_t i = 0; i < safetensors::kLengthBytes; i++)
    header += static_cast<char>(json.size() >> (8 * i) & 0xff);
  return header.append(json);
}

// The JSON text and the data of a file.
struct Split {
  std::string json, data;
};
inline Split split_file(const std::string& file) {
  const Result<std::size_t> length = safetensors::parse_length(std::as_bytes(std::span(file)), file.size());
  if (!length.ok()) return {};
  return {file.substr(safetensors::kLengthBytes, *length), file.substr(safetensors::kLengthBytes + *length)};
}

// A file of that header and data, with every checksum that it can have put in place: those of the tensors
// where the header is one of safetensors and has room for them.
inline std::string sealed(std::string json, std::string_view data) {
  const Result<safetensors::Header> parsed = safetensors::parse_header(json, data.size(), "sealed");
  std::string leaves;
  if (parsed.ok()) {
    Result<Sha256> leaf = Sha256::create();
    std::string sums;
    for (const safetensors::Entry& tensor : parsed->tensors) {
      const std::string_view bytes = data.substr(tensor.begin, tensor.end - tensor.begin);
      sums += hex(xxh3(std::as_bytes(std::span(bytes))));
      leaf->reset();
      leaf->update(bytes);
      const Sha256Digest digest = leaf->finish();
      leaves.append(reinterpret_cast<const char*>(digest.data()), digest.size());
    }
    constexpr std::string_view kKey = "\"checksums\":\"";
    const std::size_t at = json.find(kKey);
    const std::size_t end = at == std::string::npos ? at : json.find('"', at + kKey.size());
    if (end != std::string::npos && end - at - kKey.size() == sums.size())
      json.replace(at + kKey.size(), sums.size(), sums);
  }
  std::string header = with_length(json);
  const std::optional<session::SealPlaces> places = session::seal_places(header);
  if (!places) return header.append(data);
  header = session::blanked(std::move(header), *places);
  Result<Sha256> all = Sha256::create();
  all->update(std::string_view(header));
  all->update(std::string_view(leaves));
  session::seal(header, all->finish());
  return header.append(data);
}

}  // namespace windrow::testing
