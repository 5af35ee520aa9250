// Any bytes as a config.json, and after a first NUL byte as its generation_config.json: refused, or a
// configuration that holds together.
#include "model/config.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "model/config_invariants.h"

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
  check(windrow::ConfigInvariants::broken(*config).empty());
  return 0;
}
