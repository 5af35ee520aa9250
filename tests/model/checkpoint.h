// Rewrites a sound checkpoint into others: other dtypes, names, shards, missing and extra tensors.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/float16.h"
#include "model/model_fixture.h"
#include "support/temp_folder.h"

namespace windrow::testing {

struct OwnedTensor {
  std::string name;
  DType dtype;
  std::vector<std::size_t> shape;
  std::vector<std::byte> bytes;
};

// A folder of its own with a reference model's config and tensors (bf16), to be changed and saved.
class Checkpoint {
  TempFolder temp_;

 public:
  const std::string folder = temp_.path();

  explicit Checkpoint(const std::string& from = kTiny) {
    config = read_whole_file(from + "/config.json");
    const SafetensorsFile file = must(SafetensorsFile::open(from + "/model.safetensors"));
    for (const TensorView& t : file.tensors()) {
      tensors.push_back({t.name, t.dtype, t.shape, {t.bytes.begin(), t.bytes.end()}});
    }
  }

  OwnedTensor& tensor(const std::string& name) {
    for (OwnedTensor& t : tensors) {
      if (t.name == name) return t;
    }
    throw std::runtime_error("no tensor " + name);
  }

  // Removes a tensor and returns it.
  OwnedTensor take(const std::string& name) {
    OwnedTensor taken = tensor(name);
    std::erase_if(tensors, [&](const OwnedTensor& t) { return t.name == name; });
    return taken;
  }

  // Every occurrence of a text in config.json.
  void replace(const std::string& from, const std::string& to) {
    const std::size_t at = config.find(from);
    if (at == std::string::npos) throw std::runtime_error("config has no " + from);
    config.replace(at, from.size(), to);
  }

  // The numbers in another float type. f32 holds bf16 exactly; f16 holds this model's weights (they are
  // between 1e-4 and 2 in size, and have 8 bits) exactly, too, but for the smallest.
  static OwnedTensor converted(const OwnedTensor& t, DType to) {
    OwnedTensor out{t.name, to, t.shape, {}};
    const std::size_t n = t.bytes.size() / 2;
    out.bytes.resize(n * dtype_size(to));
    for (std::size_t i = 0; i < n; i++) {
      std::uint16_t h;
      std::memcpy(&h, &t.bytes[2 * i], 2);
      const float f = f32_from_bf16(h);
      if (to == DType::kF32) {
        std::memcpy(&out.bytes[4 * i], &f, 4);
      } else {
        const std::uint16_t g = f16_from_f32(f);
        std::memcpy(&out.bytes[2 * i], &g, 2);
      }
    }
    return out;
  }

  static std::vector<TensorView> views(const std::vector<const OwnedTensor*>& list) {
    std::vector<TensorView> out;
    for (const OwnedTensor* t : list) out.push_back({t->name, t->dtype, t->shape, t->bytes});
    return out;
  }

  // One file, or `shards` with an index.
  void save(std::size_t shards = 1) const {
    temp_.write("config.json", config);
    std::vector<std::vector<const OwnedTensor*>> parts(shards);
    std::string map;
    for (std::size_t i = 0; i < tensors.size(); i++) {
      parts[i % shards].push_back(&tensors[i]);
      map += (i > 0 ? ",\"" : "\"") + tensors[i].name + "\":\"" + shard_name(i % shards) + "\"";
    }
    if (shards == 1) {
      must(write_safetensors(folder + "/model.safetensors", views(parts[0])));
      return;
    }
    for (std::size_t s = 0; s < shards; s++)
      must(write_safetensors(folder + "/" + shard_name(s), views(parts[s])));
    temp_.write("model.safetensors.index.json", "{\"weight_map\":{" + map + "}}");
  }

  std::string load_error() const {
    ThreadPool pool = must(ThreadPool::create(1));
    const std::string message = Model::load(folder, pool).status().message();
    return message.rfind(folder, 0) == 0 ? message.substr(folder.size()) : message;
  }

  std::string config;
  std::vector<OwnedTensor> tensors;

 private:
  static std::string shard_name(std::size_t s) { return fmt::format("part-{}.safetensors", s); }
};

}  // namespace windrow::testing
