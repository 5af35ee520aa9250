// Any bytes as a config.json, and after a first NUL byte as its generation_config.json: refused, or a
// configuration that holds together.
#include "model/config.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

using windrow::ModelConfig;
using windrow::Result;

namespace {

void check(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::size_t nul = text.find('\0');
  const std::string_view generation = nul == text.npos ? std::string_view() : text.substr(nul + 1);
  const Result<ModelConfig> config = windrow::parse_config(text.substr(0, nul), generation);
  if (!config.ok()) {
    const windrow::Status status = config.status();
    for (const char c : status.message()) check(static_cast<unsigned char>(c) >= 0x20);
    return 0;
  }
  check(config->hidden_size > 0 && config->intermediate_size > 0 && config->vocab_size > 0);
  check(config->layer_types.size() == static_cast<std::size_t>(config->num_layers));
  check(config->num_kv_heads > 0 && config->num_heads % config->num_kv_heads == 0);
  check(config->head_dim > 0 && config->head_dim % 2 == 0);
  check(config->rms_norm_eps > 0 && config->query_pre_attn_scalar > 0);
  check(config->rope_full.theta >= 1 && config->rope_full.factor >= 1);
  check(config->rope_sliding.theta >= 1 && config->rope_sliding.factor >= 1);
  for (const auto& ids : {config->bos_token_ids, config->eos_token_ids}) {
    for (const std::int32_t id : ids) check(id >= 0 && id < config->vocab_size);
  }
  return 0;
}
