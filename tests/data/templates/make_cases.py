#!/usr/bin/env python3
"""Writes cases.json: what Jinja 3.1.6 renders, set up as transformers does, for the templates beside this
file and for the constructs below. Run it with the module jinja2 at hand:  python3 make_cases.py
An entry: {"template" (a file) or "source", "messages", "options", "expected" or "error"}. Renderings whose
error only has to be an error say "error": true."""
import datetime
import json
import os

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = os.path.dirname(os.path.abspath(__file__))
NOW = datetime.datetime(2026, 3, 7, 15, 4, 5)


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=line)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def refuse(message):
    raise jinja2.exceptions.TemplateError(message)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = refuse
    env.globals["strftime_now"] = NOW.strftime
    return env


ENV = environment()
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def case(template=None, source=None, messages=(), add_generation_prompt=True, **variables):
    text = source if source is not None else open(os.path.join(HERE, template)).read()
    entry = {"template": template} if template else {"source": source}
    if messages: entry["messages"] = list(messages)
    if not add_generation_prompt: entry["add_generation_prompt"] = False
    if variables: entry["variables"] = variables
    try:
        entry["expected"] = ENV.from_string(text).render(
            messages=list(messages), add_generation_prompt=add_generation_prompt, **TOKENS, **variables)
    except Exception as e:  # noqa: what Jinja refuses, we must refuse
        entry["error"] = True
        entry["jinja"] = type(e).__name__
    return entry


U = lambda text: {"role": "user", "content": text}
A = lambda text, **more: {"role": "assistant", "content": text, **more}
S = lambda text: {"role": "system", "content": text}
WEATHER = {"type": "function", "function": {"name": "weather", "description": "The weather of a place",
           "parameters": {"type": "object", "properties": {
               "place": {"type": "string", "description": "A town"},
               "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
               "days": {"type": "array", "items": {"type": "integer"}},
               "area": {"type": "object", "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}},
                        "required": ["lat"]},
               "any": {"oneOf": [{"type": "string", "description": "text"}, {"type": ["number", "null"]}]},
               "rows": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}},
               "detailed": {"type": "boolean", "default": False}}, "required": ["place"]},
           "return": {"type": "string"}}}
PING = {"type": "function", "function": {"name": "ping", "description": "Nothing"}}
CALL = {"id": "abcdefghi", "type": "function",
        "function": {"name": "weather", "arguments": {"place": "Zürich \"Ost\"", "days": [1, 2.5, None, True]}}}

TALKS = {
    "one": [U("Hi there")],
    "system": [S("Be brief."), U("  Tell me\n a story. "), A("Once.\n"), U("More: 你好 🦀")],
    "tools": [U("Weather?"), A("", tool_calls=[CALL]),
              {"role": "tool", "content": "sunny, 20°", "tool_call_id": "abcdefghi"}, A("Sun."), U("Thanks <b>&</b>")],
    "two answers": [U("a"), A("b"), A("c")],
    "thought": [U("q"), A("<think>\nhm, well\n</think>\n\nyes"), U("and?"), A("<think>x</think>no", thinking="t")],
    "tail": [U("q"), A("an answer", thinking="because")],
}

cases = []
for name in ["gemma", "llama3", "mistral", "qwen3", "phi3", "gpt_oss"]:
    for talk in TALKS.values():
        cases.append(case(name + ".jinja", messages=talk))
        cases.append(case(name + ".jinja", messages=talk, add_generation_prompt=False))
        cases.append(case(name + ".jinja", messages=talk, tools=[WEATHER, PING]))
cases += [
    case("qwen3.jinja", messages=TALKS["one"], enable_thinking=False),
    case("llama3.jinja", messages=TALKS["system"], date_string="1 Jan 2025", tools_in_user_message=False, tools=[PING]),
    case("gpt_oss.jinja", messages=TALKS["tools"], reasoning_effort="high", model_identity="Someone."),
    case("gemma.jinja", messages=[S([{"type": "text", "text": "sys"}]),
                                  {"role": "user", "content": [{"type": "text", "text": " see "}, {"type": "image"}]}]),
]

