// The rope keys of config.json, old and new.
//
// New (transformers 5): "rope_parameters", flat or per layer type: {rope_type, rope_theta, factor}.
// Old: "rope_theta", "rope_local_base_freq" (sliding layers) and "rope_scaling" {rope_type or type, factor},
// which scales the full layers only where sliding layers have a base of their own.
#include "model/config_rope.h"

#include <fmt/format.h>

namespace windrow {
namespace {

// A base of 1 turns all pairs equally fast; published bases end at 1e8.
constexpr double kMinTheta = 1;
constexpr double kMaxTheta = 1e12;
// Scaling stretches positions; published factors end at 64.
constexpr double kMinFactor = 1;
constexpr double kMaxFactor = 1e6;

RopeConfig plain_rope(double theta) {
  RopeConfig rope;
  rope.theta = theta;
  return rope;
}

// One object of rope keys. An absent one is the plain rope with base `theta`.
RopeConfig read_one(JsonReader rope, double theta) {
  RopeConfig config;
  config.theta = rope.double_or("rope_theta", theta, kMinTheta, kMaxTheta);
  const char* type_key = rope.has("rope_type") ? "rope_type" : "type";
  const std::string type = rope.string_or(type_key, "default");
  if (type == "linear") {
    config.factor = rope.require_double("factor", kMinFactor, kMaxFactor);
  } else if (type != "default") {
    rope.fail(type_key, fmt::format("is {}, supported are \"default\" and \"linear\"", quote(type)),
              StatusCode::kUnsupported);
  }
  if (rope.double_or("partial_rotary_factor", 1, 0, 1) != 1) {
    rope.fail("partial_rotary_factor", "is not 1, partial rotation is not supported",
              StatusCode::kUnsupported);
  }
  return config;
}

}  // namespace

RopePair read_rope(JsonReader& text, double theta, double local_theta) {
  theta = text.double_or("rope_theta", theta, kMinTheta, kMaxTheta);
  local_theta = text.double_or("rope_local_base_freq", local_theta, kMinTheta, kMaxTheta);
  if (text.double_or("partial_rotary_factor", 1, 0, 1) != 1) {
    text.fail("partial_rotary_factor", "is not 1, partial rotation is not supported",
              StatusCode::kUnsupported);
  }
  RopePair pair;
  pair.full = read_one(text.object("rope_scaling"), theta);
  pair.sliding = local_theta == 0 ? pair.full : plain_rope(local_theta);
  if (!text.has("rope_parameters")) return pair;

  const RopePair old = pair;
  const JsonReader parameters = text.object("rope_parameters");
  if (parameters.has("full_attention") || parameters.has("sliding_attention")) {
    pair.full = read_one(parameters.object("full_attention"), theta);
    pair.sliding = read_one(parameters.object("sliding_attention"), local_theta == 0 ? theta : local_theta);
  } else if (local_theta != 0) {
    text.fail("rope_parameters", "has neither \"full_attention\" nor \"sliding_attention\"");
  } else {
    pair.full = pair.sliding = read_one(parameters, theta);
  }
  // Two statements of the scaling that disagree would give a wrong model, whichever is taken.
  if (text.has("rope_scaling") && old.full.factor != pair.full.factor) {
    text.fail("rope_scaling",
              fmt::format("scales by {:g}, \"rope_parameters\" by {:g}", old.full.factor, pair.full.factor));
  }
  return pair;
}

}  // namespace windrow
