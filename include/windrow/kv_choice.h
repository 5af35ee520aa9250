// How the state of a model's attention layers is stored: a codec for the keys and one for the values of
// every layer; and the file that says so, which `windrow quality --suggest` writes and `--kv-file` reads:
//
//   {"windrow_kv": 1,                                    the version of the format
//    "model_type": "gemma3_text", "num_layers": 26,      optional: the model it is for; must agree with it
//    "default": {"keys": "bf16", "values": "bf16"},      optional: of the layers that are not named below
//    "layers": [{"layers": [0, 1, 2], "keys": "q4:64", "values": "q8:64"}, ...]}
//
// Layers count from 0, as in config.json. Without a default every attention layer that stores keys and values
// must be named, and none twice; layers that attend over another layer's state (KV sharing) or are recurrent
// store none and can't be named. Codecs are written as Codec::parse reads them; "q4" without a group gets
// the one that fits the model, see parse_kv_codec. Any other key is refused.
//
// Thread safety: values and pure functions.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "windrow/codec.h"
#include "windrow/export.h"
#include "windrow/status.h"

namespace windrow {

struct LayerShape;  // model.h
struct ModelInfo;

struct KvCodecs {
  Codec keys, values;  // bf16
  friend bool operator==(const KvCodecs&, const KvCodecs&) = default;
};
// "q4:64", or "q8:64/q4:64" where keys and values differ.
WINDROW_API std::string to_string(const KvCodecs& codecs);

struct KvChoice {
  KvCodecs sliding;                // of layers with a window
  KvCodecs full;                   // of layers that see everything
  std::map<int, KvCodecs> layers;  // of single layers, by number: wins over the two above

  KvChoice() = default;  // bf16
  explicit KvChoice(const Codec& all) : sliding{all, all}, full{all, all} {}
  friend bool operator==(const KvChoice&, const KvChoice&) = default;

  // The codecs of layer number `layer`, which has the shape `shape` and stores keys and values of its own.
  const KvCodecs& of(int layer, const LayerShape& shape) const;
};

// kInvalidArgument where `layers` names a layer that the model does not have or that stores nothing, or where
// a codec can't store a layer's head dim.
WINDROW_API Status check_kv_choice(const KvChoice& kv, std::span<const LayerShape> layers);

// Codec::parse, but an affine codec without a group ("q4") gets the one that fits all layers: 64, or
// 32 where some head_dim is no multiple of 64.
WINDROW_API Result<Codec> parse_kv_codec(std::string_view text, std::span<const LayerShape> layers);

// The content of a file as above, for a model; `name` is what messages call it. kCorrupt for what breaks the
// format, kInvalidArgument for a file that is right but not for this model.
WINDROW_API Result<KvChoice> parse_kv_choice(std::string_view json, const std::string& name,
                                             const ModelInfo& info);
// The same of a file of at most 16 MiB.
WINDROW_API Result<KvChoice> read_kv_choice(const std::string& path, const ModelInfo& info);
// The file's content: every attention layer named, layers of equal codecs together, without a default.
// What parse_kv_choice reads back as an equal choice for each layer.
WINDROW_API std::string kv_choice_json(const KvChoice& kv, const ModelInfo& info);

}  // namespace windrow
