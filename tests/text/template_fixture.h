// Rendering a template in one call.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "text/template.h"

namespace windrow::text {

// What `source` prints with these variables (a JSON object), or "ERROR: MESSAGE".
inline std::string render_text(const std::string& source, const std::string& variables = "",
                               const RenderLimits& limits = {}) {
  const Result<Template> parsed = Template::parse(source, "t");
  if (!parsed.ok()) return "ERROR: " + parsed.status().message();
  Template::Input input;
  input.variables = variables;
  const Result<TaintedText> text = parsed->render(input, limits);
  return text.ok() ? text->bytes() : "ERROR: " + text.status().message();
}

// The same, what came from outside between two bars.
inline std::string render_marked(const std::string& source, const std::string& variables) {
  const Result<Template> parsed = Template::parse(source, "t");
  if (!parsed.ok()) return "ERROR: " + parsed.status().message();
  Template::Input input;
  input.variables = variables;
  const Result<TaintedText> text = parsed->render(input);
  if (!text.ok()) return "ERROR: " + text.status().message();
  std::string out;
  std::size_t at = 0;
  for (const Span& span : text->plain()) {
    out += text->bytes().substr(at, span.begin - at) + "|";
    out += text->bytes().substr(span.begin, span.end - span.begin) + "|";
    at = span.end;
  }
  return out + text->bytes().substr(at);
}

}  // namespace windrow::text
