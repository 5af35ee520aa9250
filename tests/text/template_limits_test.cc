// Templates and data made to hurt: each ends in time, within its memory, with an error that says why.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "text/template_eval.h"
#include "text/template_fixture.h"
#include "text/template_parser.h"

namespace windrow::text {
namespace {

std::string repeat(const std::string& unit, int n) {
  std::string out;
  for (int i = 0; i < n; i++) out += unit;
  return out;
}

Status failure(const std::string& source, const std::string& variables = "",
               const RenderLimits& limits = {}) {
  const Result<Template> parsed = Template::parse(source, "t");
  if (!parsed.ok()) return parsed.status();
  Template::Input input;
  input.variables = variables;
  const Result<TaintedText> text = parsed->render(input, limits);
  EXPECT_FALSE(text.ok()) << text->size();
  return text.status();
}

constexpr RenderLimits kSmall{.output_bytes = 1 << 20, .steps = 300'000, .memory_bytes = 16 << 20};

TEST(TemplateLimits, WorkWithoutEndRunsOutOfSteps) {
  for (const std::string source : {
           "{% for a in range(1000) %}{% for b in range(1000) %}{% for c in range(1000) %}{% endfor %}{% "
           "endfor %}{% endfor %}",
           "{% set ns = namespace(l=['a']) %}{% for i in range(9999) %}{% set ns.x = ns.l == ns.l %}{% for j "
           "in range(99) %}{% endfor %}{% endfor %}",
           "{% set s = 'a' * 1000000 %}{% for i in range(99999) %}{% if 'b' in s %}{% endif %}{% endfor %}",
           "{% set s = 'a' * 1000000 %}{% for i in range(99999) %}{% if s == s %}{% endif %}{% endfor %}",
           "{% set s = 'a' * 1000000 %}{% for i in range(99999) %}{% if s[500] %}{% endif %}{% endfor %}",
           "{% set s = 'a' * 3000000 %}{{ s.strip(s) }}{{ s | trim(s) }}",
           "{% macro m(n) %}{% if n > 0 %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(50) }}",
           "{{ range(60000) | unique | list | length }}",
       }) {
    const Status status = failure(source, "", kSmall);
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << source << status.message();
    EXPECT_EQ(status.message(), "t: line 1: the rendering needs more steps than the limit") << source;
  }
}

TEST(TemplateLimits, GrowthRunsOutOfMemory) {
  constexpr RenderLimits kLittleMemory{
      .output_bytes = 1 << 20, .steps = 20'000'000, .memory_bytes = 16 << 20};
  for (const std::string source : {
           "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
           "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
           "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
           "{% set ns = namespace(s='a') %}{% for i in range(99) %}{% set ns.s = ns.s.replace('a', 'aaa') "
           "%}{% endfor %}",
           "{% set ns = namespace(s='a') %}{% for i in range(99) %}{% set ns.s = [ns.s, ns.s] | join(ns.s) "
           "%}{% endfor %}",
           "{% set ns = namespace(l='a') %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor "
           "%}{{ ns.l }}",
           "{% set ns = namespace(l='a') %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor "
           "%}{{ ns.l | tojson }}",
           "{{ 'a' * 9223372036854775807 }}",
           "{{ [1] * 9223372036854775807 }}",
           "{{ range(9223372036854775807) | length }}",
           "{{ range(9223372036854775807, -9223372036854775807, -9223372036854775807) | list }}{{ "
           "range(99999999) }}",
           "{{ ('\\n' * 100000) | indent('x' * 1000, true, true) }}",
           "{{ ['a' * 1000] | join('x') * 100000 }}",
           "{% set s = 'a' * 2000000 %}{{ s.split('a') | length }}",
           "{% set s = 'a' * 4000000 %}{{ s | list | length }}",
           "{% macro m(n) %}{{ n }}{{ n }}{% endmacro %}{% set ns = namespace(x='a') %}{% for i in range(40) "
           "%}{% set ns.x = m(ns.x) %}{% endfor %}",
           "{% set ns = namespace(x='a') %}{% for i in range(40) %}{% set ns.x %}{{ ns.x }}{{ ns.x }}{% "
           "endset %}{% endfor %}",
           "{% set ns = namespace(x='a' * 1000) %}{% for i in range(1000) %}{% set ns.x = ns.x[1:] + 'bb' "
           "%}{% endfor %}{% for i in range(99999) %}{% set ns.x = ns.x + 'a' %}{% endfor %}",
       }) {
    const Status status = failure(source, "", kLittleMemory);
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << source << status.message();
    const bool memory = status.message() == "t: line 1: the rendering needs more memory than the limit";
    EXPECT_TRUE(memory || status.message() == "t: line 1: more than 1048576 bytes of output")
        << source << " " << status.message();
  }
}

TEST(TemplateLimits, OutputHasALimitOfItsOwn) {
  EXPECT_EQ(failure("{% for i in range(9999) %}{{ 'a' * 1000 }}{% endfor %}", "", {.output_bytes = 1 << 20})
                .message(),
            "t: line 1: more than 1048576 bytes of output");
}

TEST(TemplateLimits, NestingIsBoundedWhenParsedAndWhenRun) {
  const std::string deep = "t: line 1: expressions nested deeper than 64";
  EXPECT_EQ(failure("{{ " + repeat("(", 100'000) + "1" + repeat(")", 100'000) + " }}").message(), deep);
  EXPECT_EQ(failure("{{ " + repeat("[", 1000) + repeat("]", 1000) + " }}").message(), deep);
  EXPECT_EQ(failure("{{ " + repeat("{'a':", 1000) + "1" + repeat("}", 1000) + " }}").message(), deep);
  EXPECT_EQ(failure("{{ " + repeat("not ", 1000) + "1 }}").message(), deep);
  EXPECT_EQ(failure("{{ " + repeat("-", 1000) + "1 }}").message(), deep);
  EXPECT_EQ(failure("{{ " + repeat("1 if 1 else ", 1000) + "1 }}").message(), deep);
  EXPECT_EQ(failure("{{ a" + repeat("[a", 1000) + repeat("]", 1000) + " }}").message(), deep);
  const std::string high = "t: line 1: an expression of more than 200 levels";
  EXPECT_EQ(failure("{{ 1" + repeat(" + 1", 30'000) + " }}").message(), high);
  EXPECT_EQ(failure("{{ a" + repeat(".a", 30'000) + " }}").message(), high);
  EXPECT_EQ(failure("{{ a" + repeat("()", 30'000) + " }}").message(), high);
  EXPECT_EQ(failure("{{ a" + repeat(" | trim", 30'000) + " }}").message(), high);
  EXPECT_EQ(failure("{{ a" + repeat(" or a", 30'000) + " }}").message(), high);
  EXPECT_EQ(failure(repeat("{% if 1 %}", 1000) + repeat("{% endif %}", 1000)).message(),
            "t: line 1: blocks nested deeper than 64");
  EXPECT_EQ(render_text("{{ 1" + repeat(" + 1", 150) + " }}{{ 'a'" + repeat(" ~ 'a'", 5000) + " }}"),
            "151" + repeat("a", 5001));
  std::string branches = "{% if 0 %}";
  for (int i = 0; i < 5000; i++) branches += "{% elif 0 %}";
  EXPECT_EQ(render_text(branches + "{% else %}x{% endif %}"), "x");
}

TEST(TemplateLimits, EndlessRecursionEndsWithTheDepthAndSpareStack) {
  EXPECT_EQ(failure("{% macro m(n) %}{{ m(n) }}{% endmacro %}{{ m(1) }}").message(),
            "t: line 1: the template runs deeper than 1000 levels");
  // The dearest levels there are: a macro inside of blocks, calls and filters.
  EXPECT_EQ(failure("{% macro m(n) %}{% for i in [1] %}{% if n %}{% set x %}{{ ([m([n | string] | join)] | "
                    "first) | trim }}"
                    "{% endset %}{% endif %}{% endfor %}{% endmacro %}{{ m('1') }}")
                .message(),
            "t: line 1: the template runs deeper than 1000 levels");
}

TEST(TemplateLimits, ValuesDoNotNestWithoutBound) {
  const std::string deep = "t: line 1: values are nested deeper than 64";
  for (const char* wrapped : {"[ns.x]", "{'a': ns.x}", "ns.x + [ns.x]", "[ns.x].items or [ns.x]"}) {
    EXPECT_EQ(failure(fmt::format(
                          "{{% set ns = namespace(x=[]) %}}{{% for i in range(9999) %}}{{% set ns.x = {} %}}"
                          "{{% endfor %}}",
                          wrapped))
                  .message(),
              deep)
        << wrapped;
  }
  EXPECT_EQ(failure("{% set ns = namespace(x=[1]) %}{% for i in range(9999) %}{% for j in [ns.x] %}{% set "
                    "ns.x = loop %}"
                    "{% endfor %}{% endfor %}")
                .message(),
            deep);
  EXPECT_EQ(failure("{% set ns = namespace(x={}) %}{% for i in range(9999) %}{% set ns.x = {'a': ns.x}.get "
                    "%}{% endfor %}")
                .message(),
            deep);
  // A namespace in itself is no nesting: it is pointed to. It can't be printed or compared.
  EXPECT_EQ(render_text("{% set ns = namespace() %}{% set ns.me = [ns] %}{{ ns.me[0].me[0] == ns }}"),
            "True");
  EXPECT_EQ(failure("{% set ns = namespace() %}{% set ns.me = [ns] %}{{ ns.me }}").message(),
            "t: line 1: a namespace can't be printed");
}

TEST(TemplateLimits, LongDataIsLinear) {
  const std::string text(4 << 20, 'a');
  const std::string data = "{\"t\": \"" + text + "\"}";
  EXPECT_EQ(render_text("{{ t | trim }}", data), text);
  EXPECT_EQ(render_text("{{ (" + repeat("'a'", 3) + " * 900 + 'b') in t }}", data),
            "False");  // quadratic for find
  EXPECT_EQ(render_text("{{ t.split('b') | length }}{{ t.replace('b', 'c') | length }}", data), "14194304");
}

TEST(TemplateLimits, JsonIsBoundedToo) {
  const std::string deep = repeat("[", 200) + repeat("]", 200);
  EXPECT_EQ(failure("", "{\"a\": " + deep + "}").message(), "t: variables: JSON nested deeper than 64");
  EXPECT_EQ(failure("", "{\"a\": 1, \"a\": 2}").message(), "t: variables: duplicate key \"a\"");
  EXPECT_EQ(failure("", "[1]").message(), "t: variables: a list, expected an object");
  EXPECT_EQ(failure("", "{\"a\": 18446744073709551615}").message(),
            "t: variables: 18446744073709551615 is beyond 64 bits");
  EXPECT_EQ(failure("", "{\"a\": 1e999}").message(), "t: variables: invalid JSON at byte 11");
  EXPECT_EQ(failure("", "{\"a\": \"\xFF\"}").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(failure("", std::string("{\"a\": 1}\0", 9)).message(), "t: variables: invalid JSON: a NUL byte");
  std::string many = "{\"a\": [";
  for (int i = 0; i < 1'000'000; i++) many += "0,";
  EXPECT_EQ(failure("", many + "0]}", kSmall).code(), StatusCode::kResourceExhausted);
}

TEST(TemplateLimits, TheTemplateItselfHasALimit) {
  EXPECT_EQ(failure(std::string((256 << 10) + 1, 'a')).message(),
            "t: 262145 bytes of template, the limit is 262144");
  EXPECT_EQ(render_text(std::string(256 << 10, 'a')).size(), 256u << 10);
  EXPECT_EQ(failure("a\xFF").message(), "t: not UTF-8 at byte 1");
}

TEST(TemplateErrors, NameTheLineAndTheThing) {
  const std::pair<std::string, std::string> cases[] = {
      {"a\n{% include 'x' %}", "t: line 2: tag \"include\" is not supported"},
      {"{{ 1 }}\n\n{{ x | frob }}", "t: line 3: filter \"frob\" is not supported"},
      {"{{ x is frobbed }}", "t: line 1: test \"frobbed\" is not supported"},
      {"{{ x.y }}", "t: line 1: \"x\" is undefined, so that it has no member \"y\""},
      {"\n{{ 'a'.format(1) }}", "t: line 2: a string has no member \"format\", so that it can't be called"},
      {"{{ [].append(1) }}", "t: line 1: a list has no member \"append\", so that it can't be called"},
      {"{{ frob(1) }}", "t: line 1: \"frob\" is undefined, so that it can't be called"},
      {"{% if x %}\n", "t: line 1: the block that begins before line 1 has no {% endif %}"},
      {"{% endif %}", "t: line 1: {% endif %} without its beginning"},
      {"a\n{{ x", "t: line 2: {{ without }}"},
      {"\n{# x", "t: line 2: a comment {# without #}"},
      {"{% raw %}x", "t: line 1: {% raw %} without {% endraw %}"},
      {"{{ 'x }}", "t: line 1: a string without its closing '"},
      {"{{ ) }}", "t: line 1: an unexpected )"},
      {"{{ (1] }}", "t: line 1: an unexpected ]"},
      {"{{ ? }}", "t: line 1: \"?\" has no place in a tag"},
      {"{{ 1 2 }}", "t: line 1: \"2\" where the end of the tag is expected"},
      {"{% set x %}{% break %}{% endset %}", "t: line 1: {% break %} outside of a loop"},
      {"{% for i in [1] %}{% macro m() %}{% endmacro %}{% endfor %}",
       "t: line 1: a macro inside of a loop or a macro is not supported"},
      {"{% for i in x recursive %}{% endfor %}", "t: line 1: a recursive loop is not supported"},
      {"{{ 99999999999999999999 }}", "t: line 1: \"99999999999999999999\" is beyond 64 bits"},
      {"{{ 9223372036854775807 + 1 }}", "t: line 1: a result beyond 64 bits"},
      {"{{ -9223372036854775807 - 1 }}{{ (-9223372036854775807 - 1) // -1 }}",
       "t: line 1: a result beyond 64 bits"},
      {"{{ 1e308 * 10 }}", "t: line 1: a result that is no finite number"},
      {"{{ 1 // 0 }}", "t: line 1: division by 0"},
      {"{{ 'a' % 1 }}", "t: line 1: a string % an integer"},
      {"{{ {1: 2} }}", "t: line 1: a key is an integer, expected a string"},
      {"{{ x | join(1) }}", "t: line 1: join: argument \"d\" is an integer, expected a string"},
      {"{{ 'a' | replace('a') }}", "t: line 1: replace: argument \"new\" is missing"},
      {"{{ 'a' | trim(1, 2) }}", "t: line 1: trim: 2 arguments, at most 1 are supported"},
      {"{{ 'a' | trim(frob=1) }}", "t: line 1: trim: argument \"frob\" is not supported"},
      {"{{ x + 1 }}", "t: line 1: \"x\" is undefined, so that it has no +"},
      {"{{ loop.index }}", "t: line 1: \"loop\" is undefined, so that it has no member \"index\""},
      {"{% for i in [1] %}{{ loop.frob }}{% endfor %}", "t: line 1: loop.frob is not supported"},
      {"{{ strftime_now('%Y') }}", "t: line 1: strftime_now: no time was given"},
      {"{{ namespace }}", "t: line 1: a function can't be printed"},
      {"{{ '\\ud800' }}", "t: line 1: \\ud800 names no character"},
      {"{{ raise_exception('no\\nway') }}",
       "t: line 1: the template refuses the conversation: \"no\\x0away\""},
  };
  for (const auto& [source, expected] : cases) EXPECT_EQ(render_text(source), "ERROR: " + expected) << source;
}

}  // namespace
}  // namespace windrow::text
