#include "io/tensor_stream.h"

#include <fmt/format.h>

#include <new>

#include "io/safetensors_format.h"

namespace windrow {

Result<TensorStream> TensorStream::create(const std::string& path, std::span<const TensorInfo> tensors,
                                          const std::map<std::string, std::string>& metadata,
                                          FileOps& ops) try {
  const Result<safetensors::FileHead> head = safetensors::file_head(tensors, metadata);
  if (!head.ok()) return head.status().with_context(path);
  Result<AtomicFile> file = AtomicFile::create(path, ops);
  if (!file.ok()) return file.status();
  if (Status s = file->append(std::as_bytes(std::span(head->text))); !s.ok()) return s;
  return TensorStream(std::move(*file), path, head->data_bytes);
} catch (const std::bad_alloc&) {
  return Status(StatusCode::kResourceExhausted, path + ": out of memory while writing");
}

Result<TensorStream> TensorStream::create(const std::string& path, const std::string& name, DType dtype,
                                          const std::vector<std::size_t>& shape, FileOps& ops) {
  const TensorInfo info{name, dtype, shape};
  return create(path, std::span(&info, 1), {}, ops);
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
