// Which modules a conversion rule means.
#pragma once

#include <string_view>

namespace windrow {

// Does the pattern ('*': any letters, '?': one) equal the path, or what of it follows some '.'?
bool matches(std::string_view pattern, std::string_view path);

}  // namespace windrow
