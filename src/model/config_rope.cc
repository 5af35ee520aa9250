// The rope keys of config.json, old and new.
//
// New (transformers 5): "rope_parameters", flat or per layer type: {rope_type, rope_theta, factor, ...}.
// Old: "rope_theta", "rope_local_base_freq" (sliding layers), "partial_rotary_factor" and "rope_scaling"
// {rope_type or type, factor, ...}, which scales the full layers only in families with a rope per layer type.
// Phi-3 states original_max_position_embeddings beside the rope; there it wins over the one inside.
#include "model/config_rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "model/rope.h"

namespace windrow {
namespace {

// A base of 1 turns all pairs equally fast; published bases end at 1e8.
constexpr double kMinTheta = 1;
constexpr double kMaxTheta = 1e12;
// Scaling stretches positions; published factors end at 64.
constexpr double kMinFactor = 1;
constexpr double kMaxFactor = 1e6;
// Of the small numbers of llama3, yarn and longrope; published are 0.7 to 128.
constexpr double kMinSmall = 1e-3;
constexpr double kMaxSmall = 1e4;

constexpr struct {
  const char* name;
  RopeType type;
} kRopeTypes[] = {{"default", RopeType::kDefault},
                  {"linear", RopeType::kLinear},
                  {"dynamic", RopeType::kDynamic},
                  {"llama3", RopeType::kLlama3},
                  {"yarn", RopeType::kYarn},
                  {"longrope", RopeType::kLongRope},
                  {"su", RopeType::kLongRope},  // an early name
                  {"proportional", RopeType::kProportional}};

// Parts of ropes that are not read: what they say would be missing from the angles.
constexpr const char* kUnsupportedKeys[] = {"mrope_section", "llama_4_scaling_beta", "short_mscale",
                                            "long_mscale"};

// What a rope object may leave to the keys around it.
struct Surroundings {
  double theta = 0;
  double partial_rotary_factor = 1;
  int head_dim = 0;
};

class RopeReader {
 public:
  explicit RopeReader(const ConfigPart& part) : part_(part), text_(part.text) {}

  void read() {
    Surroundings full = {
        .theta = text_.double_or("rope_theta", part_.family.rope_theta, kMinTheta, kMaxTheta),
        .partial_rotary_factor =
            text_.double_or("partial_rotary_factor", part_.family.partial_rotary_factor, 0, 1),
        .head_dim = part_.config.head_dim};
    Surroundings sliding = full;
    if (part_.config.global_head_dim != 0) full.head_dim = part_.config.global_head_dim;
    const double local =
        text_.double_or("rope_local_base_freq", part_.family.rope_local_theta, kMinTheta, kMaxTheta);
    if (local != 0) sliding.theta = local;
    const bool per_type = part_.family.rope_per_layer_type || local != 0;

    if (text_.has("rope_parameters")) {
      read_parameters(full, sliding, per_type);
    } else {
      part_.config.rope_full =
          has_scaling() ? read_one(text_.object("rope_scaling"), full) : family_rope(full);
      part_.config.rope_sliding = per_type ? plain_rope(sliding) : part_.config.rope_full;
    }
  }

 private:
  bool has_scaling() const { return text_.has("rope_scaling"); }

  // The new style.
  void read_parameters(const Surroundings& full, const Surroundings& sliding, bool per_type) {
    RopeConfig& of_full = part_.config.rope_full;
    RopeConfig& of_sliding = part_.config.rope_sliding;
    const JsonReader parameters = text_.object("rope_parameters");
    if (parameters.has("full_attention") || parameters.has("sliding_attention")) {
      of_full = parameters.has("full_attention") ? read_one(parameters.object("full_attention"), full)
                                                 : family_rope(full);
      of_sliding = parameters.has("sliding_attention")
                       ? read_one(parameters.object("sliding_attention"), sliding)
                       : plain_rope(sliding);
      refuse_two_ropes(per_type);
    } else if (per_type) {
      text_.fail("rope_parameters", "has neither \"full_attention\" nor \"sliding_attention\"");
    } else {
      of_full = of_sliding = read_one(parameters, full);
    }
    if (has_scaling()) compare(read_one(text_.object("rope_scaling"), full), of_full);
  }

