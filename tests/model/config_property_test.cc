// config.json with arbitrary values at arbitrary keys.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/config_invariants.h"
#include "support/temp_folder.h"

namespace windrow {
namespace {

// Whatever value any keys of any family take: a refusal in one line, or a configuration that holds together.
RC_GTEST_PROP(Config, AnyValueAtAnyKeyIsRefusedOrConsistent, ()) {
  static const std::vector<nlohmann::json> kFamilies = [] {
    std::vector<nlohmann::json> families;
    for (const char* family : {"gemma2", "gemma3", "gemma3n", "gemma4", "gpt_oss", "llama", "mistral",
                               "olmo3", "phi3", "qwen3", "qwen3_next"}) {
      const std::string folder = std::string(WINDROW_TEST_DATA "/hf/") + family;
      families.push_back(nlohmann::json::parse(read_whole_file(folder + "/config.json")));
    }
    return families;
  }();
  nlohmann::json config = *rc::gen::elementOf(kFamilies);
  std::vector<std::string> keys;
  for (const auto& [key, value] : config.items()) keys.push_back(key);
  const auto value = rc::gen::oneOf(
      rc::gen::map(rc::gen::inRange<int>(-3, 70), [](int v) { return nlohmann::json(v); }),
      rc::gen::map(rc::gen::arbitrary<std::int64_t>(), [](std::int64_t v) { return nlohmann::json(v); }),
      rc::gen::map(rc::gen::arbitrary<double>(), [](double v) { return nlohmann::json(v); }),
      rc::gen::elementOf(std::vector<nlohmann::json>{nullptr,
                                                     true,
                                                     "",
                                                     "gemma2",
                                                     "gpt_oss",
                                                     nlohmann::json::array(),
                                                     nlohmann::json::object(),
                                                     {1, 2},
                                                     {{"rope_type", "linear"}, {"factor", 2}},
                                                     {{"rope_type", "yarn"}, {"beta_slow", 1e-3}},
                                                     {{"type", "dynamic"}, {"factor", 8}},
                                                     {{"rope_type", "longrope"}, {"short_factor", {1}}}}));
  const auto added = rc::gen::elementOf(std::vector<std::string>{
      "rope_scaling", "rope_theta", "partial_rotary_factor", "num_experts", "num_kv_shared_layers",
      "use_sliding_window", "use_double_wide_mlp", "global_head_dim", "per_layer_config"});
  for (int i = *rc::gen::inRange(1, 4); i > 0; i--)
    config[*rc::gen::oneOf(rc::gen::elementOf(keys), added)] = *value;
  const Result<ModelConfig> result = parse_config(config.dump(), "");
  if (!result.ok()) {
    const Status status = result.status();
    RC_ASSERT(status.message().starts_with("config.json: "));
    RC_ASSERT(status.message().find('\n') == std::string::npos);
    return;
  }
  RC_ASSERT(ConfigInvariants::broken(*result) == "");
}

}  // namespace
}  // namespace windrow
