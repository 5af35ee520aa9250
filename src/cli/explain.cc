// CLI11's errors in this program's words.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "base/json.h"
#include "cli/command.h"

namespace windrow::cli {
namespace {

// Letters to insert, drop or change to make one text of the other (Levenshtein).
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); i++) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); j++) {
      const std::size_t change = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({change, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

// The name that a mistyped one may have meant: one that it begins, or one within two letters.
std::string nearest(const std::string& typed, const std::vector<std::string>& names) {
  std::string best;
  std::size_t least = 3;
  for (const std::string& name : names) {
    if (typed.size() > 3 && name.starts_with(typed)) return name;
    if (const std::size_t d = distance(typed, name); d < least) least = d, best = name;
  }
  return best;
}

std::string suggestion(const std::string& typed, const std::vector<std::string>& names) {
  const std::string name = nearest(typed, names);
  return name.empty() ? "" : fmt::format(", did you mean {}?", name);
}

std::vector<std::string> flag_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* o : app.get_options()) names.push_back(o->get_name());
  return names;
}

std::vector<std::string> subcommand_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(sub->get_name());
  return names;
}

// Of what is left over (in an order of CLI11's own) a flag is what is wrong, the rest may be its value.
std::string unexpected(const CLI::App& app) {
  const std::vector<std::string> left = app.remaining();
  for (const std::string& typed : left) {
    if (!typed.starts_with('-')) continue;
    const std::string flag = typed.substr(0, typed.find('='));
    return fmt::format("{}: no such flag{}", flag, suggestion(flag, flag_names(app)));
  }
  return left.empty() ? "" : fmt::format("{} is not expected", quote(left[0]));
}

// A flag without its value, with one it does not take, or given more than once.
std::string mismatch(const CLI::App& app, const std::string& message) {
  std::string flag = message.substr(0, message.find_first_of(": "));
  if (!flag.starts_with('-')) flag = "--" + flag;
  const CLI::Option* option = app.get_option_no_throw(flag);
  if (option == nullptr) return "";
  if (option->get_expected_max() == 0) return fmt::format("{}: takes no value", flag);
  const std::size_t given = option->results().size();
  if (given > 1) return fmt::format("{}: given {} times, allowed is once", flag, given);
  return fmt::format("{}: its value is missing ({})", flag, option->get_type_name());
}

}  // namespace

std::string explain(const CLI::ParseError& error, const CLI::App& app, int argc, char** argv) {
  std::string text;
  if (app.get_parent() == nullptr) {
    const std::vector<std::string> names = subcommand_names(app);
    if (argc > 1 && argv[1][0] != '-') {
      text = fmt::format("{} is no subcommand{}", quote(argv[1]), suggestion(argv[1], names));
    } else {
      text = fmt::format("a subcommand is needed: {}", fmt::join(names, ", "));
    }
  } else if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    text = unexpected(app);
  } else if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    text = mismatch(app, error.what());
  }
  return text.empty() ? error.what() : text;
}

}  // namespace windrow::cli
