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

std::string header_json(std::span<const TensorView> tensors,
                        const std::map<std::string, std::string>& metadata) {
  // Json keeps keys sorted, so the members are joined by hand: a reader sees the tensors in file order.
  std::vector<std::string> members;
  if (!metadata.empty()) members.push_back(fmt::format("\"{}\":{}", kMetadataKey, Json(metadata).dump()));
  std::size_t begin = 0;
  for (const TensorView& tensor : tensors) {
    const std::size_t end = begin + tensor.bytes.size();
    const Json entry = {
        {"dtype", dtype_name(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
    members.push_back(Json(tensor.name).dump() + ":" + entry.dump());
    begin = end;
  }
  std::string text = fmt::format("{{{}}}", fmt::join(members, ","));
  text.resize(round_up(text.size(), 8), ' ');
  return text;
}

Status check_writable(std::span<const TensorView> tensors) {
  if (tensors.size() > kMaxTensors) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{} tensors, the limit is {}", tensors.size(), kMaxTensors));
  }
  std::set<std::string_view> names;
  std::size_t total = 0;
  for (const TensorView& tensor : tensors) {
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
    if (*expected != tensor.bytes.size()) {
      return invalid(fmt::format("{} bytes for {}, expected {}", tensor.bytes.size(), kind, *expected));
    }
    const std::optional<std::size_t> sum = checked_add(total, *expected);
    if (!sum) return invalid("the file's size overflows");
    total = *sum;
  }
  return Status();
}

}  // namespace

Status write_safetensors(const std::string& path, std::span<const TensorView> tensors,
                         const std::map<std::string, std::string>& metadata, FileOps& ops) {
  if (const Status s = check_writable(tensors); !s.ok()) return s.with_context(path);
  try {
    const std::string header = header_json(tensors, metadata);
    if (header.size() > kMaxHeaderBytes) {
      return Status(StatusCode::kInvalidArgument, fmt::format("{}: a header of {} bytes, the limit is {}",
                                                              path, header.size(), kMaxHeaderBytes));
    }
    std::byte length[kLengthBytes];
    for (std::size_t i = 0; i < kLengthBytes; i++)
      length[i] = static_cast<std::byte>(header.size() >> (8 * i));
    std::vector<std::span<const std::byte>> parts = {length, std::as_bytes(std::span(header))};
    for (const TensorView& tensor : tensors) parts.push_back(tensor.bytes);
    return write_atomically(path, parts, ops);
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kResourceExhausted, path + ": out of memory while writing");
  } catch (const Json::exception&) {
    return Status(StatusCode::kInvalidArgument, path + ": a name or the metadata is not valid UTF-8");
  }
}

}  // namespace windrow
