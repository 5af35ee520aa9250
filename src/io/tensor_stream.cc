#include "io/tensor_stream.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/checked.h"
#include "base/json.h"
#include "io/safetensors_format.h"

namespace windrow {

using namespace safetensors;  // NOLINT: the format's constants

Result<TensorStream> TensorStream::create(const std::string& path, const std::string& name, DType dtype,
                                          const std::vector<std::size_t>& shape, FileOps& ops) try {
  const std::optional<std::size_t> total = shape_bytes(shape, dtype);
  if (!total || shape.size() > kMaxRank || name == kMetadataKey) {
    return Status(StatusCode::kInvalidArgument, fmt::format("{}: tensor {}: shape {} of {} can't be written",
                                                            path, quote(name), shape, dtype_name(dtype)));
  }
  const Json entry = {
      {"dtype", dtype_name(dtype)}, {"shape", shape}, {"data_offsets", {std::size_t{0}, *total}}};
  std::string header = fmt::format("{{{}:{}}}", Json(name).dump(), entry.dump());
  header.resize(round_up(header.size(), 8), ' ');
  std::byte length[kLengthBytes];
  for (std::size_t i = 0; i < kLengthBytes; i++) length[i] = static_cast<std::byte>(header.size() >> (8 * i));

  Result<AtomicFile> file = AtomicFile::create(path, ops);
  if (!file.ok()) return file.status();
  if (Status s = file->append(length); !s.ok()) return s;
  if (Status s = file->append(std::as_bytes(std::span(header))); !s.ok()) return s;
  return TensorStream(std::move(*file), path, *total);
} catch (const Json::exception&) {
  return Status(StatusCode::kInvalidArgument, path + ": the tensor's name is not valid UTF-8");
}

Status TensorStream::append(std::span<const std::byte> bytes) {
  if (bytes.size() > total_ - done_) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{}: {} bytes appended to {} of {}", path_, bytes.size(), done_, total_));
  }
  done_ += bytes.size();
  return file_.append(bytes);
}

Status TensorStream::finish() {
  if (done_ != total_) {
    return Status(StatusCode::kFailedPrecondition,
                  fmt::format("{}: {} bytes of {} were written", path_, done_, total_));
  }
  return file_.commit();
}

}  // namespace windrow
