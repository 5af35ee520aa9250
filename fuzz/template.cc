// Fuzzes the template engine: a template and a JSON object of variables behind it, split at the last byte
// 0xFF (which neither can hold). What is printed must be UTF-8, and its marks must lie inside of it, in
// order.
#include "text/template.h"

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/utf8.h"

namespace {

void check(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace windrow::text;  // NOLINT
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t cut = input.rfind('\xFF');
  const auto parsed = Template::parse(input.substr(0, cut), "t");
  if (!parsed.ok()) return 0;
  Template::Input variables;
  variables.texts = {{"bos_token", "<s>"}};
  variables.flags = {{"add_generation_prompt", true}};
  variables.json = {
      {"messages", R"([{"role": "user", "content": "a<s> b"}, {"role": "assistant", "content": " c\n"}])"}};
  if (cut != input.npos) variables.variables = std::string(input.substr(cut + 1));
  variables.now = windrow::CivilTime{2026, 3, 7, 15, 4, 5};
  const auto text =
      parsed->render(variables, {.output_bytes = 1 << 16, .steps = 50'000, .memory_bytes = 1 << 22});
  if (!text.ok()) return 0;
  check(windrow::find_invalid_utf8(text->bytes()) == std::string::npos);
  std::size_t end = 0;
  for (const Span& span : text->plain()) {
    check(span.begin < span.end && span.end <= text->size() && (end == 0 || span.begin > end));
    end = span.end;
  }
  return 0;
}
