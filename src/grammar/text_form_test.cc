#include "grammar/text_form.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>

#include "grammar/grammar_texts.h"
#include "model/tokenizer_examples.h"

namespace stemma {
namespace {

using Kind = TextForm::Kind;

class TextFormTest : public testing::Test {
 protected:
  // What goes wrong with a form, or "" if a text of these bytes is one, or "no" if it is not.
  std::string opened(const TextForm& form, std::string_view text) {
    Result<OwnedConstraint> constraint = open_text_form(form, book_);
    if (!constraint.ok()) return constraint.error().detail;
    OutputConstraint* const keeps_to = constraint->get();
    if (keeps_to == nullptr) return "free";
    for (const char byte : text) {
      const TokenId token = tokenizer_.token_id(std::string(1, byte)).value();
      const std::uint64_t word = keeps_to->allowed()[static_cast<std::size_t>(token) / 64];
      if ((word >> (token % 64) & 1) == 0) return "no";
      keeps_to->accept(token);
    }
    return keeps_to->may_end() ? "" : "no";
  }

  const Tokenizer tokenizer_ =
      std::move(Tokenizer::parse(byte_level_file().json(), "tokenizer.json")).value();
  GrammarBook book_{tokenizer_, 302};
};

TEST_F(TextFormTest, IsJsonOfASchema) {
  const TextForm form = {.kind = Kind::kSchema, .schema = {{"type", "boolean"}}};
  EXPECT_EQ(opened(form, "true"), "");
  EXPECT_EQ(opened(form, "truth"), "no");
}

TEST_F(TextFormTest, OfJsonMayBeWithoutWhiteSpace) {
  ByteGrammar grammar;
  const TextForm form = {.kind = Kind::kSchema,
                         .schema = {{"required", {"a"}}, {"additionalProperties", true}},
                         .space = JsonSpace::kNone};
  ByteAutomaton automaton = automaton_of(grammar, add_text_form(form, grammar).value());
  EXPECT_TRUE(accepts(automaton, R"({"a":[1,{"b c":" "}],"d":{}})"));
  for (const char* const text : {R"({ "a":1})", R"({"a": 1})", R"({"a":1 })", R"({"a":1, "b":1})",
                                 R"({"a":[1, 2]})", "{\n\"a\":1}", R"({"a":{"b": 1}})"}) {
    EXPECT_FALSE(accepts(automaton, text)) << text;
  }
}

TEST_F(TextFormTest, IsAllThatAnExpressionMatches) {
  const TextForm form = {.kind = Kind::kRegex, .expression = "a+b"};
  EXPECT_EQ(opened(form, "aab"), "");
  EXPECT_EQ(opened(form, "xab"), "no");
}

TEST_F(TextFormTest, IsATextOfAGrammar) {
  const TextForm form = {.kind = Kind::kEbnf, .rules = "root ::= \"a\" root \"b\" | \"\""};
  EXPECT_EQ(opened(form, "aabb"), "");
  EXPECT_EQ(opened(form, "aab"), "no");
}

TEST_F(TextFormTest, IsOneOfSeveralTexts) {
  const TextForm form = {.kind = Kind::kOneOf, .texts = {"yes", "no"}};
  EXPECT_EQ(opened(form, "no"), "");
  EXPECT_EQ(opened(form, "ye"), "no");
}

TEST_F(TextFormTest, HasAFormInSomePlaces) {
  const TextForm form = {.kind = Kind::kTag, .schema = TemplateJson::parse(R"({"structures":[
          {"begin":"<","schema":{"type":"boolean"},"end":">"}],"triggers":["<"]})")};
  EXPECT_EQ(opened(form, "so<true>."), "");
  EXPECT_EQ(opened(form, "so<so>."), "no");
}

TEST_F(TextFormTest, MayBeFree) {
  EXPECT_EQ(opened({}, ""), "free");
}

TEST_F(TextFormTest, ErrorsBeginWithItsPath) {
  EXPECT_EQ(opened({.kind = Kind::kSchema, .path = "p", .schema = {{"type", 1}}}, ""),
            "p.type: must be a name or a list of names");
  EXPECT_EQ(opened({.kind = Kind::kRegex, .path = "p", .expression = "("}, ""),
            "p: at 1: a ( without a )");
  EXPECT_EQ(opened({.kind = Kind::kEbnf, .path = "p", .rules = "root ::= a"}, ""),
            "p: line 1: no rule is a");
  EXPECT_EQ(opened({.kind = Kind::kTag, .path = "p", .schema = TemplateJson::object()}, ""),
            "p.format: missing");
  EXPECT_EQ(opened({.kind = Kind::kSchema, .path = "p", .schema = {{"$ref", "#"}}}, ""),
            "p: there is no finite text of this form");
}

TEST_F(TextFormTest, FormsThatAreAlikeHaveOneKey) {
  const TextForm one = {.kind = Kind::kSchema, .path = "a", .schema = {{"type", "null"}}};
  TextForm other = one;
  other.path = "b";
  EXPECT_EQ(text_form_key(one), text_form_key(other));
  other.strict = false;
  EXPECT_NE(text_form_key(one), text_form_key(other));
  other = one;
  other.space = JsonSpace::kNone;
  EXPECT_NE(text_form_key(one), text_form_key(other));
  EXPECT_NE(text_form_key({.kind = Kind::kRegex, .expression = "a"}),
            text_form_key({.kind = Kind::kOneOf, .texts = {"a"}}));
  EXPECT_NE(text_form_key({.kind = Kind::kEbnf, .rules = "root ::= \"a\""}),
            text_form_key({.kind = Kind::kEbnf, .rules = "root ::= \"b\""}));
}

}  // namespace
}  // namespace stemma
