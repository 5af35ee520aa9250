// The border of the template engine: failures inside become Status here.
#include "text/template.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "base/json.h"
#include "base/utf8.h"
#include "text/template_eval.h"
#include "text/template_json.h"
#include "text/template_lexer.h"
#include "text/template_parser.h"
#include "text/template_time.h"

namespace windrow::text {
namespace {

template <class F>
auto guarded(const std::string& name, const F& f) -> decltype(f()) {
  try {
    return f();
  } catch (const TemplateFailure& failure) {
    return Status(failure.code, name + ": " + failure.message);
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kResourceExhausted, name + ": out of memory");
  } catch (const std::exception& e) {
    return Status(StatusCode::kInternal, name + ": " + e.what());
  }
}

}  // namespace

bool Template::Input::names(std::string_view key) const {
  const auto is_key = [&](const auto& item) { return item.first == key; };
  return std::any_of(texts.begin(), texts.end(), is_key) || std::any_of(flags.begin(), flags.end(), is_key) ||
         std::any_of(json.begin(), json.end(), is_key);
}

Result<Template> Template::parse(std::string_view source, std::string name) {
  return guarded(name, [&]() -> Result<Template> {
    if (source.size() > kMaxBytes) {
      return Status(StatusCode::kUnsupported,
                    fmt::format("{}: {} bytes of template, the limit is {}", name, source.size(), kMaxBytes));
    }
    if (const std::size_t bad = find_invalid_utf8(source); bad != source.npos) {
      return Status(StatusCode::kCorrupt, fmt::format("{}: not UTF-8 at byte {}", name, bad));
    }
    Template result;
    result.source_ = normalize_lines(source);
    result.block_ = std::make_shared<const Block>(parse_template(result.source_));
    result.name_ = name;
    return result;
  });
}

Result<TaintedText> Template::render(const Input& input, const RenderLimits& limits) const {
  return guarded(name_, [&]() -> Result<TaintedText> {
    if (input.now && !is_valid_time(*input.now))
      return Status(StatusCode::kInvalidArgument, name_ + ": the time is no date of the calendar");
    Budget budget(limits.steps, limits.memory_bytes);
    Evaluator evaluator(budget, limits.output_bytes, input.now);
    if (!input.variables.empty()) {
      const Value more = value_of_json(input.variables, "variables", budget);
      if (more.as_mapping() == nullptr)
        return Status(StatusCode::kInvalidArgument,
                      fmt::format("{}: variables: {}, expected an object", name_, more.type_name()));
      for (const Mapping::Entry& entry : more.as_mapping()->entries) {
        const std::string& key = entry.key->bytes();
        if (input.names(key)) {
          return Status(StatusCode::kInvalidArgument,
                        fmt::format("{}: variables can't set {}", name_, quote(key)));
        }
        evaluator.set(key, entry.value);
      }
    }
    for (const auto& [key, text] : input.texts) evaluator.set(key, Value::text(text, false));
    for (const auto& [key, flag] : input.flags) evaluator.set(key, Value(flag));
    for (const auto& [key, json] : input.json) evaluator.set(key, value_of_json(json, key, budget));
    return evaluator.run(*block_);
  });
}

}  // namespace windrow::text
