// Civil time without a clock or a locale.
#include "text/template_time.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdint>

#include "text/template_value.h"

namespace windrow::text {
namespace {

constexpr std::string_view kMonths[] = {"January",   "February", "March",    "April",
                                        "May",       "June",     "July",     "August",
                                        "September", "October",  "November", "December"};
constexpr std::string_view kDays[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                      "Thursday", "Friday", "Saturday"};

std::chrono::year_month_day date_of(const CivilTime& t) {
  return std::chrono::year(t.year) / std::chrono::month(static_cast<unsigned>(t.month)) /
         std::chrono::day(static_cast<unsigned>(t.day));
}

}  // namespace

bool is_valid_time(const CivilTime& t) noexcept {
  return t.year >= 1 && t.year <= 9999 && t.month >= 1 && t.month <= 12 && t.day >= 1 && t.day <= 31 &&
         date_of(t).ok() && t.hour >= 0 && t.hour < 24 && t.minute >= 0 && t.minute < 60 && t.second >= 0 &&
         t.second <= 60;
}

std::string format_time(const CivilTime& t, std::string_view format) {
  const auto days = std::chrono::sys_days(date_of(t));
  const auto weekday = std::chrono::weekday(days).c_encoding();
  const auto year_begin = std::chrono::sys_days(std::chrono::year(t.year) / std::chrono::January / 1);
  const int hour12 = t.hour % 12 == 0 ? 12 : t.hour % 12;
  std::string out;
  for (std::size_t i = 0; i < format.size(); i++) {
    if (format[i] != '%') {
      out += format[i];
      continue;
    }
    const bool bare = i + 1 < format.size() && format[i + 1] == '-';
    if (bare) i++;
    const char c = ++i < format.size() ? format[i] : '\0';
    const auto number = [&](std::int64_t value, std::size_t width, char fill = '0') {
      const std::string digits = std::to_string(value);
      if (!bare && digits.size() < width) out.append(width - digits.size(), fill);
      out += digits;
    };
    switch (c) {
      case 'Y': number(t.year, 4); break;
      case 'y': number(t.year % 100, 2); break;
      case 'm': number(t.month, 2); break;
      case 'd': number(t.day, 2); break;
      case 'e': number(t.day, 2, ' '); break;
      case 'j': number((days - year_begin).count() + 1, 3); break;
      case 'b':
      case 'h': out += kMonths[t.month - 1].substr(0, 3); break;
      case 'B': out += kMonths[t.month - 1]; break;
      case 'a': out += kDays[weekday].substr(0, 3); break;
      case 'A': out += kDays[weekday]; break;
      case 'u': number(weekday == 0 ? 7u : weekday, 1); break;
      case 'w': number(weekday, 1); break;
      case 'H': number(t.hour, 2); break;
      case 'I': number(hour12, 2); break;
      case 'M': number(t.minute, 2); break;
      case 'S': number(t.second, 2); break;
      case 'p': out += t.hour < 12 ? "AM" : "PM"; break;
      case 'F': out += format_time(t, "%Y-%m-%d"); break;
      case 'D': out += format_time(t, "%m/%d/%y"); break;
      case 'T': out += format_time(t, "%H:%M:%S"); break;
      case 'R': out += format_time(t, "%H:%M"); break;
      case 'n': out += '\n'; break;
      case 't': out += '\t'; break;
      case '%': out += '%'; break;
      default:
        template_error(
            fmt::format("strftime_now: %{}{} is not supported", bare ? "-" : "", c == '\0' ? ' ' : c),
            StatusCode::kUnsupported);
    }
  }
  return out;
}

}  // namespace windrow::text
