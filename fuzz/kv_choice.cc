// Any bytes as a --kv-file: refused, or codecs that a plan of the model takes and that are read back as
// written.
#include "windrow/kv_choice.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "windrow/model.h"

using windrow::KvChoice;
using windrow::LayerShape;
using windrow::ModelInfo;
using windrow::Result;

namespace {

void check(bool holds) {
  if (!holds) std::abort();
}

// Two kinds of layers, one that shares the state of another, and a recurrent one.
ModelInfo model() {
  ModelInfo info;
  info.model_type = "fuzz_text";
  info.layers = {LayerShape{8, 2, 64}, LayerShape{windrow::kFullWindow, 1, 96}, LayerShape{8, 2, 64},
                 LayerShape{}};
  info.layers[2].donor = 0;
  info.layers[3].recurrent = windrow::RecurrentShape{
      .delta = {.key_heads = 1, .value_heads = 1, .key_dim = 16, .value_dim = 16}, .conv = {.channels = 48}};
  return info;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const ModelInfo info = model();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<KvChoice> kv = windrow::parse_kv_choice(text, "kv.json", info);
  if (!kv.ok()) {
    const windrow::Status status = kv.status();
    for (const char c : status.message()) check(static_cast<unsigned char>(c) >= 0x20);
    return 0;
  }
  check(windrow::plan_state(info, *kv, {.rows = 1, .tokens = 64, .step_tokens = 8}).ok());
  const Result<KvChoice> again =
      windrow::parse_kv_choice(windrow::kv_choice_json(*kv, info), "kv.json", info);
  check(again.ok());
  for (const int layer : {0, 1}) {
    const LayerShape& shape = info.layers[static_cast<std::size_t>(layer)];
    check(kv->of(layer, shape) == again->of(layer, shape));
  }
  return 0;
}
