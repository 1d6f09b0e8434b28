#include "openai/output_form.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "openai/field_reader.h"

namespace stemma {
namespace {

using Kind = TextForm::Kind;

struct ReadForm {
  TextForm form;
  std::string fault;  // where; empty: none
  std::string why;
};

ReadForm read(const std::string& fields) {
  const TemplateJson body = TemplateJson::parse("{" + fields + "}");
  std::optional<ApiError> fault;
  FieldReader reader(body, "", fault);
  TextForm form = read_output_form(reader, fault);
  if (!fault.has_value()) return {std::move(form), "", ""};
  return {std::move(form), fault->param, fault->message};
}

TEST(OutputForm, IsFreeWhereNothingIsSaid) {
  EXPECT_EQ(read("").form.kind, Kind::kFree);
  EXPECT_EQ(read(R"("response_format":{"type":"text"})").form.kind, Kind::kFree);
  EXPECT_EQ(read(R"("response_format":null,"guided_json":null)").form.kind, Kind::kFree);
}

TEST(OutputForm, IsASchema) {
  const TextForm form = read(R"("response_format":{"type":"json_schema","json_schema":
              {"name":"n","description":"d","schema":{"type":"null"},"strict":true}})")
                            .form;
  EXPECT_EQ(form.kind, Kind::kSchema);
  EXPECT_EQ(form.schema, TemplateJson::parse(R"({"type":"null"})"));
  EXPECT_TRUE(form.strict);
  EXPECT_EQ(form.path, "response_format.json_schema.schema");
}

TEST(OutputForm, OfOpenAiIsStrictIfItSaysSo) {
  EXPECT_FALSE(
      read(R"("response_format":{"type":"json_schema","json_schema":{"schema":{}}})").form.strict);
  EXPECT_TRUE(read(R"("guided_json":{})").form.strict);
}

TEST(OutputForm, IsAnyObject) {
  for (const char* const fields :
       {R"("response_format":{"type":"json_object"})",
        R"("response_format":{"type":"json_schema","json_schema":{"name":"n"}})",
        R"("structured_outputs":{"json_object":true})"}) {
    const TextForm form = read(fields).form;
    EXPECT_EQ(form.schema, TemplateJson::parse(R"({"type":"object"})")) << fields;
  }
}

TEST(OutputForm, MayBeAnObjectOfASchema) {
  const TextForm form =
      read(R"("response_format":{"type":"json_object","schema":{"required":["a"]}})").form;
  EXPECT_EQ(form.schema, TemplateJson::parse(R"({"required":["a"]})"));
  EXPECT_FALSE(form.strict);
  EXPECT_EQ(form.path, "response_format.schema");
}

TEST(OutputForm, IsASchemaOrTheTextOfOne) {
  for (const char* const fields :
       {R"("guided_json":{"const":1})", R"("guided_json":"{\"const\":1}")",
        R"("json_schema":"{\"const\":1}")", R"("structured_outputs":{"json":{"const":1}})"}) {
    const TextForm form = read(fields).form;
    EXPECT_EQ(form.schema, TemplateJson::parse(R"({"const":1})")) << fields;
  }
  EXPECT_EQ(read(R"("guided_json":"{")").fault, "guided_json");
}

TEST(OutputForm, IsOneOfSeveralTexts) {
  for (const char* const fields :
       {R"("guided_choice":["a","b"])", R"("structured_outputs":{"choice":["a","b"]})"}) {
    const TextForm form = read(fields).form;
    EXPECT_EQ(form.kind, Kind::kOneOf) << fields;
    EXPECT_THAT(form.texts, testing::ElementsAre("a", "b"));
  }
  EXPECT_EQ(read(R"("guided_choice":[])").fault, "guided_choice");
  EXPECT_EQ(read(R"("guided_choice":["a",1])").fault, "guided_choice[1]");
}

TEST(OutputForm, IsWhatAnExpressionMatches) {
  for (const char* const fields :
       {R"("guided_regex":"a+")", R"("regex":"a+")", R"("structured_outputs":{"regex":"a+"})"}) {
    const TextForm form = read(fields).form;
    EXPECT_EQ(form.kind, Kind::kRegex) << fields;
    EXPECT_EQ(form.expression, "a+");
  }
}

TEST(OutputForm, IsATextOfAGrammar) {
  for (const char* const fields : {R"("guided_grammar":"root ::= x")", R"("ebnf":"root ::= x")",
                                   R"("structured_outputs":{"grammar":"root ::= x"})"}) {
    const TextForm form = read(fields).form;
    EXPECT_EQ(form.kind, Kind::kEbnf) << fields;
    EXPECT_EQ(form.rules, "root ::= x");
  }
}

TEST(OutputForm, HasAFormInSomePlaces) {
  const std::string format = R"("format":{"type":"any_text"})";
  for (const std::string& fields :
       {R"("response_format":{"type":"structural_tag",)" + format + "}",
        R"("structured_outputs":{"structural_tag":{)" + format + "}}",
        R"("structural_tag":"{\"format\":{\"type\":\"any_text\"}}")" + std::string()}) {
    const TextForm form = read(fields).form;
    EXPECT_EQ(form.kind, Kind::kTag) << fields;
    EXPECT_EQ(form.schema.at("format").dump(), R"({"type":"any_text"})");
  }
}

TEST(OutputForm, IsOne) {
  const ReadForm both = read(R"("response_format":{"type":"json_object"},"guided_choice":["a"])");
  EXPECT_EQ(both.fault, "guided_choice");
  EXPECT_EQ(both.why, "guided_choice: not together with response_format");
}

TEST(OutputForm, OfJsonMayBeWithoutWhiteSpace) {
  const char* const forms[] = {
      R"("structured_outputs":{"json":{},"disable_any_whitespace":)",
      R"("structured_outputs":{"json_object":true,"disable_any_whitespace":)",
      (R"("response_format":{"type":"json_object"},)"
       R"("structured_outputs":{"disable_any_whitespace":)")};
  for (const char* const form : forms) {
    EXPECT_EQ(read(form + std::string("true}")).form.space, JsonSpace::kNone) << form;
    for (const char* const harmless : {"false}", "null}"}) {
      const ReadForm plain = read(form + std::string(harmless));
      EXPECT_EQ(plain.form.space, JsonSpace::kSome) << form;
      EXPECT_EQ(plain.form.kind, Kind::kSchema);
      EXPECT_EQ(plain.fault, "");
    }
    EXPECT_EQ(read(form + std::string("1}")).fault, "structured_outputs.disable_any_whitespace");
  }
  EXPECT_EQ(read(R"("structured_outputs":{"choice":["a b"],"disable_any_whitespace":true})").fault,
            "");
  EXPECT_EQ(read(R"("structured_outputs":{"disable_any_whitespace":true,
                    "structural_tag":{"format":{"type":"any_text"}}})")
                .fault,
            "structured_outputs.disable_any_whitespace");
}

TEST(OutputForm, PatternsOfWhiteSpaceAreRefusedByName) {
  EXPECT_EQ(read(R"("guided_json":{},"guided_whitespace_pattern":" ?")").fault,
            "guided_whitespace_pattern");
  EXPECT_EQ(read(R"("guided_json":{},"guided_whitespace_pattern":null)").fault, "");
  EXPECT_EQ(read(R"("structured_outputs":{"json":{},"whitespace_pattern":" ?"})").fault,
            "structured_outputs.whitespace_pattern");
  EXPECT_EQ(read(R"("structured_outputs":{"json":{},"whitespace_pattern":null})").fault, "");
}

TEST(OutputForm, FaultsNameTheField) {
  EXPECT_EQ(read(R"("response_format":7)").fault, "response_format");
  EXPECT_EQ(read(R"("response_format":{"type":"grammar"})").fault, "response_format.type");
  EXPECT_EQ(read(R"("response_format":{"type":"json_schema","json_schema":{"schema":[]}})").fault,
            "response_format.json_schema.schema");
  EXPECT_EQ(read(R"("structured_outputs":{"grammar":1})").fault, "structured_outputs.grammar");
  EXPECT_EQ(read(R"("structured_outputs":{"structural_tag":"a"})").fault,
            "structured_outputs.structural_tag");
  EXPECT_EQ(read(R"("guided_regex":["a"])").fault, "guided_regex");
}

TEST(ToolChoice, IsForcedOfAnyToolOrOfOne) {
  const auto choice_of = [](const std::string& choice) {
    const TemplateJson body = TemplateJson::parse("{\"tool_choice\":" + choice + "}");
    const TemplateJson tools = TemplateJson::parse(R"([{"function":{"name":"f"}},{"x":1}])");
    std::optional<ApiError> fault;
    FieldReader reader(body, "", fault);
    const ToolChoice read = read_tool_choice(reader, tools, fault);
    if (fault.has_value()) return fault->param;
    return read.forced ? "forced " + read.name : "free";
  };
  EXPECT_EQ(choice_of("null"), "free");
  EXPECT_EQ(choice_of(R"("auto")"), "free");
  EXPECT_EQ(choice_of(R"("none")"), "free");
  EXPECT_EQ(choice_of(R"("required")"), "forced ");
  EXPECT_EQ(choice_of(R"({"type":"function","function":{"name":"f"}})"), "forced f");
  EXPECT_EQ(choice_of(R"({"type":"function","function":{"name":"g"}})"),
            "tool_choice.function.name");
  EXPECT_EQ(choice_of(R"({"type":"custom","function":{}})"), "tool_choice");
  EXPECT_EQ(choice_of(R"("any")"), "tool_choice");
  EXPECT_EQ(choice_of("1"), "tool_choice");
}

}  // namespace
}  // namespace stemma
