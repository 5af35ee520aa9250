// What came from outside stays marked, whatever is done to it.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "text/template_fixture.h"

namespace windrow::text {
namespace {

TEST(TemplateTaint, SurvivesEveryOperationOnStrings) {
  const std::string data = R"({"u": "user", "s": "  ab cd  ", "l": ["p", "q"], "d": {"k": "v"}, "n": 12})";
  const std::pair<std::string, std::string> cases[] = {
      {"<{{ u }}>", "<|user|>"},
      {"{{ '<' + u + '>' }}", "<|user|>"},
      {"{{ '<' ~ u ~ n ~ 1 }}", "<|user12|1"},
      {"{{ ('<' + u + '>')[1:3] }}", "|us|"},
      {"{{ ('<' + u + '>')[::-1] }}", ">|resu|<"},
      {"{{ ('<' + u + '>')[4] }}{{ ('<' + u + '>')[0] }}", "|r|<"},
      {"{{ s | trim }}{{ s.strip() }}", "|ab cdab cd|"},
      {"{{ ('a ' + u + ' b') | upper }}", "A |USER| B"},
      {"{{ ('a ' + u + ' b') | title }}", "A |User| B"},
      {"{{ ('a,' + u + ',b').split(',')[1] }}{{ ('a,' + u + ',b').split(',')[2] }}", "|user|b"},
      {"{{ (u + '-x').split('-') | join('+') }}", "|user|+x"},
      {"{{ u.replace('s', '<S>') }}", "|u|<S>|er|"},
      {"{{ 'x-y' | replace('-', u) }}", "x|user|y"},
      {"{{ l | join('<>') }}", "|p|<>|q|"},
      {"{{ '<>'.join(l) }}", "|p|<>|q|"},
      {"{{ d | tojson }}", R"(|{"k": "v"}|)"},
      {"{{ {'a': u, 'b': 'c'} | tojson }}", R"({"a": |"user"|, "b": "c"})"},
      {"{{ [u, 'x'] }}", "[|'user'|, 'x']"},
      {"{{ ('a\\n' + u) | indent(2) }}", "a\n  |user|"},
      {"{% for c in '<' + u %}{{ c }}.{% endfor %}", "<.|u|.|s|.|e|.|r|."},
      {"{% set x %}<{{ u }}>{% endset %}{{ x }}", "<|user|>"},
      {"{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(u) }}{{ m('t') }}", "<|user|><t>"},
      {"{% set ns = namespace(a=u) %}{{ ns.a }}", "|user|"},
      {"{{ u * 2 }}{{ 'x' * 2 }}", "|useruser|xx"},
      {"{{ n + 1 }}{{ 1 + 1 }}{{ u | length }}", "|13|24"},
      {"{{ '7' | int }}{{ '7' + u | default('x') }}", "77|user|"},
      {"{% for k, v in d.items() %}{{ k }}={{ v }}{% endfor %}", "|k|=|v|"},
      {"{{ l | first }}{{ l[1:] }}", "|p['q']|"},
      {"{{ d.k or 'x' }}{{ missing or 'x' }}{{ u if u else 'x' }}", "|v|x|user|"},
      {"{{ l | map('upper') | join }}{{ l | sort | last }}", "|PQq|"},
      {"{{ u.removeprefix('us') }}{{ ('a' + u).removesuffix('er') }}", "|er|a|us|"},
      {"{{ u | string | safe }}{{ u | reverse }}{{ u.capitalize() }}", "|userresuUser|"},
  };
  for (const auto& [source, expected] : cases) EXPECT_EQ(render_marked(source, data), expected) << source;
}

TEST(TaintedText, AnEmptySliceOfPlainBytesHasNoMark) {
  const TaintedText plain("abc", true);
  EXPECT_FALSE(plain.slice(1, 1).any_plain());
  TaintedText text("x", false);
  text.append(plain, 2, 2);
  text.append(plain, 0, 1);
  text.append(plain, 3, 3);
  text.append("y", true);
  EXPECT_EQ(text.plain(), (std::vector<Span>{{1, 3}}));
}

// Random slices, joins and replacements of a text of both kinds keep each byte's mark: outside bytes are
// lower case, the template's upper case, so that a mark can be told from its byte.
RC_GTEST_PROP(TemplateTaint, AByteKeepsItsMarkThroughAnyChainOfOperations, ()) {
  const std::string outside = *rc::gen::container<std::string>(rc::gen::inRange('a', 'f'));
  std::string expr = "('AB' + u + 'CD')";
  const int n = *rc::gen::inRange(0, 6);
  for (int i = 0; i < n; i++) {
    const std::string a = std::to_string(*rc::gen::inRange(-6, 7)),
                      b = std::to_string(*rc::gen::inRange(-6, 7));
    switch (*rc::gen::inRange(0, 7)) {
      case 0: expr = "(" + expr + "[" + a + ":" + b + "])"; break;
      case 1: expr = "(" + expr + "[::-1])"; break;
      case 2:
        expr = "(" + expr + ".replace('" + std::string(1, *rc::gen::inRange('a', 'f')) + "', 'X'))";
        break;
      case 3: expr = "(" + expr + ".split('A') | join('Z'))"; break;
      case 4: expr = "(" + expr + " ~ u ~ 'E')"; break;
      case 5: expr = "(" + expr + " | trim('Aa'))"; break;
      default: expr = "(" + expr + " | replace('B', u))"; break;
    }
  }
  const std::string marked = render_marked("{{ " + expr + " }}", "{\"u\": \"" + outside + "\"}");
  bool plain = false;
  for (const char c : marked) {
    if (c == '|') {
      plain = !plain;
    } else {
      RC_ASSERT((c >= 'a' && c <= 'z') == plain);
    }
  }
  RC_ASSERT(!plain);
}

}  // namespace
}  // namespace windrow::text
