// Strict reading of flag values.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/json.h"
#include "cli/command.h"

namespace windrow::cli {
namespace {

// The whole text as a T, or nullopt-like false.
template <class T>
bool parse_all(std::string_view text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

using Parse = std::function<void(const std::string&)>;

CLI::Option* checked(CLI::App& app, const std::string& flag, const char* type, const std::string& help,
                     const Parse& parse) {
  return app.add_option_function<std::string>(flag, parse, help)->type_name(type);
}

// The help always tells what the check allows: both come from the same numbers.
std::string with_range(const std::string& help, const std::string& range, const std::string& default_text) {
  return fmt::format("{} ({}{})", help, range, default_text.empty() ? "" : ", default " + default_text);
}

}  // namespace

std::string FloatRange::text() const {
  return fmt::format("{} {}{} {}", low_open ? "above" : "from", low, high_open ? ", below" : " to", high);
}

CLI::Option* int_flag(CLI::App& app, const std::string& flag, int* to, int low, int high,
                      const std::string& help, const char* default_text) {
  const std::string range = fmt::format("from {} to {}", low, high);
  const std::string preset = default_text != nullptr ? default_text : std::to_string(*to);
  return checked(app, flag, "N", with_range(help, range, preset), [=](const std::string& text) {
    if (!parse_all(text, to) || *to < low || *to > high) {
      usage_error(flag, fmt::format("{} is not a whole number {}", quote(text), range));
    }
  });
}

CLI::Option* seed_flag(CLI::App& app, const std::string& flag, std::uint64_t* to, const std::string& help) {
  const std::string range = fmt::format("from 0 to {}", std::numeric_limits<std::uint64_t>::max());
  return checked(app, flag, "N", with_range(help, range, std::to_string(*to)), [=](const std::string& text) {
    if (!parse_all(text, to)) {
      usage_error(flag, fmt::format("{} is not a whole number {}", quote(text), range));
    }
  });
}

CLI::Option* float_flag(CLI::App& app, const std::string& flag, float* to, const FloatRange& range,
                        const std::string& help) {
  return checked(app, flag, "X", with_range(help, range.text(), fmt::format("{}", *to)),
                 [=](const std::string& text) {
                   if (!parse_all(text, to) || !range.holds(*to)) {
                     usage_error(flag, fmt::format("{} is not a number {}", quote(text), range.text()));
                   }
                 });
}

CLI::Option* ids_flag(CLI::App& app, const std::string& flag, std::vector<std::int32_t>* to,
                      const std::string& help) {
  return checked(app, flag, "ID,ID,...", help, [=](const std::string& text) {
    to->clear();
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      const std::string_view item = std::string_view(text).substr(begin, end - begin);
      std::int32_t id = 0;
      if (!parse_all(item, &id) || id < 0) {
        usage_error(flag, fmt::format("{} at place {} is not a token id (ids are whole numbers from 0, "
                                      "joined by commas)",
                                      quote(item), to->size()));
      }
      to->push_back(id);
      begin = end + 1;
    }
  });
}

CLI::Option* text_flag(CLI::App& app, const std::string& flag, std::string* to, const char* type,
                       const std::string& help) {
  return checked(app, flag, type, help, [=](const std::string& text) { *to = text; });
}

CLI::Option* path_flag(CLI::App& app, const std::string& flag, std::string* to, const char* type,
                       const std::string& help) {
  return checked(app, flag, type, help, [=](const std::string& text) {
    if (text.empty()) usage_error(flag, "is empty");
    *to = text;
  });
}

CLI::Option* choice_flag(CLI::App& app, const std::string& flag, std::vector<std::string> words,
                         const std::string& help, std::function<void(std::size_t)> chosen) {
  const std::string range = fmt::format("{}", fmt::join(words, ", "));
  return checked(app, flag, "WORD", with_range(help, range, words[0]), [=](const std::string& text) {
    const auto found = std::find(words.begin(), words.end(), text);
    if (found == words.end()) usage_error(flag, fmt::format("{} is none of {}", quote(text), range));
    chosen(static_cast<std::size_t>(found - words.begin()));
  });
}

CLI::Option* bool_flag(CLI::App& app, const std::string& flag, bool* to, const std::string& help) {
  return app.add_flag(flag, *to, help)->disable_flag_override();
}

}  // namespace windrow::cli