  // Two statements of the scaling that disagree would give a wrong model, whichever is taken.
  void compare(RopeConfig old_style, const RopeConfig& new_style) {
    old_style.theta = new_style.theta;
    if (old_style == new_style) return;
    if (old_style.factor != new_style.factor) {
      text_.fail("rope_scaling", fmt::format("scales by {:g}, \"rope_parameters\" by {:g}", old_style.factor,
                                             new_style.factor));
    }
    text_.fail("rope_scaling", "and \"rope_parameters\" disagree");
  }

  void refuse_two_ropes(bool per_type) {
    if (per_type || part_.family.model_type.empty() || part_.config.rope_full == part_.config.rope_sliding)
      return;
    text_.fail("rope_parameters",
               fmt::format("differs between layer types, {} has one rope for all", part_.config.model_type),
               StatusCode::kUnsupported);
  }

  // Of full layers where the file states none.
  RopeConfig family_rope(const Surroundings& around) {
    const std::string_view text = part_.family.rope;
    if (text.empty()) return plain_rope(around);
    const Result<Json> json = parse_json(text, "the family's rope", {.max_bytes = 1000});
    if (!json.ok()) {  // memory ran out
      text_.fail("rope_parameters", json.status().message(), json.status().code());
      return {};
    }
    return read_one(text_.with(*json), around);
  }

  RopeConfig plain_rope(const Surroundings& around) {
    const Json none = Json::object();
    return read_one(text_.with(none), around);
  }

  // One object of rope keys; one without any is the plain rope.
  RopeConfig read_one(JsonReader rope, const Surroundings& around) {
    RopeConfig c;
    c.theta = rope.double_or("rope_theta", around.theta, kMinTheta, kMaxTheta);
    c.type = read_type(rope);
    c.partial_rotary_factor = rope.double_or("partial_rotary_factor", around.partial_rotary_factor, 0, 1);
    for (const char* key : kUnsupportedKeys) {
      if (rope.has(key)) rope.fail(key, "is present, which is not supported", StatusCode::kUnsupported);
    }
    const int dim = rotary_dim(around.head_dim, c);
    if (dim < 2 || dim % 2 != 0) {
      fail(rope, "partial_rotary_factor",
           fmt::format("is {:g}: {} of {} dimensions would turn, expected an even number",
                       c.partial_rotary_factor, dim, around.head_dim));
    }
    read_scaling(rope, dim, c);
    return c;
  }

  // About a key that may stand in the rope's object or around it.
  void fail(JsonReader& rope, const char* key, const std::string& what) {
    (rope.has(key) ? rope : text_).fail(key, what);
  }

  RopeType read_type(JsonReader& rope) {
    const char* key = rope.has("rope_type") ? "rope_type" : "type";
    const std::string name = rope.string_or(key, "default");
    std::string names;
    for (const auto& t : kRopeTypes) {
      if (name == t.name) {
        const bool renamed = t.type == RopeType::kYarn && part_.family.yarn_means_longrope;
        return renamed ? RopeType::kLongRope : t.type;
      }
      names += fmt::format("{}{}", names.empty() ? "" : ", ", quote(t.name));
    }
    rope.fail(key, fmt::format("is {}, supported are {}", quote(name), names), StatusCode::kUnsupported);
    return RopeType::kDefault;
  }

  void read_scaling(JsonReader& rope, int dim, RopeConfig& c) {
    switch (c.type) {
      case RopeType::kDefault: break;
      case RopeType::kLinear: c.factor = rope.require_double("factor", kMinFactor, kMaxFactor); break;
      case RopeType::kProportional: c.factor = rope.double_or("factor", 1, kMinFactor, kMaxFactor); break;
      case RopeType::kDynamic: read_dynamic(rope, dim, c); break;
      case RopeType::kLlama3: read_llama3(rope, c); break;
      case RopeType::kYarn: read_yarn(rope, c); break;
      case RopeType::kLongRope: read_longrope(rope, static_cast<std::size_t>(dim / 2), c); break;
    }
  }

