#include "model/convert_files.h"

#include <fmt/format.h>

#include "base/json.h"

namespace windrow {

std::string ConvertedFiles::name(std::size_t file) const {
  if (files_.size() == 1) return "model.safetensors";
  return fmt::format("model-{:05}-of-{:05}.safetensors", file + 1, files_.size());
}

Status ConvertedFiles::next_tensor() {
  if (stream_ && left_ > 0) {
    left_--;
    return {};
  }
  if (Status s = finish_file(); !s.ok()) return s;
  Result<TensorStream> stream =
      TensorStream::create(folder_ + "/" + name(file_), files_[file_], {{"format", "mlx"}});
  if (!stream.ok()) return stream.status();
  stream_.emplace(std::move(*stream));
  left_ = files_[file_++].size() - 1;
  return {};
}

Status ConvertedFiles::append(std::span<const std::byte> bytes) {
  if (options_.cancel != nullptr && options_.cancel->load())
    return {StatusCode::kFailedPrecondition, "cancelled, nothing is written"};
  if (Status s = stream_->append(bytes); !s.ok()) return s;
  done_ += bytes.size();
  if (options_.progress) options_.progress(done_, total_);
  return {};
}

Status ConvertedFiles::finish_file() {
  if (!stream_) return {};
  Status s = stream_->finish();
  stream_.reset();
  return s;
}

Status ConvertedFiles::finish(std::size_t parameters) {
  if (Status s = finish_file(); !s.ok() || files_.size() == 1) return s;
  Json map = Json::object();
  for (std::size_t f = 0; f < files_.size(); f++) {
    for (const TensorInfo& t : files_[f]) map[t.name] = name(f);
  }
  const Json index = {{"metadata", {{"total_size", total_}, {"total_parameters", parameters}}},
                      {"weight_map", std::move(map)}};
  return write_text("model.safetensors.index.json", index.dump(4));
}

Status ConvertedFiles::write_text(const std::string& file, const std::string& text) const {
  const std::span<const std::byte> part = std::as_bytes(std::span(text));
  return write_atomically(folder_ + "/" + file, {&part, 1}, system_file_ops());
}

}  // namespace windrow
