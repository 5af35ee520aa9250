// Texts of JSON that are written without a Json: building and destroying one allocates in ways that leak or
// end the process without memory.
#pragma once

#include <string>
#include <string_view>

namespace windrow {

// `text` as a string of JSON, in its quotes. Throws nlohmann::json::exception for text that is not UTF-8.
std::string json_string(std::string_view text);

}  // namespace windrow
