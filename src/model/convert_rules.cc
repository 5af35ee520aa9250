#include "model/convert_rules.h"

#include <fmt/format.h>

#include <optional>

#include "base/json.h"
#include "windrow/codec.h"
#include "windrow/convert.h"

namespace windrow {
namespace {

// Without recursion: at a mismatch the last star takes one letter more.
bool matches_all(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0;
  std::optional<std::size_t> star;
  std::size_t taken = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      p++, t++;
    } else if (star) {
      p = *star + 1;
      t = ++taken;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') p++;
  return p == pattern.size();
}

Result<ConvertRule> parse_rule(std::string_view text, int group) {
  const auto refuse = [&](std::string_view what) {
    return Status(StatusCode::kInvalidArgument, fmt::format("rule {}: {}", quote(text), what));
  };
  const std::size_t equals = text.find('=');
  if (equals == text.npos || equals == 0)
    return refuse("expected PATTERN=BITS, PATTERN=BITS:GROUP or PATTERN=none");
  ConvertRule rule;
  rule.pattern = text.substr(0, equals);
  const std::string_view value = text.substr(equals + 1);
  if (value == "none") {
    rule.quantized = false;
    return rule;
  }
  // A codec's name without its q: the same bits and groups under the same checks.
  const std::string name = fmt::format("q{}", value);
  const Result<Codec> codec =
      Codec::parse(name.find(':') == name.npos ? fmt::format("{}:{}", name, group) : name);
  if (!codec.ok() || value.find(':') != value.rfind(':'))
    return refuse("bits are 2, 3, 4, 5, 6 or 8, the group is 32, 64 or 128");
  rule.bits = codec->bits();
  rule.group = codec->group();
  return rule;
}

}  // namespace

bool matches(std::string_view pattern, std::string_view path) {
  for (std::size_t begin = 0;;) {
    if (matches_all(pattern, path.substr(begin))) return true;
    const std::size_t dot = path.find('.', begin);
    if (dot == path.npos) return false;
    begin = dot + 1;
  }
}

Result<std::vector<ConvertRule>> parse_convert_rules(std::string_view text, int group) {
  std::vector<ConvertRule> rules;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    Result<ConvertRule> rule = parse_rule(text.substr(begin, end - begin), group);
    if (!rule.ok()) return rule.status();
    rules.push_back(std::move(*rule));
    begin = end + 1;
  }
  return rules;
}

}  // namespace windrow
