// A template of the language that Hugging Face's chat templates are written in (a subset of Jinja), parsed
// once and rendered under limits.
//
// Supported: {{ }}, {% if for set macro generation break continue raw %}, {# #}; the operators, filters,
// tests and methods of template_expr.cc, template_filters.cc, template_tests.cc, template_methods.cc.
// Others are refused by name when the template is parsed, or when they are reached. Differences to Jinja:
// a tuple is a list; keys of mappings are strings; integers have 64 bits; nothing is mutable but namespaces
// (as in transformers' sandbox).
//
// Cost: linear in the steps and bytes of the rendering, both bounded; see RenderLimits.
//
// Thread safety: a Template is immutable.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template_ast.h"
#include "windrow/chat.h"

namespace windrow::text {

struct RenderLimits {
  std::size_t output_bytes = std::size_t{16} << 20;   // the most that the tokenizer takes
  std::uint64_t steps = 20'000'000;                   // some seconds
  std::size_t memory_bytes = std::size_t{512} << 20;  // allocated in all, freed or not
};

class Template {
 public:
  static constexpr std::size_t kMaxBytes = std::size_t{256} << 10;  // the longest known one has 20 KiB

  // `name` begins each message.
  static Result<Template> parse(std::string_view source, std::string name);

  // The variables, texts trusted like the template's own, and JSON from outside.
  struct Input {
    std::vector<std::pair<std::string, std::string>> texts;
    std::vector<std::pair<std::string, bool>> flags;
    std::vector<std::pair<std::string, std::string>> json;  // name, JSON
    std::string variables;                                  // a JSON object of more; may be empty
    std::optional<CivilTime> now;

    bool names(std::string_view key) const;  // whether one of the first three has the name
  };
  Result<TaintedText> render(const Input& input, const RenderLimits& limits = {}) const;

  const std::string& source() const noexcept { return source_; }

 private:
  Template() = default;
  std::string name_;
  std::string source_;
  std::shared_ptr<const Block> block_;
};

}  // namespace windrow::text
