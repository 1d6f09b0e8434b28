// For the tests of this room: a conversation, and tables of templates with what they make of it.
//
// Thread:     tests.
// Memory:     none kept.
// Cost:       one rendering a row.
// Not here:   the templates of model families (tests/chat_templates).
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "template/chat_template.h"

namespace stemma {

struct RenderCase {
  const char* source;
  const char* expected;
};

inline TemplateJson test_messages() {
  return TemplateJson::parse(R"([
    {"role": "system", "content": "S"}, {"role": "user", "content": " Hi é🙂 "},
    {"role": "assistant", "content": "ok"}])");
}

inline RenderOptions test_options() {
  RenderOptions options;
  options.bos_token = "<s>";
  options.eos_token = "</s>";
  options.tools = TemplateJson::parse(R"([{
    "type": "function",
    "function": {
      "name": "f", "description": "d <é>",
      "parameters": {
        "type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "integer"}},
        "required": ["b"]}}}])");
  options.extra = TemplateJson::parse(R"({
    "x": "ex",
    "deep": {"z": [{"y": 1}, [2, [3]]], "a": {"b": 1e100, "c": -0.0, "d": 12345678901234}}})");
  return options;
}

// The text of `source`, or the error as a person reads it.
inline std::string rendered(const std::string& source,
                            const RenderOptions& options = test_options()) {
  const auto chat = ChatTemplate::parse(source, "t.jinja");
  if (!chat.ok()) return to_string(chat.error());
  const auto text = chat->render(test_messages(), options);
  return text.ok() ? *text : to_string(text.error());
}

inline void expect_all(const std::vector<RenderCase>& cases) {
  for (const RenderCase& row : cases) EXPECT_EQ(rendered(row.source), row.expected) << row.source;
}

}  // namespace stemma
