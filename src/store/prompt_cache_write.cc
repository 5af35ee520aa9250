// A row as an mlx-lm prompt-cache file.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <list>

#include "base/float16.h"
#include "base/out_of_memory.h"
#include "io/safetensors.h"
#include "windrow/mlx.h"
#include "windrow/prompt_cache.h"

namespace windrow {
namespace {

Status invalid(std::string message) { return {StatusCode::kInvalidArgument, std::move(message)}; }

DType dtype_of(const Codec& codec) {
  if (codec == Codec::f32()) return DType::kF32;
  return codec == Codec::f16() ? DType::kF16 : DType::kBF16;
}

class FileBuilder {
 public:
  explicit FileBuilder(const std::map<std::string, std::string>& metadata) {
    for (const auto& [key, value] : metadata) metadata_.emplace("1." + key, value);
  }

  Status attention(int cache, const LayerRecords& records, const AttentionGroup& group) {
    const bool ring = group.window != kFullWindow;
    const auto quantized_as = [&](const Codec& c) {
      // QuantizedKVCache grows its arrays in words of 32 / bits whole codes.
      return c.is_affine() && 32 % c.bits() == 0;
    };
    const bool quantized = !ring && group.keys == group.values && quantized_as(group.keys);
    MlxForm form;
    if (!quantized) {
      form.keys = plain(group.keys);
      form.values = plain(group.values);
    }
    Result<MlxSerialCache> mlx = mlx_from_records(records, group, form);
    if (!mlx.ok()) return mlx.status();
    const std::size_t slots = static_cast<std::size_t>(mlx->slots),
                      heads = static_cast<std::size_t>(group.kv_heads);
    const std::string prefix = fmt::format("{}", cache);
    add(prefix + ".0", mlx->keys, heads, slots, static_cast<std::size_t>(group.head_dim));
    add(prefix + ".1", mlx->values, heads, slots, static_cast<std::size_t>(group.value_dim));
    if (ring) {
      state(cache, "RotatingKVCache", {mlx->keep, mlx->max_size, mlx->offset, mlx->idx});
    } else if (quantized) {
      state(cache, "QuantizedKVCache", {mlx->offset, group.keys.group(), group.keys.bits()});
    } else {
      state(cache, "KVCache", {});
    }
    return {};
  }

  void recurrent(int cache, const RecurrentRecords& records, const RecurrentShape& shape) {
    const auto& d = shape.delta;
    const std::size_t taps = static_cast<std::size_t>(shape.conv.taps - 1);
    const std::size_t channels = static_cast<std::size_t>(shape.conv.channels);
    const std::string prefix = fmt::format("{}", cache);
    add_floats(prefix + ".0.0", records.tail, {1, taps, channels}, true);
    add_floats(prefix + ".0.1", records.state,
               {1, static_cast<std::size_t>(d.value_heads), static_cast<std::size_t>(d.value_dim),
                static_cast<std::size_t>(d.key_dim)},
               false);
    add_floats(prefix + ".1", {}, {0}, false);  // left_padding and lengths: none
    add_floats(prefix + ".2", {}, {0}, false);
    state(cache, "ArraysCache", {});
  }

  Status save(const std::string& path) const { return write_safetensors(path, tensors_, metadata_); }

 private:
  // Unchanged if it is plain; else the type that a model of the codec's input would have.
  static Codec plain(const Codec& codec) {
    if (!codec.is_affine()) return codec;
    if (codec.input() == DType::kF32) return Codec::f32();
    return codec.input() == DType::kF16 ? Codec::f16() : Codec::bf16();
  }

  void state(int cache, const char* type, std::initializer_list<int> words) {
    metadata_[fmt::format("2.{}", cache)] = type;
    if (words.size() == 0) metadata_[fmt::format("0.{}", cache)] = "";
    int i = 0;
    for (const int w : words) metadata_[fmt::format("0.{}.{}", cache, i++)] = fmt::format("{}", w);
  }

  void add(const std::string& name, const MlxArray& array, std::size_t heads, std::size_t slots,
           std::size_t dim) {
    owners_.push_back(array.owner);
    if (!array.codec.is_affine()) {
      tensors_.push_back({name, dtype_of(array.codec), {1, heads, slots, dim}, array.data});
      return;
    }
    const auto bits = static_cast<std::size_t>(array.codec.bits()),
               group = static_cast<std::size_t>(array.codec.group());
    tensors_.push_back({name + ".0", DType::kU32, {1, heads, slots, dim * bits / 32}, array.data});
    tensors_.push_back({name + ".1", array.codec.input(), {1, heads, slots, dim / group}, array.scales});
    tensors_.push_back({name + ".2", array.codec.input(), {1, heads, slots, dim / group}, array.biases});
  }

  // As bf16 where `shorten` and all numbers are that already: the type of a bf16 model's convolution.
  void add_floats(const std::string& name, std::span<const float> values, std::vector<std::size_t> shape,
                  bool shorten) {
    const bool short_numbers = shorten && std::ranges::all_of(values, [](float f) {
                                 return (std::bit_cast<std::uint32_t>(f) & 0xffff) == 0;
                               });
    std::vector<std::byte>& bytes = floats_.emplace_back();
    const std::size_t size = short_numbers ? 2 : 4;
    bytes.resize(values.size() * size);
    for (std::size_t i = 0; i < values.size(); i++) {
      const auto bits = std::bit_cast<std::uint32_t>(values[i]);
      const auto high = static_cast<std::uint16_t>(bits >> 16);
      std::memcpy(&bytes[i * size], short_numbers ? static_cast<const void*>(&high) : &bits, size);
    }
    tensors_.push_back({name, short_numbers ? DType::kBF16 : DType::kF32, std::move(shape), bytes});
  }

  std::map<std::string, std::string> metadata_;
  std::vector<TensorView> tensors_;
  std::vector<std::shared_ptr<const void>> owners_;
  std::list<std::vector<std::byte>> floats_;
};

}  // namespace

Status save_mlx_prompt_cache(const std::string& path, const StatePlan& plan, const RowRecords& row,
                             const std::map<std::string, std::string>& metadata) try {
  if (row.signature != plan.signature()) {
    return {StatusCode::kFailedPrecondition,
            fmt::format("prompt cache: a row of {}, the plan is {}", row.signature, plan.signature())};
  }
  FileBuilder file(metadata);
  const int caches = static_cast<int>(row.layers.size() + row.recurrent.size());
  for (int layer = 0; layer < caches; layer++) {
    const auto attention = std::ranges::find(row.layers, layer, &LayerRecords::layer);
    if (attention != row.layers.end()) {
      if (Status s = file.attention(layer, *attention, plan.group(plan.group_of_layer(layer))); !s.ok())
        return s;
      continue;
    }
    const auto recurrent = std::ranges::find(row.recurrent, layer, &RecurrentRecords::layer);
    if (recurrent == row.recurrent.end()) {
      return invalid(fmt::format("prompt cache: the row has {} layers with a state, and none is number {}",
                                 caches, layer));
    }
    file.recurrent(layer, *recurrent, plan.recurrent(plan.recurrent_of_layer(layer)).shape);
  }
  return file.save(path);
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

}  // namespace windrow
