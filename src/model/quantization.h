// Which modules of a checkpoint are quantized and how: "quantization" in config.json, as mlx-lm writes it.
//
//   {"group_size": 64, "bits": 4,                                    the default
//    "model.embed_tokens": {"group_size": 64, "bits": 6},            of one module, by its path
//    "model.layers.0.mlp.gate": false}                               not quantized
//
// A module of the default is quantized only where its `<path>.scales` stands in the file.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "codec/affine_rows.h"

namespace windrow {

struct Quantization {
  AffineFormat format;
  std::map<std::string, std::optional<AffineFormat>, std::less<>> modules;

  // nullopt: the file says that this one is not quantized.
  std::optional<AffineFormat> of(std::string_view module) const {
    const auto it = modules.find(module);
    return it == modules.end() ? format : it->second;
  }
};

// Of the object at `key` ("quantization", or "quantization_config", which mlx-lm writes as a copy). Other
// ways to quantize (a "quant_method", a "mode" other than affine), bits and groups that MLX's affine mode
// lacks are refused by name: kUnsupported in the reader's error.
Quantization read_quantization(JsonReader& reader, const char* key);

// The Json that read_quantization reads.
Json quantization_json(const Quantization& quantization);

}  // namespace windrow
