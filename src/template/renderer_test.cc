// What is covered: what statements, expressions and white space of a template become. How: tables
// of templates and the text that Jinja itself makes of them with trim_blocks and lstrip_blocks on.
#include "template/testing_render.h"

namespace stemma {
namespace {

TEST(Renderer, Text) {
  expect_all({
      {"", ""},
      {"plain", "plain"},
      {"a\n", "a"},
      {"a\n\n", "a\n"},
      {"a\r\nb\r", "a\nb"},
      {"{", "{"},
      {"{ {", "{ {"},
      {"}}", "}}"},
      {"a{b", "a{b"},
      {"{# c #}", ""},
      {"a{# c #}b", "ab"},
      {"x{#- c -#} y", "xy"},
      {R"({{ "{{" }})", "{{"},
      {R"({{ "}}" }})", "}}"},
      {"{{ '%}' }}", "%}"},
      {"{{ 'a' 'b' }}", "ab"},
  });
}

TEST(Renderer, TrimAndLstrip) {
  expect_all({
      {"a\n  {% if true %}\n  b\n  {% endif %}\nc", "a\n  b\nc"},
      {"a\n\t{# note #}\nb", "a\nb"},
      {"a  {% if true %}b{% endif %}  c", "a  b  c"},
      {"x\n  {{ 1 }}\ny", "x\n  1\ny"},
      {"x\n  {%+ if true %}y{% endif %}", "x\n  y"},
      {"{% if true +%}\nx{% endif %}", "\nx"},
      {"x \n {%- if true -%} \n y \n {%- endif -%} \n z", "xyz"},
      {"  {% if true %}\n  {% if true %}\nq{% endif %}{% endif %}", "q"},
      {"x\n  {{- 1 -}}  \n y", "x1y"},
      {"{#- c -#}\n\n x", "x"},
      {"a\n {# b +#}\nc", "a\n\nc"},
      {"  {% set a = 1 %}  {{ a }}", "  1"},
      {"a \u00a0\u3000{%- if true %}b{% endif %}", "ab"},
      {"{{ 1 -}}\n\n{{- 2 }}\n{% if true %}{{ 3 }}\n{% endif %}", "12\n3\n"},
      {"é\n  {% if true %}\nü{% endif %}", "é\nü"},
  });
}

TEST(Renderer, RawTextIsAsItStands) {
  expect_all({
      {"{% raw %}{{ x }}{% if %}{# c #}{% endraw %}", "{{ x }}{% if %}{# c #}"},
      {"a\n  {% raw %}\n b {{\n  {% endraw %}\nc", "a\n\n b {{\nc"},
      {"a {%- raw -%} \n b \n {%- endraw -%} \n c", "abc"},
      {"{% raw %}a{%+ endraw +%}\nb", "a\nb"},
      {"{%raw%}{% endra %}{%endraw%}x", "{% endra %}x"},
      {"a\n {%+ raw %}b{% endraw %}", "a\n b"},
      {"{% raw %}\n  {% endraw %}\nx", "\nx"},
      {"{% raw %}{% raw %}{% endraw %}y", "{% raw %}y"},
  });
}

TEST(Renderer, WithBindsNamesInItsBody) {
  expect_all({
      {"{% with a = 1, b = 'x' ~ 'y' %}{{ a }}{{ b }}{% endwith %}{{ a }}", "1xy"},
      {"{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}", "211"},
      {"{% with %}{% set q = 3 %}{{ q }}{% endwith %}{{ q }}", "3"},
      {"{% set a = 1 %}{% with b = 2 %}{% set a = 3 %}{{ a }}{% endwith %}{{ a }}", "31"},
      {"{% with (a, b) = (1, 2), c = 3 %}{{ a + b + c }}{% endwith %}", "6"},
      {"{% with a = 5 %}{% macro m() %}{{ a }}{% endmacro %}{{ m() }}{% endwith %}", "5"},
      {"{% for i in [1, 2, 3] %}{% with j = i %}{% if j == 2 %}{% continue %}{% endif %}{{ j }}"
       "{% endwith %}{% endfor %}",
       "13"},
  });
}

TEST(Renderer, FiltersOfWhatABodyWrites) {
  expect_all({
      {"{% filter upper %}a{{ 'b' }}{% endfilter %}", "AB"},
      {"{% filter replace('a', 'bb')|upper|trim %} xax {% endfilter %}|", "XBBX|"},
      {"{% filter upper %}{% set z = 1 %}{{ z }}{% endfilter %}{{ z }}", "1"},
      {"{% filter replace('a', r) %}{% set r = 'q' %}abc{% endfilter %}", "qbc"},
      {"{% filter upper %}a{% filter replace('b', 'c') %}bB{% endfilter %}{% endfilter %}", "ACB"},
      {"{% filter trim %}{% for i in [1] %}{% break %}{% endfor %} x {% endfilter %}", "x"},
      {"{% set v | upper %}a\n{% endset %}{{ v }}", "A\n"},
      {"{% set v | trim | length %} abc {% endset %}{{ v + 1 }}", "4"},
      {"{% macro m() %}{% filter lower %}M{% endfilter %}{% endmacro %}"
       "{% filter replace('a', m()) %}XaX{% endfilter %}",
       "XmX"},
  });
}

TEST(Renderer, If) {
  expect_all({
      {"{% if x %}1{% elif y %}2{% else %}3{% endif %}", "1"},
      {"{% if none %}1{% elif true %}2{% endif %}|", "2|"},
      {R"({% if [] or {} or "" or 0 or 0.0 %}1{% else %}2{% endif %})", "2"},
      {"{% if undefined_name %}1{% else %}2{% endif %}", "2"},
      {"{% if not false and not none %}y{% endif %}", "y"},
  });
}

TEST(Renderer, For) {
  expect_all({
      {"{% for i in [1,2,3] %}{{ i }}{% endfor %}", "123"},
      {"{% for i in [] %}a{% else %}none{% endfor %}", "none"},
      {"{% for i in [1,2,3,4] if i % 2 == 0 %}{{ loop.index }}:{{ i }} {% endfor %}", "1:2 2:4 "},
      {"{% for i in [1,2,3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ "
       "loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.depth }}{{ loop.depth0 }};{% "
       "endfor %}",
       "10TrueFalse33210;21FalseFalse32110;32FalseTrue31010;"},
      {"{% for i in [1,2,3] %}{{ loop.previtem }}<{{ i }}<{{ loop.nextitem }};{% endfor %}",
       "<1<2;1<2<3;2<3<;"},
      {"{% for k, v in {\"a\": 1, \"b\": 2}.items() %}{{ k }}={{ v }};{% endfor %}", "a=1;b=2;"},
      {"{% for (a, b) in [[1,2],[3,4]] %}{{ a + b }},{% endfor %}", "3,7,"},
      {R"({% for c in "añ🙂" %}{{ c }}.{% endfor %})", "a.ñ.🙂."},
      {R"({% for k in {"a": 1} %}{{ k }}{% endfor %})", "a"},
      {"{% for i in nothing %}x{% else %}e{% endfor %}", "e"},
      {"{% for i in range(3) %}{% for j in range(i) %}{{ loop.index }}{{ loop.depth }}{% endfor "
       "%}{{ loop.index }};{% endfor %}",
       "1;112;11213;"},
      {"{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i > 4 %}{% break "
       "%}{% endif %}{{ i }}{% endfor %}",
       "0134"},
      {"{% for i in range(5, 0, -2) %}{{ i }}{% endfor %}", "531"},
      {"{% for i in [1,2] %}{{ i }}{% break %}{% else %}e{% endfor %}", "1e"},
      {"{% set a = 1 %}{% for i in [] %}{% else %}{% set a = 2 %}{{ a }}{% endfor %}{{ a }}", "21"},
      {"{% for i in [1,2] %}{{ i }}{% continue %}{% else %}e{% endfor %}", "12e"},
      {"{% for i in [1,2] %}{{ i }}{% if i == 2 %}{% break %}{% endif %}{% else %}e{% endfor %}",
       "12"},
      {"{% for i in [1,2] %}{% for j in [1] %}{% break %}{% else %}{% continue %}{% endfor %}x{% "
       "else %}e{% endfor %}",
       "e"},
      {"{% for i in [1] if false %}{% else %}empty{% endfor %}", "empty"},
      {"{% for m in messages %}{{ m.role }}{% if not loop.last %},{% endif %}{% endfor %}",
       "system,user,assistant"},
      {"{% for a in [[1,2],[3]] %}{% for b in a %}{{ loop.index }}{% endfor %}-{{ loop.index }}{% "
       "endfor %}",
       "12-11-2"},
  });
}

// As Jinja's generators do: a flag that a body sets ends the loop, or begins it.
TEST(Renderer, AConditionOfAForIsAskedWhenItsItemComes) {
  const std::string n = "{% set ns = namespace(n=0) %}";
  const std::string counts = "{% set ns.n = ns.n + 1 %}{% endfor %}";
  const std::string until_2 = n + "{% for i in [1,2,3,4] if ns.n < 2 %}";
  EXPECT_EQ(rendered(until_2 + "{{ i }}" + counts), "12");
  EXPECT_EQ(rendered(until_2 + "{{ loop.index }}{{ loop.previtem }};" + counts), "1;21;");
  EXPECT_EQ(rendered(n + "{% for i in [1,2,3,4] if ns.n != 1 %}{{ i }}" + counts), "1");
  // What looks ahead has the condition asked before the body goes on.
  EXPECT_EQ(rendered(until_2 + "{{ i }}{{ loop.last }}{{ loop.nextitem }};" + counts),
            "1False2;2False3;3True;");
  EXPECT_EQ(rendered(until_2 + "{{ loop.length }}{{ loop.revindex0 }} " + counts), "43 42 41 40 ");
  EXPECT_EQ(rendered(until_2 + "{% break %}{% endfor %}{% for i in [1] if true %}" + counts), "");
}

// The condition sees what is seen at the loop, not what its body set.
TEST(Renderer, AConditionOfAForIsNoPartOfItsBody) {
  expect_all({
      {"{% set a = 1 %}{% for i in [1,2] if a == 1 %}{% set a = 2 %}{{ i }}{{ loop.last }}"
       "{% endfor %}",
       "1False2True"},
      {"{% for i in [1,2] %}{% for j in [3,4] if loop.last %}{{ i }}{{ j }}{{ loop.length }};"
       "{% endfor %}{% endfor %}",
       "232;242;"},
      {"{% set ns = namespace() %}{% for i in [1,2,3] if i > 1 %}{% set ns.l = loop %}{% endfor %}"
       "{{ ns.l.length }}{{ ns.l.previtem }}",
       "22"},
  });
}

TEST(Renderer, Scope) {
  expect_all({
      {"{% set a = 1 %}{% for i in [1,2] %}{% set a = a + i %}{{ a }}{% endfor %}{{ a }}", "231"},
      {"{% set a = 1 %}{% if true %}{% set a = 2 %}{% endif %}{{ a }}", "2"},
      {"{% for i in [1,2] %}{{ z }}{% set z = i %}{% endfor %}|{{ z }}", "|"},
      {"{% set ns = namespace(n=0) %}{% for i in [1,2,3] %}{% set ns.n = ns.n + i %}{% endfor %}{{ "
       "ns.n }}",
       "6"},
      {"{% set ns = namespace(a=1, b=\"x\") %}{% set ns.c = ns.b ~ ns.a %}{{ ns.c }}{{ ns.d }}",
       "x1"},
      {"{% set t %}a{{ 1 }}b{% endset %}[{{ t }}]", "[a1b]"},
      {"{% set t %}{% set u = 1 %}{{ u }}{% endset %}{{ t }}{{ u }}", "1"},
      {"{% set a, b = 1, 2 %}{{ a }}{{ b }}", "12"},
      {"{% set a = 1, 2 %}{{ a[1] }}", "2"},
      {"{% for i in [1] %}{% set messages = [] %}{{ messages|length }}{% endfor %}{{ "
       "messages|length }}",
       "03"},
      {"{% set loop = 5 %}{{ loop }}", "5"},
      {"{% for i in [1,2] %}{% for loop_ in [3] %}{{ i }}{% endfor %}{% endfor %}{{ i }}", "12"},
  });
}

// As Jinja binds names, which it does before it renders: x is "ex" by the caller.
TEST(Renderer, WhatAScopeSetsBeforeItReadsItIsItsOwnFromTheBegin) {
  expect_all({
      {"{% for i in [1] %}[{{ x }}]{% endfor %}{% set x = 1 %}{{ x }}", "[]1"},
      {"{% set y %}[{{ x }}]{% endset %}{{ y }}{% set x = 1 %}{{ x }}", "[]1"},
      {"{% set x %}[{{ x }}]{% endset %}{{ x }}", "[]"},
      {"{% macro m() %}[{{ x }}]{% endmacro %}{{ m() }}{% set x = 1 %}{{ m() }}", "[][1]"},
      {"{% for i in [1,2] %}{% for j in [1] %}[{{ x }}]{% endfor %}{% set x = i %}{{ x }}"
       "{% endfor %}",
       "[]1[]2"},
  });
}

TEST(Renderer, WhatAScopeReadsFirstOrMayNotSetIsTheCallers) {
  expect_all({
      {"{{ x }}{% for i in [1] %}[{{ x }}]{% endfor %}{% set x = 1 %}", "ex[ex]"},
      {"{% for i in [1] %}[{{ x }}]{% endfor %}{% set x = x ~ 1 %}{{ x }}", "[ex]ex1"},
      {"{% for i in [1] %}[{{ x }}]{% endfor %}{% if true %}{% set x = 1 %}{% endif %}{{ x }}",
       "[ex]1"},
      {"{% for x in [1] %}{{ x }}{% endfor %}{{ x }}", "1ex"},
      {"{% macro m(x) %}{{ x }}{% endmacro %}{{ m(1) }}{{ x }}", "1ex"},
      {"{% set x = 1 %}{% for i in [1] %}{% for j in [1] %}{{ x }}{% endfor %}{% set x = 2 %}"
       "{% endfor %}",
       "1"},
  });
}

TEST(Renderer, Arithmetic) {
  expect_all({
      {"{{ 1 + 2 * 3 - 4 }}", "3"},
      {"{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 / 2 }} {{ 4 / 2 }}",
       "3 -4 1 2 -2 3.5 2.0"},
      {"{{ 1.5 + 1 }} {{ 1.0 }} {{ 1e20 }} {{ 1e-5 }} {{ 0.1 + 0.2 }} {{ 123456789.0 }} {{ 1e15 }} "
       "{{ 1e16 }} {{ 0.0001 }}",
       "2.5 1.0 1e+20 1e-05 0.30000000000000004 123456789.0 1000000000000000.0 1e+16 0.0001"},
      {"{{ 7.5 // 2 }} {{ -7.5 // 2 }} {{ 7.5 % 2 }} {{ -7.5 % 2 }}", "3.0 -4.0 1.5 0.5"},
      {R"({{ "a" + "b" ~ 1 ~ none ~ true ~ undefined_name }})", "ab1NoneTrue"},
      {R"({{ "ab" * 3 }} {{ 2 * "x" }} {{ [1] * 2 }})", "ababab xx [1, 1]"},
      {"{{ [1] + [2] }}", "[1, 2]"},
      {"{{ -3 }} {{ +3 }} {{ - 2.5 }} {{ true + 1 }}", "-3 3 -2.5 2"},
      {R"({{ 1 ~ 2 + "x" ~ 3 }})", "12x3"},
      {"{{ 2 - 1 - 1 }} {{ 8 / 2 / 2 }}", "0 2.0"},
      {"{{ (1, 2) }} {{ (1,) }} {{ () }} {{ 1, 2 }}", "(1, 2) (1,) () (1, 2)"},
      {"{{ (-3)|abs }}", "3"},
  });
}

TEST(Renderer, Comparison) {
  expect_all({
      {"{{ 1 == 1.0 }} {{ 1 == true }} {{ \"a\" == \"a\" }} {{ [1] == [1] }} {{ {\"a\":1} == "
       "{\"a\":1} }} {{ none == none }} {{ none == false }}",
       "True True True True True True False"},
      {"{{ 1 < 2 <= 2 }} {{ 1 < 2 > 5 }} {{ \"a\" < \"b\" }} {{ \"é\" > \"z\" }}",
       "True False True True"},
      {"{{ 1 in [1,2] }} {{ \"b\" in \"abc\" }} {{ \"k\" in {\"k\":1} }} {{ 3 not in [1] }} {{ "
       "\"\" in \"a\" }} {{ 1 in {} }} {{ 1 in undefined_name }}",
       "True True True True True False False"},
      {R"({{ not 1 == 2 }} {{ not "a" in "b" }})", "True True"},
      {"{{ 1 and 2 }} {{ 0 or \"x\" }} {{ \"\" and 1 }}| {{ none or none }}", "2 x | None"},
      {"{{ 1 if true else 2 }} {{ 1 if false else 2 }} {{ 1 if false }}|", "1 2 |"},
      {R"({{ "a" if x else "b" if y else "c" }})", "a"},
      {"{{ (1, 2) == [1, 2] }} {{ undefined_a == undefined_b }}", "False True"},
      {"{{ 1 != 2 }}{{ 2 >= 2 }}{{ 3 > 4 }}", "TrueTrueFalse"},
  });
}

TEST(Renderer, Access) {
  expect_all({
      {"{{ messages[0].content }} {{ messages[0][\"role\"] }} {{ messages[-1].role }}",
       "S system assistant"},
      {"{{ messages[9] }}|{{ messages[0].missing }}|{{ messages[0][\"missing\"] }}|", "|||"},
      {"{{ \"abc\"[1] }} {{ \"añ🙂b\"[2] }} {{ \"abc\"[-1] }} {{ \"abc\"[7] }}|", "b 🙂 c |"},
      {"{{ \"abcdef\"[1:3] }} {{ \"abcdef\"[::-1] }} {{ \"abcdef\"[::2] }} {{ \"añ🙂\"[:2] }} {{ "
       "\"abc\"[5:] }}|",
       "bc fedcba ace añ |"},
      {"{{ [1,2,3,4][1:] }} {{ [1,2,3,4][:-1] }} {{ [1,2,3,4][::-1] }} {{ [1,2,3,4][3:0:-2] }} {{ "
       "[1,2,3][-100:100] }}",
       "[2, 3, 4] [1, 2, 3] [4, 3, 2, 1] [4, 2] [1, 2, 3]"},
      {"{{ (1,2,3)[1:] }}", "(2, 3)"},
      {R"({{ {"a": {"b": [1, 2]}}.a.b[1] }} {{ {"a": 1}["a"] }})", "2 1"},
      {"{{ [5,6].1 }}", "6"},
      {R"({{ "x".y }}|{{ 5["a"] }}|{{ none.a }}|)", "|||"},
      {R"({{ {"items": 5}["items"] }})", "5"},
      {"{{ [1,2][true] }}", "2"},
      {"{{ [[1,2],[3]][0][1] }}", "2"},
      {"{{ messages[1:][0].role }}", "user"},
      {"{{ {'a': 1}[1:] }}|{{ 5[1:] }}|{{ true[:1] }}|{{ 2.5[1:] }}|{{ {'a': 1}[::0] }}|", "|||||"},
      {"{{ none[:3] is defined }}", "False"},
  });
}

TEST(Renderer, Literals) {
  expect_all({
      {R"({{ 'a\nb\t\\\'\"' }})", "a\nb\t\\'\""},
      {R"({{ "\u00e9\x41\101\/" }})", R"(éAA\/)"},
      {R"({{ "\U0001F642" }})", "🙂"},
      {R"({{ [1, "a", none, true, 1.5] }})", "[1, 'a', None, True, 1.5]"},
      {R"({{ {'a': [1, {'b': none}], 'c': 'it\'s'} }})", R"({'a': [1, {'b': None}], 'c': "it's"})"},
      {R"({{ [1,] }} {{ {"a":1,} }})", "[1] {'a': 1}"},
      {"{{ True }} {{ False }} {{ None }} {{ true }} {{ none }}", "True False None True None"},
      {"{{ \"multi\nline\" }}", "multi\nline"},
      {R"({{ ["a\nb"] }})", R"(['a\nb'])"},
      {R"({{ ["it's", 'q"', "b'\""] }})", R"(["it's", 'q"', 'b\'"'])"},
      {"{{ dict(a=1).a }} {{ {} }} {{ [] }}", "1 {} []"},
  });
}

// As Jinja finds it where there is no key of that name: a parameter without items has a method.
TEST(Renderer, AMethodThatIsNamedIsThere) {
  expect_all({
      {"{{ deep.items is defined }}{{ deep['items'] is defined }}{% if deep.items %}y{% endif %}",
       "TrueTruey"},
      {"{{ deep['items']['type'] == 'string' }}{{ deep.items.type is defined }}", "FalseFalse"},
      {"{{ deep.items is mapping }}{{ deep.items is string }}{{ deep.items is callable }}",
       "FalseFalseTrue"},
      {"{{ deep.items|default('x') == 'x' }}{{ deep.items in ['a'] }}", "FalseFalse"},
      {"{{ {'items': 5}['items'] }}{{ {'items': 5}.items == 5 }}", "5False"},
      {"{{ x.strip is defined }}{{ x.format is defined }}{{ x.strips is defined }}",
       "TrueTrueFalse"},
      {"{{ messages.index is defined }}{{ (1,).copy is defined }}", "TrueFalse"},
      {"{{ deep.pop is defined }}{{ deep['update'] is defined }}{{ messages.append is defined }}",
       "FalseFalseFalse"},
  });
}

}  // namespace
}  // namespace stemma
