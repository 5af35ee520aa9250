#include "base/json_text.h"

#include <nlohmann/json.hpp>

namespace windrow {

std::string json_string(std::string_view text) { return nlohmann::json(std::string(text)).dump(); }

}  // namespace windrow
