// strftime over a moment that the caller gives.
//
// Thread safety: free functions.
#pragma once

#include <string>
#include <string_view>

#include "windrow/chat.h"

namespace windrow::text {

// Whether the moment is one of the Gregorian calendar, years 1 to 9999.
bool is_valid_time(const CivilTime& time) noexcept;
// %Y %y %m %d %e %j %b %h %B %a %A %u %w %H %I %M %S %p %F %D %T %R %n %t %%, with - behind the % for no
// padding, in English. Throws TemplateFailure for others. REQUIRES is_valid_time(time).
std::string format_time(const CivilTime& time, std::string_view format);

}  // namespace windrow::text
