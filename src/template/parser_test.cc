// What is covered: what is refused, and that every refusal names file, line and construct. How:
// tables of templates and the line that a person reads.
#include <gmock/gmock-matchers.h>

#include <string>

#include "template/testing_render.h"

namespace stemma {
namespace {

TEST(ParserRefuses, StatementsThatAreNotRendered) {
  expect_all({
      {"{% call x.strip() %}{% endcall %}",
       "unsupported: t.jinja:1: a {% call %} of what is no macro's name is not supported"},
      {"a\n{% include 'x' %}",
       "unsupported: t.jinja:2: the statement {% include %} is not supported"},
      {"{% raw +%}x{% endraw %}",
       "unsupported: t.jinja:1: the statement {% raw %} is not supported"},
      {"{% set x.y | upper %}a{% endset %}",
       "unsupported: t.jinja:1: a {% set %} with a body for anything but one name is not "
       "supported"},
      {"{% for a in b recursive %}{% endfor %}",
       "unsupported: t.jinja:1: a recursive for is not supported"},
  });
}

TEST(ParserRefuses, ExpressionsThatAreNotRendered) {
  expect_all({
      {"\n\n{{ x | tojoson }}", "unsupported: t.jinja:3: the filter 'tojoson' is not supported"},
      {"{% if false %}{{ x | groupby('a') }}{% endif %}",
       "unsupported: t.jinja:1: the filter 'groupby' is not supported"},
      {"{{ x is sameas y }}", "unsupported: t.jinja:1: the test 'is sameas' is not supported"},
      {"{{ x.append(1) }}", "unsupported: t.jinja:1: the method .append() is not supported"},
      {"{{ x.__class__ }}", "unsupported: t.jinja:1: an attribute with __ is not supported"},
      {"{{ lipsum(5) }}", "unsupported: t.jinja:1: the function lipsum() is not supported"},
      {"{{ 2 ** 3 }}", "unsupported: t.jinja:1: the operator ** is not supported"},
      {"{{ range(*x) }}",
       "unsupported: t.jinja:1: an argument list unpacked with * is not supported"},
      {"{{ x['a']() }}",
       "unsupported: t.jinja:1: a call of what is neither a function's name nor a method is not "
       "supported"},
      {"{{ 0x1F }}", "corrupt: t.jinja:1: expected '}}', found 'x1F'"},
      {"{{ 99999999999999999999 }}",
       "unsupported: t.jinja:1: the integer 99999999999999999999 is not supported"},
      {R"({{ "\N{DASH}" }})", "unsupported: t.jinja:1: the escape \\N{...} is not supported"},
      {R"({{ "\ud800" }})",
       "unsupported: t.jinja:1: a string has an escape that is no Unicode character"},
  });
}

TEST(ParserRefuses, Mistakes) {
  expect_all({
      {"{% if x %}", "corrupt: t.jinja:1: expected {% endif %}, found the end of the template"},
      {"{% for x in y %}\n",
       "corrupt: t.jinja:1: expected {% endfor %}, found the end of the template"},
      {"{% endif %}", "corrupt: t.jinja:1: expected a statement, found 'endif'"},
      {"{{ x", "corrupt: t.jinja:1: a tag is not closed"},
      {"{# x", "corrupt: t.jinja:1: a comment is not closed"},
      {"\n{% raw %}x{% end raw %}", "corrupt: t.jinja:2: a {% raw %} is not closed"},
      {"{% endraw %}", "corrupt: t.jinja:1: expected a statement, found 'endraw'"},
      {"{% with a %}{% endwith %}", "corrupt: t.jinja:1: expected '=', found '%}'"},
      {"{% with a = 1 b = 2 %}{% endwith %}", "corrupt: t.jinja:1: expected ',', found 'b'"},
      {"{% filter %}a{% endfilter %}", "corrupt: t.jinja:1: expected a filter's name, found '%}'"},
      {"{% filter nope %}a{% endfilter %}",
       "unsupported: t.jinja:1: the filter 'nope' is not supported"},
      {"{{ 'x }}", "corrupt: t.jinja:1: a string is not closed"},
      {"{{ }}", "corrupt: t.jinja:1: expected an expression, found '}}'"},
      {"{{ (1 }}", "corrupt: t.jinja:1: '}' closes nothing"},
      {"{{ a b }}", "corrupt: t.jinja:1: expected '}}', found 'b'"},
      {"{{ a ? b }}", "corrupt: t.jinja:1: unexpected character '?' in a tag"},
      {"{{ ä }}", "corrupt: t.jinja:1: unexpected character 'ä' in a tag"},
      {"{% break %}", "corrupt: t.jinja:1: expected a loop around this statement, found '%}'"},
      {"{% set 1 = 2 %}", "corrupt: t.jinja:1: expected a name, found '1'"},
      {R"({{ "\x4" }})", "corrupt: t.jinja:1: a string has a malformed escape"},
      {"{{ x[] }}", "corrupt: t.jinja:1: expected a subscript, found '}}'"},
      {"{{ x[1:2:3:4] }}", "corrupt: t.jinja:1: expected ']', found '4'"},
      {"{{ range(a=1, 2) }}", "corrupt: t.jinja:1: expected a named argument, found '2'"},
  });
}

TEST(ParserRefuses, WhatIsNestedTooDeeply) {
  using ::testing::HasSubstr;
  const auto repeated = [](const std::string& part, int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += part;
    return text;
  };
  EXPECT_THAT(rendered("{{ " + repeated("(", 5000) + "1" + repeated(")", 5000) + " }}"),
              HasSubstr("nested this deeply"));
  EXPECT_THAT(rendered("{{ " + repeated("not ", 5000) + "1 }}"), HasSubstr("nested this deeply"));
  EXPECT_THAT(rendered("{{ 1" + repeated(" + 1", 5000) + " }}"), HasSubstr("of this depth"));
  EXPECT_THAT(rendered("{{ x" + repeated(".a", 5000) + " }}"), HasSubstr("of this depth"));
  EXPECT_THAT(rendered(repeated("{% if 1 %}", 5000)), HasSubstr("nested this deeply"));
  EXPECT_THAT(rendered(std::string((1 << 20) + 1, ' ')), HasSubstr("at most 1048576"));
}

TEST(RenderingRefuses, WhatHasNoMeaning) {
  expect_all({
      {"{{ a.b }}", "invalid_argument: t.jinja:1: attribute .b: 'a' is undefined"},
      {"\n{{ messages[0].no.deeper }}",
       "invalid_argument: t.jinja:2: attribute .deeper: 'no' is undefined"},
      {"{{ nothing['x'] }}", "invalid_argument: t.jinja:1: subscript: 'nothing' is undefined"},
      {"{{ nothing[1:] }}", "invalid_argument: t.jinja:1: slice: 'nothing' is undefined"},
      {"{{ nothing + 'x' }}", "invalid_argument: t.jinja:1: 'nothing' is undefined"},
      {"{{ nothing() }}", "invalid_argument: t.jinja:1: nothing(): 'nothing' is undefined"},
      {"{{ x() }}", "invalid_argument: t.jinja:1: x(): str is no function"},
      {"{{ 'a' + 1 }}", "invalid_argument: t.jinja:1: str + int has no meaning"},
      {"{{ none < 1 }}", "invalid_argument: t.jinja:1: none and int have no order"},
      {"{{ 1 // 0 }}", "invalid_argument: t.jinja:1: division by zero"},
      {"{{ 9223372036854775807 + 1 }}", "invalid_argument: t.jinja:1: an integer beyond 64 bits"},
      {"{% for x in 5 %}{% endfor %}",
       "invalid_argument: t.jinja:1: a value of the kind int cannot be iterated"},
      {"{% for a, b in [[1]] %}{% endfor %}",
       "invalid_argument: t.jinja:1: a value of 1 items for 2 names"},
      {"{% set x.y = 1 %}", "invalid_argument: t.jinja:1: set x.y: not a namespace but str"},
      {"{{ 5.strip() }}", "invalid_argument: t.jinja:1: method .strip(): int has no such method"},
      {"{{ none.strip() }}",
       "invalid_argument: t.jinja:1: method .strip(): none has no such method"},
      {"{{ 'a'|join }}{{ 5|join }}",
       "invalid_argument: t.jinja:1: filter 'join': a value of the kind int cannot be iterated"},
      {"{{ 5|length }}",
       "invalid_argument: t.jinja:1: filter 'length': needs a str, list or dict, not int"},
      {"{{ nothing|tojson }}",
       "invalid_argument: t.jinja:1: filter 'tojson': 'nothing' is undefined"},
      {"{{ 'a'|trim('b', 'c') }}",
       "invalid_argument: t.jinja:1: filter 'trim': at most 1 arguments are taken"},
      {"{{ 'a'|trim(x='c') }}",
       "invalid_argument: t.jinja:1: filter 'trim': there is no argument 'x'"},
      {"{{ 'a'.replace('b') }}",
       "invalid_argument: t.jinja:1: method .replace(): the argument 'new' is missing"},
      {"{{ '%s' % () }}", "invalid_argument: t.jinja:1: fewer values than the format has places"},
      {"{{ 'a' % 1 }}", "invalid_argument: t.jinja:1: more values than the format has places"},
      {"{{ '%d' % 'a' }}", "invalid_argument: t.jinja:1: %d needs a number, not str"},
      {"{{ '5%' % 1 }}", "invalid_argument: t.jinja:1: the format ends within a place"},
      {"{{ ['a', 1]|sum }}", "invalid_argument: t.jinja:1: filter 'sum': int + str has no meaning"},
      {"{{ {[]: 1} }}", "invalid_argument: t.jinja:1: a list is no key"},
      {"{{ [] in {} }}", "invalid_argument: t.jinja:1: a list is no key"},
      {"{{ {}.get({}) }}", "invalid_argument: t.jinja:1: method .get(): a dict is no key"},
      {"{{ {1: 1, 'a': 2}|tojson(sort_keys=true) }}",
       "invalid_argument: t.jinja:1: filter 'tojson': int and str have no order"},
      {"{{ [1].index(2) }}",
       "invalid_argument: t.jinja:1: method .index(): the value is not in the list"},
      {"{% filter length %}a{% endfilter %}",
       "invalid_argument: t.jinja:1: needs a str of the filters, not int"},
      {"{{ 'a'[::0] }}", "invalid_argument: t.jinja:1: slice: a slice needs a step other than 0"},
      {"{{ raise_exception('no ' ~ 1) }}",
       "invalid_argument: t.jinja:1: raise_exception(): the template refuses these messages: no 1"},
  });
}

TEST(RenderingRefuses, WhatWouldBeAGuess) {
  expect_all({
      {"{{ 'ΣΑΣ'|lower }}",
       "unsupported: t.jinja:1: filter 'lower': changing the case of characters that become "
       "several "
       "is not supported"},
      {"{{ 'ﬁn'.upper() }}",
       "unsupported: t.jinja:1: method .upper(): changing the case of characters that become "
       "several is not supported"},
      {"{{ messages[0].items }}", "unsupported: t.jinja:1: printing a method is not supported"},
      {"{{ messages[0].items|tojson }}",
       "invalid_argument: t.jinja:1: filter 'tojson': a method is not JSON"},
      {"{{ range(3) }}", "unsupported: t.jinja:1: printing a lazy sequence is not supported"},
      {"{{ '%g' % 1 }}", "unsupported: t.jinja:1: formatting text with %g is not supported"},
      {"{{ '%*d' % (1, 2) }}", "unsupported: t.jinja:1: formatting text with %* is not supported"},
      {"{{ '%(a)s' % {'a': 1} }}",
       "unsupported: t.jinja:1: formatting text with %( is not supported"},
      {"{{ {(1, 2): 3} }}",
       "unsupported: t.jinja:1: a dict with a key that is a tuple is not supported"},
      {"{{ strftime_now('%Y') }}",
       "unsupported: t.jinja:1: strftime_now(): needs the current date, which the caller does not "
       "give"},
  });
}

}  // namespace
}  // namespace stemma
