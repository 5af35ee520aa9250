// The safetensors writer.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <new>
#include <set>

#include "base/checked.h"
#include "base/json.h"
#include "io/safetensors.h"
#include "io/safetensors_format.h"

namespace windrow {

using namespace safetensors;  // NOLINT: the format's constants

namespace {

// The entries of tensors one after another; the sizes of shapes and bytes must agree.
Result<std::vector<Entry>> place(std::span<const TensorView> tensors) {
  std::vector<Entry> entries;
  entries.reserve(tensors.size());
  std::size_t total = 0;
  for (const TensorView& tensor : tensors) {
    const std::optional<std::size_t> sum = checked_add(total, tensor.bytes.size());
    if (!sum)
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("tensor {}: the file's size overflows", quote(tensor.name)));
    entries.push_back({tensor.name, tensor.dtype, tensor.shape, total, *sum});
    total = *sum;
  }
  return entries;
}

Status check_writable(std::span<const Entry> tensors) {
  if (tensors.size() > kMaxTensors) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{} tensors, the limit is {}", tensors.size(), kMaxTensors));
  }
  std::set<std::string_view> names;
  for (const Entry& tensor : tensors) {
    const auto invalid = [&](const std::string& what) {
      return Status(StatusCode::kInvalidArgument, fmt::format("tensor {}: {}", quote(tensor.name), what));
    };
    if (tensor.name == kMetadataKey) return invalid("the name is reserved");
    if (!names.insert(tensor.name).second) return invalid("the name is given twice");
    if (tensor.shape.size() > kMaxRank) {
      return invalid(fmt::format("{} dimensions, the limit is {}", tensor.shape.size(), kMaxRank));
    }
    const std::optional<std::size_t> expected = shape_bytes(tensor.shape, tensor.dtype);
    const std::string kind = fmt::format("shape {} of {}", tensor.shape, dtype_name(tensor.dtype));
    if (!expected) return invalid(kind + " overflows");
    if (*expected != tensor.end - tensor.begin) {
      return invalid(fmt::format("{} bytes for {}, expected {}", tensor.end - tensor.begin, kind, *expected));
    }
  }
  return Status();
}

}  // namespace

Result<std::string> safetensors::make_header(std::span<const Entry> tensors,
                                             std::span<const MetadataItem> metadata) try {
  if (const Status s = check_writable(tensors); !s.ok()) return s;
  std::vector<std::string> members, items;
  for (const auto& [key, value] : metadata) items.push_back(json_string(key) + ':' + json_string(value));
  if (!items.empty()) members.push_back(fmt::format("\"{}\":{{{}}}", kMetadataKey, fmt::join(items, ",")));
  for (const Entry& tensor : tensors) {
    members.push_back(fmt::format("{}:{{\"data_offsets\":[{},{}],\"dtype\":\"{}\",\"shape\":[{}]}}",
                                  json_string(tensor.name), tensor.begin, tensor.end,
                                  dtype_name(tensor.dtype), fmt::join(tensor.shape, ",")));
  }
  std::string text = fmt::format("{{{}}}", fmt::join(members, ","));
  text.resize(round_up(text.size(), 8), ' ');
  if (text.size() > kMaxHeaderBytes) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("a header of {} bytes, the limit is {}", text.size(), kMaxHeaderBytes));
  }
  std::string length;
  for (std::size_t i = 0; i < kLengthBytes; i++) length += static_cast<char>(text.size() >> (8 * i) & 0xff);
  return length + text;
} catch (const Json::exception&) {
  return Status(StatusCode::kInvalidArgument, "a name or the metadata is not valid UTF-8");
}

Status write_safetensors(const std::string& path, std::span<const TensorView> tensors,
                         const std::map<std::string, std::string>& metadata, FileOps& ops) try {
  const Result<std::vector<Entry>> entries = place(tensors);
  if (!entries.ok()) return entries.status().with_context(path);
  const std::vector<MetadataItem> items(metadata.begin(), metadata.end());
  const Result<std::string> header = make_header(*entries, items);
  if (!header.ok()) return header.status().with_context(path);
  std::vector<std::span<const std::byte>> parts = {std::as_bytes(std::span(*header))};
  for (const TensorView& tensor : tensors) parts.push_back(tensor.bytes);
  return write_atomically(path, parts, ops);
} catch (const std::bad_alloc&) {
  return Status(StatusCode::kResourceExhausted, path + ": out of memory while writing");
}

}  // namespace windrow
