// The storyteller converted into folders of their own, as the goldens of tests/data/mlx/checkpoints were
// made: 4bit (4 bits, groups of 64) and mixed (the embedding in 6 bits, down_proj in 8 bits of 32, the rest
// as 4bit).
#pragma once

#include <string>

#include "model/model_fixture.h"
#include "support/temp_folder.h"
#include "windrow/convert.h"

namespace windrow::testing {

inline const std::string kCheckpoints = WINDROW_TEST_DATA "/mlx/checkpoints";
inline constexpr const char* kMixed = "embed_tokens=6:64,down_proj=8:32";

inline ConvertOptions options_of(const std::string& kind) {
  ConvertOptions options;
  if (kind == "mixed") options.rules = must(parse_convert_rules(kMixed, options.group));
  return options;
}

class Converted {
 public:
  explicit Converted(const std::string& kind) {
    ThreadPool pool = must(ThreadPool::create(1));
    result = must(convert_model(kStoryteller, folder(), options_of(kind), pool));
  }
  std::string folder() const { return temp_.path("model"); }
  std::string file() const { return folder() + "/model.safetensors"; }

  Conversion result;

 private:
  TempFolder temp_;
};

}  // namespace windrow::testing