DATA = {"x": 5, "y": -7, "f": 2.5, "t": "Hello wörld", "e": "", "l": [3, 1, 2], "n": None, "b": True,
        "d": {"b": 1, "a": {"items": [1, 2], "k": "v"}, "items": "member", "C": [1]}, "big": 10**15,
        "people": [{"name": "Zoe", "age": 3, "p": {"q": 1}}, {"name": "abe", "age": 9, "p": {"q": 2}}, {"name": "Bo"}],
        "ws": "  \t a b\n c  ", "s": "don't stop-me (now) 'x'", "words": ["b", "A", "c", "a"], "html": "<a href=\"x\">"}
SOURCES = r"""
{{ x }} {{ f }} {{ b }} {{ n }} {{ e }} {{ missing }} {{ l }} {{ d }} {{ [t, "it's", 'q"', "\n\\"] }} {{ (1, 2)[1] }}
{{ x + y }} {{ x - y }} {{ x * y }} {{ x / 2 }} {{ y // 2 }} {{ y % 3 }} {{ x ** 3 }} {{ 2 ** -1 }} {{ -x }} {{ +x }} {{ f // 1 }} {{ -f % 2 }} {{ 7 % -3 }}
{{ 1 + 2 * 3 - 4 }} {{ (1 + 2) * 3 }} {{ 2 ~ 3 + 4 }} {{ -2 ** 2 }} {{ 10 - 2 - 3 }} {{ 2 ** 3 ** 2 }} {{ not x == 5 }} {{ 1 + -1 }}
{{ 'a' ~ 1 ~ none ~ [1] ~ 2.0 }} {{ 'ab' * 3 }} {{ 2 * 'x' }} {{ [1] * 2 }} {{ [1] + [2, 3] }} {{ 'a' 'b' "c" }}
{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 'a' < 'b' }} {{ x >= 5 }} {{ x != 5 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' == 1 }} {{ [1,2] == [1,2] }} {{ none == false }}
{{ 'lo' in t }} {{ 'k' in d }} {{ 'b' in d }} {{ 3 in l }} {{ 4 not in l }} {{ 'x' in missing }} {{ 1 in [1.0] }}
{{ x and y }} {{ e or 'other' }} {{ n or 0 }} {{ not e }} {{ not not x }} {{ 0 or none }} {{ x if b else y }} {{ x if n }} {{ 'a' if e else 'b' if n else 'c' }}
{{ t[0] }} {{ t[-1] }} {{ t[1:3] }} {{ t[:-3] }} {{ t[::-1] }} {{ t[7:] }} {{ t[::2] }} {{ l[1:] }} {{ l[::-1] }} {{ l[-2:] }} {{ l[5:] }} {{ l[2:0:-1] }} {{ l[9] }} {{ t[99] }} {{ t[-99:2] }}
{{ d.b }} {{ d['b'] }} {{ d.a.k }} {{ d['a']['k'] }} {{ d.nope }} {{ d['items'] }} {{ d.items() | list | length }} {{ d.a['items'] }} {{ people[0].p.q }} {{ people.0.name }}
{{ d.keys() | list }} {{ d.values() | list | length }} {{ d.get('b') }} {{ d.get('z') }} {{ d.get('z', 4) }}
{{ missing.x }}
{{ missing + 1 }}
{{ n.x }}
{{ x.y.z }}
{{ t() }}
{{ nofunction(1) }}
{{ 'a' + 1 }}
{{ 1 / 0 }}
{{ 1 < 'a' }}
{{ x | nofilter }}
{{ x is notest }}
{% for i in 5 %}{% endfor %}
{{ x is defined }} {{ missing is defined }} {{ missing is undefined }} {{ n is none }} {{ x is not none }} {{ t is string }} {{ d is mapping }} {{ l is iterable }} {{ x is iterable }} {{ l is sequence }} {{ f is number }} {{ b is number }} {{ b is boolean }} {{ b is true }} {{ x is true }} {{ x is integer }} {{ f is float }} {{ x is odd }} {{ x is even }} {{ x is divisibleby 5 }} {{ x is divisibleby(2) }} {{ x is eq 5 }} {{ x is in [5] }} {{ 'a' is lower }} {{ 'A' is upper }} {{ x is gt(4) }} {{ x is sameas 5 }} {{ d.items is callable }}
{{ x is defined and y is defined }} {{ not missing is defined }} {{ missing is not defined or false }} {{ t is string and t|length > 3 }}
{{ ws | trim }}| {{ t | upper }} {{ t | lower }} {{ s | title }} {{ s.title() }} {{ t | capitalize }} {{ 'ELLO' | capitalize }} {{ t | length }} {{ l | count }} {{ d | length }}
{{ missing | default('d') }} {{ e | default('d') }} {{ e | default('d', true) }} {{ n | d('d') }} {{ n | default('x', boolean=true) }} {{ x | default(default_value=1) }}
{{ l | join }} {{ l | join(', ') }} {{ words | join('-') }} {{ people | join('/', attribute='name') }} {{ t | join('.') }}
{{ t | replace('l', 'L') }} {{ t | replace('l', 'L', 1) }} {{ t.replace('o', '0') }} {{ t.replace('o', '0', 1) }} {{ 'aaa' | replace('aa', 'b') }}
{{ l | first }} {{ l | last }} {{ t | first }} {{ [] | first }} {{ l | list }} {{ 'ab' | list }} {{ d | list }} {{ x | string + 'a' }} {{ html | safe }}
{{ '42' | int }} {{ '4.9' | int }} {{ 'z' | int }} {{ 'z' | int(7) }} {{ f | int }} {{ ' -3 ' | int }} {{ '2.5' | float }} {{ 'z' | float }} {{ y | abs }} {{ x | float }} {{ true | int }}
{{ l | sort }} {{ words | sort }} {{ words | sort(reverse=true) }} {{ words | sort(case_sensitive=true) }} {{ people[:2] | sort(attribute='age', reverse=true) | map(attribute='name') | list }} {{ l | max }} {{ l | min }}
{{ d | dictsort }} {{ {'b': 2, 'A': 1, 'c': 0} | dictsort }} {{ {'b': 2, 'A': 1} | dictsort(by='value', reverse=true) }} {{ {'b': 2, 'A': 1} | dictsort(true) }}
{{ l | reverse | list }} {{ t | reverse }} {{ ['a', 'A', 'b', 'a'] | unique | list }} {{ d | items | list | length }}
{{ people | selectattr('age') | map(attribute='name') | list }} {{ people | selectattr('age', 'gt', 5) | list | length }} {{ people | rejectattr('age', 'defined') | map(attribute='name') | join }} {{ people | selectattr('name', 'equalto', 'Bo') | list }} {{ people | map(attribute='p.q', default=0) | list }}
{{ l | select('odd') | list }} {{ l | reject('odd') | list }} {{ ['', 'a'] | select | list }} {{ words | map('upper') | list }} {{ words | map('replace', 'a', 'x') | join }}
{{ 'a\nb\n\nc' | indent }} {{ 'a\nb\n\nc' | indent(2, true) }} {{ 'a\n\nb' | indent(2, blank=true) }} {{ 'a\nb' | indent('> ') }}
{{ d | tojson }} {{ t | tojson }} {{ t | tojson(ensure_ascii=true) }} {{ html | tojson }} {{ l | tojson(indent=2) }} {{ d | tojson(indent=4) }} {{ {} | tojson(indent=2) }} {{ [f, n, b, x, 1e100, 0.1, 1e-7, "\u0001\x7f🦀"] | tojson }} {{ "🦀é" | tojson(ensure_ascii=true) }} {{ d | tojson(sort_keys=true) }} {{ l | tojson(separators=(',', ':')) }} {{ {'a': [1, {}]} | tojson(separators=(',', ':')) }}
{{ ws.strip() }}| {{ ws.lstrip() }}| {{ ws.rstrip() }}| {{ 'xxaxx'.strip('x') }} {{ 'xyaxy'.lstrip('yx') }} {{ '\n\na\n'.strip('\n') }} {{ 'abc'.rstrip('bc') }}
{{ 'a,b,,c'.split(',') }} {{ ws.split() }} {{ 'a b  c '.split(' ') }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a b c d'.split(none, 2) }} {{ 'a\nb\r\nc\n'.splitlines() }} {{ 'x</t>y</t>z'.split('</t>')[-1] }}
{{ t.startswith('He') }} {{ t.endswith(('x', 'd')) }} {{ t.upper() }} {{ t.lower() }} {{ 'aBC'.capitalize() }} {{ 'straße'.upper() }} {{ 'abcabc'.find('c') }} {{ 'abc'.find('z') }} {{ 'aXbXc'.count('X') }} {{ ', '.join(['a', 'b']) }} {{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }} {{ '12'.isdigit() }} {{ ''.isdigit() }} {{ 'a1'.isalnum() }} {{ ' \t'.isspace() }}
{{ range(3) | list }} {{ range(1, 4) | list }} {{ range(6, 0, -2) | list }} {{ range(0) | list }} {{ dict(a=1, b='x') }} {{ {'a': 1, 'b': [1, {'c': none}]} }} {{ {'a': 1}.a }}
{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.depth }};{% endfor %}
{% for i in l if i > 1 %}{{ i }}{{ loop.length }},{% else %}none{% endfor %}{% for i in l if i > 9 %}{{ i }}{% else %}none{% endfor %}{% for i in [] %}{% else %}empty{% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for c in 'né' %}{{ c }}.{% endfor %}{% for (a, b) in [[1, 2], [3, 4]] %}{{ a + b }},{% endfor %}
{% for a, b in [[1, 2, 3]] %}{% endfor %}
{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}
{% for i in l %}{% for j in l %}{{ loop.cycle('a', 'b') }}{{ loop.depth }}{% endfor %}{{ loop.index }}{% endfor %}
{% set q = 1 %}{% for i in l %}{% set q = i %}{{ q }}{% endfor %}{{ q }}{% if true %}{% set q = 9 %}{% endif %}{{ q }}
{% set ns = namespace(a=1, z=[]) %}{% for i in l %}{% set ns.a = ns.a + i %}{% set ns.z = ns.z + [i] %}{% endfor %}{{ ns.a }}{{ ns.z }}{{ ns.nope }}{{ ns is defined }}
{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns['b'] }}
{% set d2 = {} %}{% set d2.a = 1 %}
{% set a, c = 1, 2 %}{{ a }}{{ c }}{% set block %}in {{ x }}{% endset %}{{ block }}!{% set trimmed | trim | upper %}  up  {% endset %}{{ trimmed }}
{% set x2 = x if x is defined else 0 %}{{ x2 }}{% set m = missing %}{{ m is defined }}
{% macro m(a, c=2, e=none) %}[{{ a }}{{ c }}{{ e }}{{ x }}]{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(c=4, a=5) }}{{ m() }}{{ m(1)|length }}
{% macro fact(n) %}{% if n < 2 %}1{% else %}{{ n * fact(n - 1)|int }}{% endif %}{% endmacro %}{{ fact(5) }}
{% macro m(a) %}{% set z = a %}{{ z }}{% endmacro %}{{ m(1) }}{{ z is defined }}
{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{% endmacro %}{{ m(b=2) }}
{% set after = 1 %}{% macro m() %}{{ after }}{% endmacro %}{% set after = 2 %}{{ m() }}
a{# comment #}b{#- c -#} d{% raw %}{{ x }}{% y %}{% endraw %}e {%- raw -%} {{ r }} {%- endraw -%} f
{% generation %}gen {{ x }}{% endgeneration %}
{{- x -}} y {{- ' z ' -}} w
{{ '}}' }}{{ '%}' }}{{ {'a': {'b': 1}}.a.b }}{{ "{{" }}{% if '%}' == '%}' %}k{% endif %}
{{ 1_000 }}
{{ "\u00e9\x41\t|\"\'\q" }}{{ 1.5e3 }}{{ 1e16 }}{{ 123456789.125 }}{{ 1e-5 }}{{ 100.0 }}
{{ x if }}
{{ }}
{% if x %}
{% endif %}
{% for x in %}{% endfor %}
{{ x
{% include 'a' %}
{% set 1 = 2 %}
{% frobnicate %}
{{ f(*l) }}
{{ a b }}
{{ [1, 2 }}
{% break %}
{# open
{{ 'open }}
{% if x %}a{% elif y %}b{% else %}c{% endif %}{% if not x %}a{% elif y %}b{% else %}c{% endif %}{% if 0 %}a{% elif '' %}b{% else %}c{% endif %}
{{ raise_exception('no: ' + t) }}
{{ strftime_now('%d %b %Y|%Y-%m-%d|%A %B %H:%M:%S %I %p|%j %y|%-d %-m|%a|%%') }}
{{ messages | length }}{{ add_generation_prompt }}{{ bos_token }}{{ eos_token }}
{{ l.append(4) }}
{{ d.update({'a': 1}) }}
{{ t.__class__ }}
{{ d.items() | list }} {{ (1,) }} {{ () }}
{{ x.__class__.__mro__ }}
""".strip("\n").split("\n")
MULTI = [
    "a\n  {% if true %}\n  b\n  {% endif %}\nc\n", "a\n  {%- if true -%}\n  b\n  {%- endif -%}\nc", "  {{ x }}\n{{ x }}\n\n",
    "a\n\t{%+ if true %}\nb{% endif +%}\nc", "{% for i in l %}\n{{ i }}\n{% endfor %}\nend\n\n", "a {# c #}\n  {# d #}\nb",
    "a\r\nb\rc{% if true %}\r\nd{% endif %}\r\n", "{% set a %}\n x\n{% endset %}\n[{{ a }}]", "  {#- x -#}  \n y", "{{ x }}  {% if true %}a{% endif %}  b",
    "\n\n{%- if true %}\n\nx{% endif %}", "{% if true %}{% if true %}\n\n  {% endif %}{% endif %}x", "{{ 'a\nb' }}", "{{\n  x\n  +\n  1\n}}",
    "x\n    {% raw %}\n  {{ a }}\n  {% endraw %}\ny", "{%-set a=1-%}{{a}}", "{%if x%}y{%endif%}", "{% macro m() -%}\n  a\n{%- endmacro %}\n[{{ m() }}]",
    "a\u00a0\n\u2003{%- if true -%}\u00a0b{% endif %}", "{{ d\n | tojson }}",
]
cases += [case(source=s, messages=TALKS["one"], **DATA) for s in SOURCES + MULTI]
shared = {"data": DATA, "tokens": TOKENS, "now": [NOW.year, NOW.month, NOW.day, NOW.hour, NOW.minute, NOW.second]}
for entry in cases:
    if entry.get("variables") == DATA: entry["variables"] = "data"
with open(os.path.join(HERE, "cases.json"), "w") as out:
    out.write(json.dumps({**shared, "cases": []}, ensure_ascii=False)[:-2] + "\n")
    out.write(",\n".join(json.dumps(entry, ensure_ascii=False) for entry in cases) + "\n]}\n")
