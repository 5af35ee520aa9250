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
namespace safetensors {
namespace {

Status check(std::span<const TensorInfo> tensors, std::size_t& total) {
  if (tensors.size() > kMaxTensors) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{} tensors, the limit is {}", tensors.size(), kMaxTensors));
  }
  std::set<std::string_view> names;
  total = 0;
  for (const TensorInfo& tensor : tensors) {
    const auto invalid = [&](const std::string& what) {
      return Status(StatusCode::kInvalidArgument, fmt::format("tensor {}: {}", quote(tensor.name), what));
    };
    if (tensor.name == kMetadataKey) return invalid("the name is reserved");
    if (!names.insert(tensor.name).second) return invalid("the name is given twice");
    if (tensor.shape.size() > kMaxRank) {
      return invalid(fmt::format("{} dimensions, the limit is {}", tensor.shape.size(), kMaxRank));
    }
    const std::optional<std::size_t> bytes = shape_bytes(tensor.shape, tensor.dtype);
    if (!bytes)
      return invalid(fmt::format("shape {} of {} overflows", tensor.shape, dtype_name(tensor.dtype)));
    const std::optional<std::size_t> sum = checked_add(total, *bytes);
    if (!sum) return invalid("the file's size overflows");
    total = *sum;
  }
  return Status();
}

// Json keeps keys sorted, so the members are joined by hand: a reader sees the tensors in file order.
std::string header_json(std::span<const TensorInfo> tensors,
                        const std::map<std::string, std::string>& metadata) {
  std::vector<std::string> members;
  if (!metadata.empty()) members.push_back(fmt::format("\"{}\":{}", kMetadataKey, Json(metadata).dump()));
  std::size_t begin = 0;
  for (const TensorInfo& tensor : tensors) {
    const std::size_t end = begin + shape_bytes(tensor.shape, tensor.dtype).value_or(0);
    const Json entry = {
        {"dtype", dtype_name(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
    members.push_back(Json(tensor.name).dump() + ":" + entry.dump());
    begin = end;
  }
  std::string text = fmt::format("{{{}}}", fmt::join(members, ","));
  text.resize(round_up(text.size(), 8), ' ');
  return text;
}

}  // namespace

Result<FileHead> file_head(std::span<const TensorInfo> tensors,
                           const std::map<std::string, std::string>& metadata) try {
  FileHead head;
  if (const Status s = check(tensors, head.data_bytes); !s.ok()) return s;
  const std::string header = header_json(tensors, metadata);
  if (header.size() > kMaxHeaderBytes) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("a header of {} bytes, the limit is {}", header.size(), kMaxHeaderBytes));
  }
  for (std::size_t i = 0; i < kLengthBytes; i++)
    head.text += static_cast<char>(static_cast<unsigned char>(header.size() >> (8 * i)));
  head.text += header;
  return head;
} catch (const Json::exception&) {
  return Status(StatusCode::kInvalidArgument, "a name or the metadata is not valid UTF-8");
}

}  // namespace safetensors

Status write_safetensors(const std::string& path, std::span<const TensorView> tensors,
                         const std::map<std::string, std::string>& metadata, FileOps& ops) {
  try {
    std::vector<TensorInfo> infos;
    for (const TensorView& tensor : tensors) infos.push_back({tensor.name, tensor.dtype, tensor.shape});
    const Result<safetensors::FileHead> head = safetensors::file_head(infos, metadata);
    if (!head.ok()) return head.status().with_context(path);
    std::vector<std::span<const std::byte>> parts = {std::as_bytes(std::span(head->text))};
    for (const TensorView& tensor : tensors) {
      const std::size_t expected = *safetensors::shape_bytes(tensor.shape, tensor.dtype);
      if (tensor.bytes.size() != expected) {
        return Status(
            StatusCode::kInvalidArgument,
            fmt::format("{}: tensor {}: {} bytes for shape {} of {}, expected {}", path, quote(tensor.name),
                        tensor.bytes.size(), tensor.shape, dtype_name(tensor.dtype), expected));
      }
      parts.push_back(tensor.bytes);
    }
    return write_atomically(path, parts, ops);
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kResourceExhausted, path + ": out of memory while writing");
  }
}

}  // namespace windrow
