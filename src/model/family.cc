#include "model/family.h"

#include <fmt/format.h>

#include <string>

#include "base/json.h"

namespace windrow {
namespace {

constexpr FamilyEntry kFamilies[] = {{"gemma3_text", gemma3_layers, load_gemma3}};

}  // namespace

Result<const FamilyEntry*> find_family(std::string_view model_type) {
  std::string known;
  for (const FamilyEntry& e : kFamilies) {
    if (e.model_type == model_type) return &e;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", e.model_type);
  }
  return Status(StatusCode::kUnsupported,
                fmt::format("model_type {} is not supported (supported: {})", quote(model_type), known));
}

}  // namespace windrow
