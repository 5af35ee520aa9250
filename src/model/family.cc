#include "model/family.h"

#include <fmt/format.h>

#include <string>

namespace windrow {
namespace {

constexpr FamilyEntry kFamilies[] = {{"gemma3_text", load_gemma3}, {"gemma3", load_gemma3}};

}  // namespace

Result<const FamilyEntry*> find_family(std::string_view model_type) {
  std::string known;
  for (const FamilyEntry& e : kFamilies) {
    if (e.model_type == model_type) return &e;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", e.model_type);
  }
  return Status(StatusCode::kUnsupported,
                fmt::format("model type \"{}\" is not supported (supported: {})", model_type, known));
}

}  // namespace windrow
