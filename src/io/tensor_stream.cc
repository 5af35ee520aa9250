#include "io/tensor_stream.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <new>

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
  const Entry entry{name, dtype, shape, 0, *total};
  const Result<std::string> header = make_header({&entry, 1}, {});
  if (!header.ok()) return header.status().with_context(path);
  Result<AtomicFile> file = AtomicFile::create(path, ops);
  if (!file.ok()) return file.status();
  if (Status s = file->append(std::as_bytes(std::span(*header))); !s.ok()) return s;
  return TensorStream(std::move(*file), path, *total);
} catch (const std::bad_alloc&) {
  return Status(StatusCode::kResourceExhausted, path + ": out of memory while writing the header");
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
