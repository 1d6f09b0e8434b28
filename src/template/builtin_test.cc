// What is covered: filters, tests and methods. How: tables of templates and the text that Jinja
// itself makes of them; tojson as the model families' renderers install it.
#include "template/testing_render.h"

namespace stemma {
namespace {

TEST(Builtins, TextFilters) {
  expect_all({
      {"{{ \"  a b \n\"|trim }}|", "a b|"},
      {R"({{ "xxaxx"|trim("x") }})", "a"},
      {R"({{ "  a　"|trim }}|)", "a|"},
      {"{{ 5|trim }}{{ none|trim }}{{ undefined_name|trim }}", "5None"},
      {"{{ \"aBc dE\"|upper }} {{ \"aBc dE\"|lower }} {{ \"aBC dE\"|capitalize }}",
       "ABC DE abc de Abc de"},
      {"{{ \"aXbXc\"|replace(\"X\",\"--\") }} {{ \"aXbXc\"|replace(\"X\",\"\", 1) }}",
       "a--b--c abXc"},
      {R"({{ 5|string + "x" }})", "5x"},
      {R"({{ "<b>"|safe }}{{ (true|safe)[0] }})", "<b>T"},
      {R"({{ "a,b"|replace(",", ", ")|upper|trim }})", "A, B"},
  });
}

TEST(Builtins, Counting) {
  expect_all({
      {"{{ \"añ🙂\"|length }} {{ [1,2]|length }} {{ {\"a\":1}|count }} {{ undefined_name|length }} "
       "{{ \"\"|length }}",
       "3 2 1 0 0"},
      {"{{ messages|length - 1 }}", "2"},
  });
}

TEST(Builtins, Sequences) {
  expect_all({
      {"{{ [1,2,3]|join }} {{ [1,2,3]|join(\", \") }} {{ [\"a\"]|join(\"x\") }} {{ "
       "\"abc\"|join(\"-\") }}",
       "123 1, 2, 3 a a-b-c"},
      {R"({{ [{"a":1},{"a":2}]|join("+", attribute="a") }})", "1+2"},
      {"{{ [1,2]|first }} {{ [1,2]|last }} {{ []|first }}| {{ \"abc\"|first }} {{ \"abc\"|last }}",
       "1 2 | a c"},
      {"{{ \"ab\"|list }} {{ {\"a\":1}|list }} {{ range(3)|list }} {{ (1,2)|list }}",
       "['a', 'b'] ['a'] [0, 1, 2] [1, 2]"},
      {R"({{ [1,2,3]|reverse|list }} {{ "añb"|reverse }})", "[3, 2, 1] bña"},
      {"{% for k, v in {\"a\":1}|items %}{{ k }}{{ v }}{% endfor %}{% for k, v in "
       "undefined_name|items %}x{% endfor %}",
       "a1"},
  });
}

// FunctionGemma's templates sort the members of tools, Mistral's the parts of a content.
TEST(Builtins, Sorting) {
  expect_all({
      {"{% for k, v in {'b': 1, 'a': 2, 'C': 3}|dictsort %}{{ k }}{{ v }}{% endfor %}", "a2b1C3"},
      {"{{ {'b': 1, 'a': 2}|dictsort(reverse=true) }}", "[('b', 1), ('a', 2)]"},
      {"{{ {'b': 2, 'a': 3}|dictsort(by='value') }}{{ {'B': 1, 'a': 2}|dictsort(true) }}",
       "[('b', 2), ('a', 3)][('B', 1), ('a', 2)]"},
      {"{{ ['b', 'C', 'a']|sort }}{{ [3, 1.5, 2]|sort(reverse=true) }}",
       "['a', 'b', 'C'][3, 2, 1.5]"},
      {"{{ ['b', 'B', 'a', 'b']|sort }}{{ ['b', 'B', 'a']|sort(true) }}",
       "['a', 'b', 'B', 'b']['b', 'B', 'a']"},
      {"{{ messages|sort(attribute='role')|map(attribute='role')|join(' ') }}",
       "assistant system user"},
      {"{{ []|sort }}{{ {}|dictsort }}{{ 'cab'|sort }}{{ ['é']|sort(case_sensitive=true)|length }}",
       "[][]['a', 'b', 'c']1"},
  });
  EXPECT_EQ(rendered("{{ [1, 'a']|sort }}"),
            "invalid_argument: t.jinja:1: filter 'sort': int and str have no order");
}

TEST(Builtins, WhatIsDifferentAndWhatIsLeast) {
  expect_all({
      {"{{ ['b', 'B', 'a', 1, 1.0, true]|unique|list }}{{ ['b', 'B']|unique(true)|list }}",
       "['b', 'a', 1]['b', 'B']"},
      {"{{ [{'n': 1, 'k': 'x'}, {'n': 1}]|unique(attribute='n')|list }}", "[{'n': 1, 'k': 'x'}]"},
      {"{{ [2, 1.5, 3]|min }} {{ ['b', 'C', 'a']|max }} {{ ['b', 'C', 'a']|max(true) }} {{ []|min "
       "}}|",
       "1.5 C b |"},
      {"{{ [{'n': 2}, {'n': 1}]|min(attribute='n') }}", "{'n': 1}"},
      {"{{ [1, 2.5]|sum }} {{ []|sum }} {{ [{'n': 2}, {'n': 1}]|sum(attribute='n') }} {{ "
       "[1]|sum(start=5) }}",
       "3.5 0 3 6"},
      {"{{ [[1], [2]]|sum(start=[]) }}", "[1, 2]"},
  });
}

// What is false has no items to these, whatever it is.
TEST(Builtins, WhatIsFalseHasNoItemsToMapAndSelect) {
  expect_all({
      {"{{ none|selectattr('type', 'equalto', 'image')|list }}{{ 0|map('upper')|list }}", "[][]"},
      {"{{ false|select|list }}{{ nothing|rejectattr('a')|list }}{{ none|map(attribute='a')|list "
       "}}",
       "[][][]"},
  });
  EXPECT_EQ(rendered("{{ 1|select|list }}"),
            "invalid_argument: t.jinja:1: filter 'select': a value of the kind int cannot be "
            "iterated");
}

TEST(Builtins, CasesBeyondAscii) {
  expect_all({
      {"{{ 'éпривет ß'|upper }} {{ 'ÉПРИВЕТ İ'|lower }} {{ 'ǆÉ'|capitalize }} {{ 'ßA'|capitalize "
       "}}",
       "ÉПРИВЕТ SS éпривет i̇ ǅé Ssa"},
      {"{{ 'éa'.upper() }}{{ 'ÉA日'.lower() }}", "ÉAéa日"},
      {"{{ ['É', 'é', 'b', 'É']|sort }}{{ ['É', 'é']|unique|list }}", "['b', 'É', 'é', 'É']['É']"},
  });
}

TEST(Builtins, TitleBeginsWordsBehindSpaceHyphensAndBrackets) {
  expect_all({
      {R"({{ "hello wORLD it's foo-bar (x [y {z <élan_x"|title }})",
       "Hello World It's Foo-Bar (X [Y {Z <Élan_x"},
      {"{{ 'a\u00a0b\tc'|title }}", "A\u00a0B\tC"},
  });
}

TEST(Builtins, PrintedListsShowWhatPythonCallsPrintable) {
  expect_all({
      {"{{ ['é', '日本', '🙂', ' '] }}{{ {'ü': 'ß'} }}", "['é', '日本', '🙂', ' ']{'ü': 'ß'}"},
      {"{{ ['\u00a0', '\u200b', '\u2028', '\u0085', '\ue000', '\u00ad', '\u3000'] }}",
       "['\\xa0', '\\u200b', '\\u2028', '\\x85', '\\ue000', '\\xad', '\\u3000']"},
      {"{{ ['\U000e0020', '\U0010ffff', '\u0378', 'e\u0301'] }}",
       "['\\U000e0020', '\\U0010ffff', '\\u0378', 'e\u0301']"},
  });
}

TEST(Builtins, PercentFormats) {
  expect_all({
      {"{{ '%s is %d%%' % ('é', 5) }} {{ '%s' % 'a' }} {{ '%s %s' % (1, none) }} {{ '%s' % [1, "
       "'a'] }}",
       "é is 5% a 1 None [1, 'a']"},
      {"{{ '%r %r' % ('é', 1.0) }} {{ '%5s|%-5s|%.2s|%4.1s' % ('ab', 'é', 'abc', '日本') }}",
       "'é' 1.0    ab|é    |ab|   日"},
      {"{{ '%05d %+d % d %-4d| %x %#x %04x %.3d' % (-42, 5, 5, 7, 255, 255, 10, 7) }}",
       "-0042 +5  5 7   | ff 0xff 000a 007"},
      {"{{ '%f %.2f %8.3f %08.2f %.0f' % (1.5, 2, -1.0625, -3.14159, 2.5) }} {{ '%d' % 2.9 }}",
       "1.500000 2.00   -1.062 -0003.14 2 2"},
      {"{{ '%s-%s'|format(1, 'b') }} {{ 'a'|format }} {{ '%d' % true }}", "1-b a 1"},
  });
}

TEST(Builtins, IndentOfLines) {
  expect_all({
      {"{{ 'a\nb\n\nc\n'|indent }}|", "a\n    b\n\n    c\n|"},
      {"{{ 'a\n\nb'|indent(2, true, true) }}|{{ 'a\nb'|indent('> ', first=true) }}",
       "  a\n  \n  b|> a\n> b"},
      {"{{ 'a\\r\\nb\\u2028c\\r'|indent(1) }}|{{ ''|indent(first=true) }}|", "a\n b\n c|    |"},
  });
}

TEST(Builtins, AnUndefinedValuePrintsAsAWordInAList) {
  expect_all({
      {"{{ [nothing, 1] }}{{ (nothing,) }}{{ {'a': nothing} }}",
       "[Undefined, 1](Undefined,){'a': Undefined}"},
      {"{{ messages|map(attribute='q')|list }}", "[Undefined, Undefined, Undefined]"},
      {"{{ nothing is callable }}", "True"},
  });
}

TEST(Builtins, Default) {
  expect_all({
      {"{{ undefined_name|default(\"d\") }} {{ none|default(\"d\") }} {{ \"\"|default(\"d\", true) "
       "}} {{ \"\"|default(\"d\") }}| {{ 0|d(5, boolean=true) }} {{ undefined_name|default }}|",
       "d None d | 5 |"},
  });
}

TEST(Builtins, Numbers) {
  expect_all({
      {"{{ \"12\"|int }} {{ \" 7 \"|int }} {{ \"x\"|int }} {{ \"x\"|int(9) }} {{ 3.9|int }} {{ "
       "\"3.7\"|int }} {{ \"+4\"|int }} {{ true|int }} {{ none|int }}",
       "12 7 0 9 3 3 4 1 0"},
      {R"({{ "1.5"|float }} {{ 2|float }} {{ "z"|float }})", "1.5 2.0 0.0"},
      {"{{ (-2.5)|abs }} {{ 4|abs }}", "2.5 4"},
  });
}

TEST(Builtins, IntegersOfTextsAreReadAsPythonReadsThem) {
  expect_all({
      {R"({{ "0x1f"|int }} {{ "0x1f"|int(0, 16) }} {{ "-0X_1F"|int(base=16) }})", "0 31 -31"},
      {R"({{ "ff"|int(0, 16) }})", "255"},
      {R"({{ "0o17"|int(base=8) }} {{ "0b11"|int(base=2) }} {{ "0x1f"|int(base=0) }})", "15 3 31"},
      {R"({{ "017"|int }} {{ "017"|int(0, 0) }} {{ "z"|int(0, 36) }} {{ "0x"|int(7, 16) }})",
       "17 17 35 7"},
      {R"({{ "1_000"|int }} {{ "1__0"|int }} {{ "_10"|int }} {{ "10_"|int }})", "1000 0 0 0"},
      {R"({{ "--1"|int }} {{ "+ 1"|int }} {{ "-0"|int }} {{ ""|int }} {{ "12abc"|int(5) }})",
       "0 0 0 0 5"},
      {R"({{ "1e3"|int }} {{ "1.9"|int(0, 16) }} {{ "1e1"|int(0, 16) }} {{ "12"|int(base=1) }})",
       "1000 1 481 12"},
      {R"({{ "10"|int(0, none) }} {{ "10"|int(0, "16") }} {{ 5|int(0, 16) }})", "10 10 5"},
      {R"({{ "inf"|int(7) }} {{ "nan"|int(7) }} {{ "1e400"|int(7) }})", "7 7 7"},
      {R"({{ "99999999999999999999"|int }} {{ "-0099999999999999999999"|int|tojson }})",
       "99999999999999999999 -99999999999999999999"},
      {R"({{ "1e20"|int }} {{ 1e20|int }} {{ "1e23"|int }})",
       "100000000000000000000 100000000000000000000 99999999999999991611392"},
  });
}

TEST(Builtins, FloatsOfTextsAreReadAsPythonReadsThem) {
  expect_all({
      {R"({{ " 1.5 "|float }} {{ "1_0.5"|float }} {{ "1e5_0"|float }} {{ "1._5"|float }})",
       "1.5 10.5 1e+50 0.0"},
      {R"({{ ".5"|float }} {{ "5."|float }} {{ "-0"|float }} {{ "1e"|float }} {{ "0x10"|float }})",
       "0.5 5.0 -0.0 0.0 0.0"},
      {"{{ 'inf'|float }} {{ '-Infinity'|float }} {{ '+nan'|float }} {{ 'nan(1)'|float }}",
       "inf -inf nan 0.0"},
      {R"({{ "1e400"|float }} {{ "-1e400"|float }} {{ "1e-400"|float }} {{ "in"|float("d") }})",
       "inf -inf 0.0 d"},
  });
}

TEST(Builtins, MapAndSelect) {
  expect_all({
      {R"({{ ["a","b"]|map("upper")|list }})", "['A', 'B']"},
      {R"({{ [{"n":1},{"n":2}]|map(attribute="n")|join(",") }})", "1,2"},
      {R"({{ [{"n":1},{}]|map(attribute="n", default=7)|list }})", "[1, 7]"},
      {"{{ messages|selectattr(\"role\",\"equalto\",\"user\")|list|length }}", "1"},
      {"{{ messages|rejectattr(\"role\",\"equalto\",\"user\")|map(attribute=\"role\")|join(\",\") "
       "}}",
       "system,assistant"},
      {"{{ [1,2,3,4]|select(\"even\")|list }} {{ [1,2,3,4]|reject(\"divisibleby\", 2)|list }}",
       "[2, 4] [1, 3]"},
      {"{{ [\"a\",\"code_interpreter\",\"b\"] | reject(\"equalto\", \"code_interpreter\") | "
       "join(\", \") }}",
       "a, b"},
      {"{{ [0,1,\"\",2]|select|list }} {{ [{\"a\":0},{\"a\":1}]|selectattr(\"a\")|list }}",
       "[1, 2] [{'a': 1}]"},
      {R"({{ [{"a":{"b":3}}]|map(attribute="a.b")|first }})", "3"},
      {R"({{ [{"a":[5,6]}]|map(attribute="a.1")|first }})", "6"},
      {R"({{ [[5,6],[7,1]]|join("-", attribute=0) }})", "5-7"},
      {R"({{ [[5,6],[7,1]]|selectattr("1", "equalto", 6)|list }})", "[[5, 6]]"},
      {R"({{ [{"0":3}]|map(attribute="0", default="none")|first }})", "none"},
      {R"({{ [[5]]|map(attribute="99999999999999999999", default="none")|first }})", "none"},
      {"{{ [1,\"a\",none]|select(\"string\")|list }} {{ [1,2]|select(\"in\",[2])|list }}",
       "['a'] [2]"},
      {R"({{ ["x,y"]|map("replace", ",", "-")|list }})", "['x-y']"},
  });
}

TEST(Builtins, Tests) {
  expect_all({
      {"{{ x is defined }} {{ undefined_name is defined }} {{ undefined_name is not defined }} {{ "
       "undefined_name is undefined }}",
       "True False True True"},
      {"{{ none is none }} {{ 1 is not none }} {{ \"a\" is string }} {{ 1 is string }}",
       "True True True False"},
      {"{{ {} is mapping }} {{ [] is mapping }} {{ [] is iterable }} {{ \"a\" is iterable }} {{ 1 "
       "is iterable }} {{ {} is iterable }} {{ undefined_name is iterable }}",
       "True False True True False True True"},
      {"{{ [] is sequence }} {{ \"a\" is sequence }} {{ {} is sequence }} {{ 1 is sequence }} {{ "
       "(1,) is sequence }}",
       "True True True False True"},
      {"{{ 1 is number }} {{ 1.5 is number }} {{ true is number }} {{ \"1\" is number }} {{ 1 is "
       "integer }} {{ true is integer }} {{ 1.0 is float }} {{ true is boolean }} {{ 1 is boolean "
       "}}",
       "True True True False True False True True False"},
      {"{{ true is true }} {{ 1 is true }} {{ false is false }} {{ 0 is false }} {{ none is false "
       "}}",
       "True False True False False"},
      {"{{ 3 is odd }} {{ 4 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }}",
       "True True True False"},
      {"{{ 1 is eq 1 }} {{ 1 is equalto(2) }} {{ 1 is ne 2 }} {{ 1 is lt 2 }} {{ 1 is ge 2 }} {{ 1 "
       "is in [1] }} {{ 1 is not in [1] }}",
       "True False True True False True False"},
      {"{{ range is callable }} {{ 1 is callable }} {{ raise_exception is defined }} {{ "
       "strftime_now is defined }}",
       "True False True False"},
      {"{{ x is defined and x is string or 1 is none }}", "True"},
  });
}

TEST(Builtins, TextMethods) {
  expect_all({
      {"{{ \" a \".strip() }}|{{ \" a \".lstrip() }}|{{ \" a \".rstrip() }}|{{ "
       "\"xaxy\".strip(\"xy\") }} {{ \"\n\na\n\".lstrip(\"\n\") }}|",
       "a|a | a|a a\n|"},
      {"{{ \"a,b,c\".split(\",\") }} {{ \"a,b,c\".split(\",\", 1) }} {{ \" a  b \".split() }} {{ "
       "\"\".split(\",\") }} {{ \"\".split() }}",
       "['a', 'b', 'c'] ['a', 'b,c'] ['a', 'b'] [''] []"},
      {"{{ \"a</think>b\".split(\"</think>\")[-1] }} {{ \"abc\".split(\"x\")[0] }}", "b abc"},
      {"{{ \"abc\".startswith(\"ab\") }} {{ \"abc\".endswith(\"bc\") }} {{ "
       "\"abc\".startswith(\"\") }}",
       "True True True"},
      {"{{ 'abc'.startswith(('x', 'ab')) }} {{ 'abc'.endswith(('x',)) }} {{ 'a'.startswith(()) }}",
       "True False False"},
      {"{{ \"aBc\".upper() }}{{ \"aBc\".lower() }}{{ \"hello wORLD it's\".title() }}{{ "
       "\"aBC\".capitalize() }}",
       "ABCabcHello World It'SAbc"},
      {"{{ \"aXbX\".replace(\"X\", \"y\") }} {{ \"aXbX\".replace(\"X\", \"y\", 1) }}", "ayby aybX"},
      {R"({{ "añb".find("b") }} {{ "a".find("z") }})", "2 -1"},
      {R"({{ ",".join(["a","b"]) }})", "a,b"},
      {"{{ 'a,b,c'.rsplit(',', 1) }}{{ 'a,b'.rsplit(',') }}{{ ' a  b  c '.split(none, 1) }}{{ ' a "
       "b "
       "'.rsplit() }}",
       "['a,b', 'c']['a', 'b']['a', 'b  c ']['a', 'b']"},
      {"{{ 'a=b=c'.partition('=') }}{{ 'a=b=c'.rpartition('=') }}{{ 'a'.partition('=') }}{{ "
       "'a'.rpartition('=') }}",
       "('a', '=', 'b=c')('a=b', '=', 'c')('a', '', '')('', '', 'a')"},
      {"{{ 'a\\nb\\r\\n\\rc\\u2028'.splitlines() }}{{ ''.splitlines() }}", "['a', 'b', '', 'c'][]"},
      {"{{ 'añbab'.rfind('b') }} {{ 'a'.rfind('z') }} {{ 'aXaXX'.count('X') }} {{ 'añ'.count('') "
       "}}",
       "4 -1 3 3"},
      {"{{ \"prefix-x\".removeprefix(\"prefix-\") }} {{ \"x.y\".removesuffix(\".y\") }}", "x x"},
  });
}

TEST(Builtins, MappingMethods) {
  expect_all({
      {"{{ {\"a\":1}.get(\"a\") }} {{ {\"a\":1}.get(\"b\") }} {{ {\"a\":1}.get(\"b\", 5) }}",
       "1 None 5"},
      {"{% for k in {\"a\":1,\"b\":2}.keys() %}{{ k }}{% endfor %}{% for v in "
       "{\"a\":1,\"b\":2}.values() %}{{ v }}{% endfor %}",
       "ab12"},
      {R"({{ {"a":1}.items()|list }})", "[('a', 1)]"},
  });
}

TEST(Builtins, KeysOfADictMayBeNumbers) {
  expect_all({
      {"{% set n = {0: 'a', 512: 'b', 'k': 1, 1.5: 2, none: 3} %}"
       "{{ n[0] }}{{ n[512] }}{{ n['k'] }}{{ n[1.5] }}{{ n[none] }}{{ n[7] }}",
       "ab123"},
      {"{% set n = {1: 'a', true: 'b', 1.0: 'c'} %}{{ n }}{{ n|length }}", "{1: 'c'}1"},
      {"{{ {2: 'b', 1: 'a'} }}{{ {2: 'b', 1: 'a'}|dictsort }}",
       "{2: 'b', 1: 'a'}[(1, 'a'), (2, 'b')]"},
      {"{{ {2: 'b', 1: 'a'}|tojson }}{{ {2: 'b', 1: 'a'}|tojson(sort_keys=true) }}",
       R"({"2": "b", "1": "a"}{"1": "a", "2": "b"})"},
      {"{{ {true: 1, none: 2, 1.5: 3}|tojson }}", R"({"true": 1, "null": 2, "1.5": 3})"},
      {"{{ {none: 1}|tojson(sort_keys=true) }}{{ {none: 1}|dictsort }}",
       R"({"null": 1}[(None, 1)])"},
      {"{% for k, v in {4096: 512, 0: 1}.items() %}{{ k + 1 }}:{{ v }} {% endfor %}",
       "4097:512 1:1 "},
      {"{{ {3: 4}.keys()|list }}{{ {3: 4}|list }}", "[3][3]"},
      {"{{ 3 in {3: 4} }}{{ '3' in {3: 4} }}{{ none in {3: 4} }}{{ nothing in {} }}",
       "TrueFalseFalseFalse"},
      {"{{ {3: 4}.get(3) }}{{ {3: 4}.get('3', 'd') }}{{ {}[[]] }}", "4d"},
      {"{{ {1: 2} == {true: 2.0} }}{{ {1: 2} == {2: 2} }}", "TrueFalse"},
  });
}

TEST(Builtins, ListAndLoopMethods) {
  expect_all({
      {"{{ [1, 2, 1, true].count(1) }}{{ (5, 6).index(6) }}{{ ['a', 'b'].index('b') }}", "311"},
      {"{% for i in [1, 2, 3] %}{{ loop.cycle('a', 'b') }}{% endfor %}", "aba"},
  });
}

TEST(Builtins, ToJson) {
  expect_all({
      {"{{ {\"b\": 1, \"a\": [1, 2.5, none, true, \"é\\n\\\"<>&'\"]}|tojson }}",
       R"({"b": 1, "a": [1, 2.5, null, true, "é\n\"<>&'"]})"},
      {"{{ {\"b\": 1, \"a\": [1, {\"c\": {}}], \"e\": []}|tojson(indent=4) }}",
       "{\n    \"b\": 1,\n    \"a\": [\n        1,\n        {\n            \"c\": {}\n        }\n  "
       "  ],\n    \"e\": []\n}"},
      {"{{ [1,2]|tojson(indent=2) }} {{ []|tojson(indent=2) }} {{ \"x\"|tojson }} {{ 1.0|tojson }} "
       "{{ none|tojson }}",
       "[\n  1,\n  2\n] [] \"x\" 1.0 null"},
      {R"({{ {"a": [1, 2]}|tojson(separators=(",", ":")) }})", R"({"a":[1,2]})"},
      {R"({{ {"b": 1, "é": {"z": 1, "a": 2}, "B": 3}|tojson(sort_keys=true) }})",
       R"({"B": 3, "b": 1, "é": {"a": 2, "z": 1}})"},
      {R"({{ "é🙂"|tojson(ensure_ascii=true) }})", R"("\u00e9\ud83d\ude42")"},
      {R"({{ "\x7f"|tojson(ensure_ascii=true) }}{{ "\x7f"|tojson|length }})", R"("\u007f"3)"},
      {R"({{ "\u0001\b\f\t\u007f/" |tojson }})", "\"\\u0001\\b\\f\\t\177/\""},
      {"{{ messages|tojson }}",
       "[{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", \"content\": \" Hi é🙂 "
       "\"}, {\"role\": \"assistant\", \"content\": \"ok\"}]"},
      {"{{ tools|tojson }}",
       "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": \"d <é>\", "
       "\"parameters\": {\"type\": \"object\", \"properties\": {\"b\": {\"type\": \"string\"}, "
       "\"a\": {\"type\": \"integer\"}}, \"required\": [\"b\"]}}}]"},
      {"{{ (1,2)|tojson }}", "[1, 2]"},
      {"{{ deep|tojson(indent=1) }}",
       "{\n \"z\": [\n  {\n   \"y\": 1\n  },\n  [\n   2,\n   [\n    3\n   ]\n  ]\n ],\n \"a\": {\n "
       " \"b\": 1e+100,\n  \"c\": -0.0,\n  \"d\": 12345678901234\n }\n}"},
  });
}

}  // namespace
}  // namespace stemma
