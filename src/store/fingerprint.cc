// What a model folder is, as texts to compare.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <atomic>
#include <exception>
#include <new>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/out_of_memory.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "store/digest.h"
#include "windrow/session.h"

namespace windrow {
namespace {

// Published config.json files have a few KiB.
constexpr std::size_t kMaxConfigBytes = std::size_t{1} << 24;

Result<Json> read_config(const std::string& folder) {
  const std::string path = folder + "/config.json";
  const Result<std::string> text = read_file(path, kMaxConfigBytes);
  if (!text.ok()) return text.status();
  return parse_json(*text, path, {.max_bytes = kMaxConfigBytes});
}

// Members that say how positions are rotated, by the names that the configurations of all families use:
// rope_theta, rope_scaling, rope_parameters, rope_local_base_freq, partial_rotary_factor, ...
Json rope_members(const Json& config) {
  Json out = Json::object();
  if (!config.is_object()) return out;
  for (const auto& [key, value] : config.items()) {
    if (key.find("rope") != key.npos || key.find("rotary") != key.npos) out[key] = value;
  }
  return out;
}

// The digests of all tensors, each computed by one thread.
Result<std::vector<Sha256Digest>> hash_tensors(const std::vector<TensorView>& tensors, ThreadPool& pool) {
  std::vector<Sha256Digest> digests(tensors.size());
  std::vector<Sha256> contexts;
  for (int t = 0; t < pool.threads(); t++) {
    Result<Sha256> sha = Sha256::create();
    if (!sha.ok()) return sha.status();
    contexts.push_back(std::move(*sha));
  }
  pool.parallel_for(tensors.size(), [&](std::size_t i, int thread) {
    Sha256& sha = contexts[static_cast<std::size_t>(thread)];
    sha.reset();
    sha.update(tensors[i].bytes);
    digests[i] = sha.finish();
  });
  return digests;
}

}  // namespace

Result<std::string> model_fingerprint(const std::string& folder, ThreadPool& pool) try {
  const Result<Json> config = read_config(folder);
  if (!config.ok()) return config.status();
  const Result<ModelTensors> weights = ModelTensors::open(folder);
  if (!weights.ok()) return weights.status();
  const std::vector<TensorView>& tensors = weights->tensors();
  const Result<std::vector<Sha256Digest>> digests = hash_tensors(tensors, pool);
  Result<Sha256> all = Sha256::create();
  if (!digests.ok() || !all.ok()) return digests.ok() ? all.status() : digests.status();
  // Every part ends where its text says, so that no two models give one text.
  const std::string text = config->dump();
  all->update(fmt::format("windrow model 1\nconfig {}\n{}\n", text.size(), text));
  for (std::size_t i = 0; i < tensors.size(); i++) {
    all->update(fmt::format("tensor {} {} {} [{}] {}\n", tensors[i].name.size(), tensors[i].name,
                            dtype_name(tensors[i].dtype), fmt::join(tensors[i].shape, ","),
                            hex((*digests)[i])));
  }
  return hex(all->finish());
} catch (const std::bad_alloc&) {
  return out_of_memory();
} catch (const Json::exception&) {  // text that is not UTF-8: parse_json has refused it
  return Status(StatusCode::kInternal, folder + "/config.json: can't be written again");
}

Result<std::string> file_fingerprint(const std::string& path) try {
  const Result<MappedFile> file = MappedFile::open(path);
  if (!file.ok()) return file.status();
  Result<Sha256> sha = Sha256::create();
  if (!sha.ok()) return sha.status();
  sha->update(file->bytes());
  return hex(sha->finish());
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

Result<std::string> rope_parameters(const std::string& folder) try {
  const Result<Json> config = read_config(folder);
  if (!config.ok()) return config.status();
  Json out = rope_members(*config);
  if (const auto text = config->is_object() ? config->find("text_config") : config->end();
      text != config->end())
    out.update(rope_members(*text));
  return out.dump();
} catch (const std::bad_alloc&) {
  return out_of_memory();
} catch (const Json::exception&) {
  return Status(StatusCode::kInternal, folder + "/config.json: can't be written again");
}

}  // namespace windrow
