// What is covered: macros, blocks that call them, blocks that mark what an assistant said. How:
// tables of templates with what Jinja makes of them.
#include <gmock/gmock-matchers.h>

#include <string>

#include "template/testing_render.h"

namespace stemma {
namespace {

using testing::HasSubstr;

TEST(Macro, IsRenderedWhereItIsCalled) {
  expect_all({
      {"{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(1) }}{{ m('b') }}", "<1><b>"},
      {"{% macro m() -%}\n  x\n{%- endmacro %}\n[{{ m() }}]", "[x]"},
      {"{% macro m() %}x{% endmacro %}{{ m()|upper }}{{ m().upper() }}{{ m() ~ 'b' }}", "XXxb"},
      {"{% macro m() %}x{% endmacro %}{% set y = m() %}{{ y is string }}{{ m is callable }}",
       "TrueTrue"},
      {"{% if true %}{% macro m() %}x{% endmacro %}{% endif %}{{ m() }}", "x"},
      {"{% macro m(a) %}{% set y %}z{{ a }}{% endset %}{{ y }}{% endmacro %}{{ m(3) }}", "z3"},
      {"{% macro m(a) %}{{ a }}{% if a %}{{ m(a - 1) }}{% endif %}{% endmacro %}{{ m(3) }}",
       "3210"},
  });
}

TEST(Macro, ArgumentsHaveNamesAndDefaults) {
  const std::string macro = "{% macro m(a, b=2, c=a) %}[{{ a }},{{ b }},{{ c }}]{% endmacro %}";
  const RenderCase cases[] = {{"{{ m(1) }}", "[1,2,1]"},
                              {"{{ m(1, 5) }}", "[1,5,1]"},
                              {"{{ m(1, c=7) }}", "[1,2,7]"},
                              {"{{ m(b=3, a=4) }}", "[4,3,4]"},
                              {"{{ m() }}", "[,2,]"}};
  for (const RenderCase& row : cases) EXPECT_EQ(rendered(macro + row.source), row.expected);
}

TEST(Macro, DefaultsSeeArgumentsAndNothingOutsideOfTheirNames) {
  expect_all({
      {"{% set x=1 %}{% macro m(x=x) %}[{{ x }}]{% endmacro %}{{ m() }}", "[]"},
      {"{% set b=9 %}{% macro m(a=b, b=2) %}[{{ a }},{{ b }}]{% endmacro %}{{ m() }}{{ m(b=5) }}",
       "[,2][5,5]"},
      {"{% set y=1 %}{% macro m(x=y) %}[{{ x }}]{% endmacro %}{{ m() }}", "[1]"},
  });
}

TEST(Macro, ArgumentsThatItDoesNotTakeAreRefused) {
  const std::string macro = "{% macro m(a) %}{{ a }}{% endmacro %}";
  const std::string where = "invalid_argument: t.jinja:1: m(): ";
  EXPECT_EQ(rendered(macro + "{{ m(1, 2) }}"), where + "at most 1 arguments are taken");
  EXPECT_EQ(rendered(macro + "{{ m(1, b=2) }}"), where + "there is no argument 'b' to be given");
  EXPECT_EQ(rendered(macro + "{{ m(1, a=2) }}"), where + "there is no argument 'a' to be given");
  EXPECT_EQ(rendered("{{ m(1) }}" + macro), where + "'m' is undefined");
}

TEST(Macro, ThatNamesThemTakesMoreArgumentsThanItHasParameters) {
  expect_all({
      {"{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, a=3) }}{{ m() }}",
       "(1, 2){'a': 3}(){}"},
      {"{% macro m(a) %}{{ a }}{{ varargs|join(',') }}{% endmacro %}{{ m(1, 2, 3) }}{{ m(a=4) }}",
       "12,34"},
      {"{% macro m(a) %}{{ a }}{{ kwargs }}{% endmacro %}{{ m(1, b=2) }}{{ m(1, a=2) }}",
       "1{'b': 2}1{'a': 2}"},
      {"{% macro m(varargs, kwargs=1) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(2) }}", "21"},
      {"{% macro o() %}{% macro i() %}{{ varargs }}{% endmacro %}{{ i(5) }}{% endmacro %}"
       "{{ o(1) }}",
       "(5,)"},
      {"{% macro m() %}{{ caller(1, 2) }}{% endmacro %}{% call(a) m() %}{{ a }}{{ varargs }}"
       "{% endcall %}",
       "1(2,)"},
      {"{% macro m() %}{{ kwargs }}{{ caller() }}{% endmacro %}{% call m(b=1) %}x{% endcall %}",
       "{'b': 1}x"},
      {"{{ varargs }}{{ kwargs }}", ""},
  });
  EXPECT_EQ(rendered("{% macro m() %}{{ kwargs }}{% endmacro %}{{ m(1) }}"),
            "invalid_argument: t.jinja:1: m(): at most 0 arguments are taken");
  EXPECT_EQ(rendered("{% macro m() %}{{ varargs }}{% endmacro %}{{ m(a=1) }}"),
            "invalid_argument: t.jinja:1: m(): there is no argument 'a' to be given");
}

TEST(Macro, SeesWhatIsSeenWhereItStands) {
  expect_all({
      {"{% set x=1 %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% set x=2 %}{{ m() }}", "12"},
      {"{% macro m() %}{{ x }}{% endmacro %}{% for x in [1,2] %}{{ m() }}{% endfor %}", "exex"},
      {"{% macro m() %}{{ i is defined }}{{ loop is defined }}{% endmacro %}"
       "{% for i in [1] %}{{ m() }}{% endfor %}",
       "FalseFalse"},
      {"{% for i in [1,2] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", "12"},
      {"{% macro o() %}{% set p=4 %}{% macro i() %}{{ p }}{% endmacro %}{{ i() }}{% endmacro %}"
       "{{ o() }}",
       "4"},
      {"{% macro a() %}{{ y is defined }}{% endmacro %}{% macro b() %}{% set y=1 %}{{ a() }}{{ y }}"
       "{% endmacro %}{{ b() }}",
       "False1"},
      {"{% macro m() %}{{ messages|length }}{{ bos_token }}{% endmacro %}{{ m() }}", "3<s>"},
  });
}

TEST(Macro, WhatIsSetThereIsGoneBehindIt) {
  expect_all({
      {"{% set x=1 %}{% macro m() %}{{ x }}{% set x=5 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}",
       "151"},
      {"{% set n=namespace(x=1) %}{% macro m() %}{% set n.x=5 %}{% endmacro %}{{ m() }}{{ n.x }}",
       "5"},
  });
}

TEST(Macro, PrintsToolsAsQwen3CodersDo) {
  expect_all({
      {"{% macro keys(d, handled) %}{% if d is mapping %}{% for k in d if k not in handled %}"
       "<{{ k }}>{{ d[k] if d[k] is string else d[k]|tojson|safe }}</{{ k }}>{% endfor %}{% endif "
       "%}"
       "{% endmacro %}{% for tool in tools %}{{ keys(tool.function, ['name', 'parameters']) }}"
       "{{ keys(tool.function.parameters, ['properties']) }}{% endfor %}",
       "<description>d <é></description><type>object</type><required>[\"b\"]</required>"},
  });
}

TEST(Macro, ThatCallsItselfForEverEnds) {
  EXPECT_EQ(rendered("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
            "too_large: t.jinja:1: rendering exceeds its limit of nesting");
  std::string deep = "{{ m() }}";
  for (int i = 0; i < 50; ++i) deep = "{% for i in [1] %}" + deep + "{% endfor %}";
  EXPECT_EQ(rendered("{% macro m() %}" + deep + "{% endmacro %}{{ m() }}"),
            "too_large: t.jinja:1: rendering exceeds its limit of nesting");
}

TEST(Macro, MistakesAreNamed) {
  EXPECT_THAT(rendered("{% macro m(a=1, b) %}{% endmacro %}"), HasSubstr("expected a default"));
  EXPECT_THAT(rendered("{% macro m(a, a) %}{% endmacro %}"), HasSubstr("a name of its own"));
  EXPECT_THAT(rendered("{% macro m(none) %}{% endmacro %}"), HasSubstr("a name of its own"));
  EXPECT_THAT(rendered("{% macro m %}{% endmacro %}"), HasSubstr("expected '('"));
  EXPECT_THAT(rendered("{% macro m() %}"), HasSubstr("expected {% endmacro %}"));
  EXPECT_THAT(rendered("{% for i in [1] %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}"),
              HasSubstr("a loop around this statement"));
}

TEST(CallStatement, IsWhatTheMacroCallsCaller) {
  expect_all({
      {"{% macro m(a) %}<{{ caller() }}{{ a }}>{% endmacro %}{% call m(1) %}hi{% endcall %}",
       "<hi1>"},
      {"{% macro m(a) %}<{{ caller(a) }}>{% endmacro %}{% for z in [7] %}"
       "{% call(q) m(1) %}{{ q }}{{ z }}{{ a is defined }}{% endcall %}{% endfor %}",
       "<17False>"},
      {"{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}", "False"},
  });
  EXPECT_EQ(rendered("{% macro m() %}{% endmacro %}{% call m() %}{% endcall %}"),
            "invalid_argument: t.jinja:1: m(): there is no argument 'caller' to be given");
  EXPECT_EQ(rendered("{{ caller() }}"),
            "invalid_argument: t.jinja:1: caller(): 'caller' is undefined");
}

TEST(Generation, IsRenderedAsIfItWereNotMarked) {
  expect_all({
      {"{% for m in messages %}{% generation %}{{ m.role }}{{ loop.last }}{% endgeneration %};"
       "{% endfor %}",
       "systemFalse;userFalse;assistantTrue;"},
      {"{% set y=1 %}{% generation %}{% set y=2 %}{{ y }}{% endgeneration %}{{ y }}", "21"},
  });
}

}  // namespace
}  // namespace stemma
