// The parts of config.json beside sizes and numerics: which layers there are and what is in them. Each
// function reads its keys into `config`; what is wrong goes into the reader.
#pragma once

#include "base/json.h"
#include "model/config.h"
#include "model/config_defaults.h"

namespace windrow {

// Bounds far above any published model, and such that products of two stay below 2^63.
inline constexpr int kMaxWidth = 1 << 20;  // hidden_size; the largest published is 16,384
inline constexpr int kMaxIntermediate = 1 << 24;
inline constexpr int kMaxLayers = 4096;
inline constexpr int kMaxHeads = 4096;  // heads x head_dim stays below 2^24
inline constexpr int kMaxHeadDim = 4096;
inline constexpr int kMaxVocab = 1 << 24;
inline constexpr int kMaxPositions = 1 << 30;  // so that a position and a window add up in 32 bits
inline constexpr int kMaxExperts = 4096;
inline constexpr double kMinPositive = 1e-3;  // of softcaps and scales, which divide
inline constexpr double kMaxPositive = 1e6;

// Needs the sizes (num_layers, heads, head_dim) and the model type of `config`.
struct ConfigPart {
  JsonReader& text;
  const FamilyDefaults& family;
  ModelConfig& config;
};

// layer_types and the window.
void read_layer_types(const ConfigPart& part);
// What differs between layers: shared keys and values, widths of MLPs and heads. Needs layer_types.
void read_layer_variants(const ConfigPart& part);
void read_experts(const ConfigPart& part);
void read_linear_attention(const ConfigPart& part);
// Per-layer inputs (Gemma 3n and 4) and AltUp (Gemma 3n).
void read_per_layer_inputs(const ConfigPart& part);

}  // namespace windrow
