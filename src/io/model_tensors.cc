// The tensors of a model folder: one safetensors file, or the shards of an index.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/json.h"
#include "io/safetensors.h"
#include "io/tensor_index.h"

namespace windrow {
namespace {

// 140,000 tensors (the largest published checkpoints) of 150 bytes each make 21 MB.
constexpr std::size_t kMaxIndexBytes = 100'000'000;
constexpr int kMaxIndexDepth = 16;  // `metadata` is free form; the map itself needs 2

// Why `shard` may not name a file of the model folder; nullptr if it may.
const char* bad_shard_name(std::string_view shard) {
  if (shard.empty()) return "is empty";
  if (shard.find('\0') != shard.npos) return "holds a NUL byte";
  if (shard.find('/') != shard.npos)
    return "holds a '/', expected the plain name of a file in the model folder";
  if (shard == "." || shard == "..") return "is no file name";
  return nullptr;
}

}  // namespace

Result<std::map<std::string, std::string>> parse_safetensors_index(std::string_view text,
                                                                   const std::string& name) {
  const Result<Json> json =
      parse_json(text, name, {.max_bytes = kMaxIndexBytes, .max_depth = kMaxIndexDepth});
  if (!json.ok()) return json.status();
  Status error;
  const JsonReader root(*json, name, error);
  if (!error.ok()) return error;
  const auto corrupt = [&](const std::string& what) {
    return Status(StatusCode::kCorrupt, name + ": " + what);
  };
  const Json* map = root.find("weight_map");
  if (map == nullptr) return corrupt("\"weight_map\" is missing");
  if (!map->is_object())
    return corrupt(fmt::format("\"weight_map\" is {}, expected an object", describe(*map)));
  if (map->empty()) return corrupt("\"weight_map\" is empty");
  std::map<std::string, std::string> weight_map;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string()) {
      return corrupt(
          fmt::format("tensor {}: the shard is {}, expected a file name", quote(tensor), describe(shard)));
    }
    if (const char* reason = bad_shard_name(shard.get_ref<const std::string&>())) {
      return corrupt(fmt::format("tensor {}: the shard name {} {}", quote(tensor), describe(shard), reason));
    }
    weight_map.emplace(tensor, shard.get<std::string>());
  }
  return weight_map;
}

struct ModelTensors::Impl {
  std::string source;  // what messages name: the file or the index
  std::vector<SafetensorsFile> files;
  std::vector<TensorView> tensors;
  TensorIndex index;
};

ModelTensors::ModelTensors(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}

Result<ModelTensors> ModelTensors::open_shards(const std::string& folder, const std::string& index) {
  const Result<std::string> text = read_file(index, kMaxIndexBytes);
  if (!text.ok()) return text.status();
  const Result<std::map<std::string, std::string>> weight_map = parse_safetensors_index(*text, index);
  if (!weight_map.ok()) return weight_map.status();

  std::map<std::string, std::size_t> listed;  // shard -> how many tensors the index expects in it
  for (const auto& [tensor, shard] : *weight_map) listed[shard]++;
  auto impl = std::make_shared<Impl>();
  impl->source = index;
  for (const auto& [shard, count] : listed) {
    Result<SafetensorsFile> file = SafetensorsFile::open(folder + "/" + shard);
    if (!file.ok()) return file.status();
    std::size_t found = 0;
    for (const TensorView& tensor : file->tensors()) {
      const auto it = weight_map->find(tensor.name);
      if (it == weight_map->end()) continue;
      if (it->second != shard) {
        return Status(StatusCode::kCorrupt,
                      fmt::format("{}: tensor {} stands in {}, the index says {}", index, quote(tensor.name),
                                  quote(shard), quote(it->second)));
      }
      impl->tensors.push_back(tensor);
      found++;
    }
    if (found < count) {
      for (const auto& [tensor, where] : *weight_map) {
        if (where != shard || file->find(tensor) != nullptr) continue;
        return Status(StatusCode::kCorrupt,
                      fmt::format("{}: tensor {} is not in {}", index, quote(tensor), quote(shard)));
      }
    }
    impl->files.push_back(std::move(*file));
  }
  impl->index = TensorIndex(impl->tensors);
  return ModelTensors(std::move(impl));
}

Result<ModelTensors> ModelTensors::open(const std::string& folder) {
  const std::string single = folder + "/model.safetensors";
  const std::string index = folder + "/model.safetensors.index.json";
  try {
    if (!path_exists(single)) {
      if (path_exists(index)) return open_shards(folder, index);
      return Status(StatusCode::kIo,
                    folder + ": neither model.safetensors nor model.safetensors.index.json is there");
    }
    Result<SafetensorsFile> file = SafetensorsFile::open(single);
    if (!file.ok()) return file.status();
    auto impl = std::make_shared<Impl>();
    impl->source = single;
    impl->tensors = file->tensors();
    impl->index = TensorIndex(impl->tensors);
    impl->files.push_back(std::move(*file));
    return ModelTensors(std::move(impl));
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kResourceExhausted,
                  folder + ": out of memory while reading the tensors' names");
  }
}

const TensorView* ModelTensors::find(std::string_view name) const noexcept { return impl_->index.find(name); }
const std::vector<TensorView>& ModelTensors::tensors() const noexcept { return impl_->tensors; }
const std::string& ModelTensors::source() const noexcept { return impl_->source; }

Result<TensorView> ModelTensors::get_float(std::string_view name, std::span<const std::size_t> shape) const {
  const TensorView* tensor = find(name);
  if (tensor == nullptr) {
    return Status(StatusCode::kCorrupt, fmt::format("{}: tensor {} of shape {} is missing", impl_->source,
                                                    quote(name), std::vector(shape.begin(), shape.end())));
  }
  const bool same = std::equal(tensor->shape.begin(), tensor->shape.end(), shape.begin(), shape.end());
  if (same && is_float(tensor->dtype)) return *tensor;
  return Status(is_float(tensor->dtype) ? StatusCode::kCorrupt : StatusCode::kUnsupported,
                fmt::format("{}: tensor {} is {} of shape {}, expected F32, F16 or BF16 of shape {}",
                            impl_->source, quote(name), dtype_name(tensor->dtype), tensor->shape,
                            std::vector(shape.begin(), shape.end())));
}

}  // namespace windrow