  // From 2 on: longrope divides by its logarithm.
  int original_positions(JsonReader& rope) {
    const char* key = "original_max_position_embeddings";
    if (text_.has(key)) return text_.require_int(key, 2, kMaxPositions);
    return rope.int_or(key, std::max(2, part_.config.max_position_embeddings), 2, kMaxPositions);
  }

  // Of yarn and longrope; where it is absent the lengths say it.
  double stretch(JsonReader& rope, const RopeConfig& c) {
    const double ratio = static_cast<double>(part_.config.max_position_embeddings) / c.original_max_positions;
    return rope.double_or("factor", std::max(1.0, ratio), kMinFactor, kMaxFactor);
  }

  void read_dynamic(JsonReader& rope, int dim, RopeConfig& c) {
    c.factor = rope.require_double("factor", kMinFactor, kMaxFactor);
    c.original_max_positions = part_.config.max_position_embeddings;
    if (dim < 4) {
      fail(rope, "partial_rotary_factor",
           fmt::format("leaves {} rotary dimensions, dynamic ropes need 4", dim));
    }
  }

  void read_llama3(JsonReader& rope, RopeConfig& c) {
    c.factor = rope.require_double("factor", kMinFactor, kMaxFactor);
    c.low_freq_factor = rope.require_double("low_freq_factor", kMinSmall, kMaxSmall);
    c.high_freq_factor = rope.require_double("high_freq_factor", kMinSmall, kMaxSmall);
    c.original_max_positions = original_positions(rope);
    if (c.high_freq_factor <= c.low_freq_factor) {
      rope.fail("high_freq_factor", fmt::format("is {:g}, expected more than the low_freq_factor {:g}",
                                                c.high_freq_factor, c.low_freq_factor));
    }
  }

  void read_yarn(JsonReader& rope, RopeConfig& c) {
    c.original_max_positions = original_positions(rope);
    c.factor = stretch(rope, c);
    c.attention_factor = rope.double_or("attention_factor", 0, kMinSmall, kMaxSmall);
    c.beta_fast = rope.double_or("beta_fast", c.beta_fast, kMinSmall, kMaxSmall);
    c.beta_slow = rope.double_or("beta_slow", c.beta_slow, kMinSmall, kMaxSmall);
    c.mscale = rope.double_or("mscale", 0, 0, kMaxSmall);
    c.mscale_all_dim = rope.double_or("mscale_all_dim", 0, 0, kMaxSmall);
    c.truncate = rope.bool_or("truncate", true);
    if (c.beta_fast < c.beta_slow) {
      rope.fail("beta_fast",
                fmt::format("is {:g}, expected at least the beta_slow {:g}", c.beta_fast, c.beta_slow));
    }
    if (c.theta == 1) fail(rope, "rope_theta", "is 1, yarn needs more");  // it divides by the logarithm
  }

  void read_longrope(JsonReader& rope, std::size_t pairs, RopeConfig& c) {
    c.original_max_positions = original_positions(rope);
    c.factor = stretch(rope, c);
    c.attention_factor = rope.double_or("attention_factor", 0, kMinSmall, kMaxSmall);
    c.short_factor = rope.double_list("short_factor", kMinSmall, kMaxFactor);
    c.long_factor = rope.double_list("long_factor", kMinSmall, kMaxFactor);
    const auto check = [&](const char* key, const std::vector<double>& factors) {
      if (!rope.has(key)) return rope.fail(key, "is missing");
      if (factors.size() == pairs) return;
      rope.fail(key, fmt::format("has {} entries for {} pairs of rotary dimensions", factors.size(), pairs));
    };
    check("short_factor", c.short_factor);
    check("long_factor", c.long_factor);
  }

  const ConfigPart& part_;
  JsonReader& text_;
};

}  // namespace

void read_rope(const ConfigPart& part) { RopeReader(part).read(); }

}  // namespace windrow
