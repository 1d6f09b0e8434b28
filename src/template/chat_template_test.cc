// What is covered: a template in use: messages, tools, special tokens, dates, limits, and where a
// model keeps its template. How: small templates, one in the manner of each model family, and a
// directory of the test's own.
#include "template/chat_template.h"

#include <gmock/gmock-matchers.h>

#include <fstream>
#include <string>
#include <utility>

#include "template/testing_render.h"

namespace stemma {
namespace {

using ::testing::HasSubstr;

TEST(ChatTemplate, RendersAConversationWithHeaders) {
  const std::string source =
      "{{- bos_token }}\n"
      "{%- for message in messages %}\n"
      "    {{- '<|' + message['role'] + '|>\\n\\n' + message['content'] | trim + '<|end|>' }}\n"
      "{%- endfor %}\n"
      "{%- if add_generation_prompt %}\n"
      "    {{- '<|assistant|>\\n\\n' }}\n"
      "{%- endif %}\n";
  RenderOptions options = test_options();
  const std::string conversation =
      "<s><|system|>\n\nS<|end|><|user|>\n\nHi é🙂<|end|><|assistant|>\n\nok<|end|>";
  EXPECT_EQ(rendered(source, options), conversation + "<|assistant|>\n\n");
  options.add_generation_prompt = false;
  EXPECT_EQ(rendered(source, options), conversation);
}

TEST(ChatTemplate, SplitsReasoningFromContent) {
  const std::string source =
      "{%- set content = '<think>\\nwhy\\n</think>\\n\\nbecause' %}"
      "{%- set reasoning = "
      "content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}"
      "{{- reasoning }}|{{ content.split('</think>')[-1].lstrip('\\n') }}";
  EXPECT_EQ(rendered(source), "why|because");
}

TEST(ChatTemplate, FindsTheLastUserTurnFromBehind) {
  const std::string source =
      "{%- set ns = namespace(seen=false, index=-1) %}"
      "{%- for message in messages[::-1] %}"
      "{%- if not ns.seen and message.role == 'user' %}"
      "{%- set ns.seen = true %}{%- set ns.index = (messages|length - 1) - loop.index0 %}"
      "{%- endif %}{%- endfor %}{{ ns.index }}";
  EXPECT_EQ(rendered(source), "1");
}

TEST(ChatTemplate, ToolsKeepTheOrderOfTheirKeys) {
  EXPECT_EQ(
      rendered(
          "{% for tool in tools %}{{ tool.function.parameters.properties | tojson }}{% endfor %}"),
      R"({"b": {"type": "string"}, "a": {"type": "integer"}})");
}

TEST(ChatTemplate, WithoutToolsTheNameIsNone) {
  RenderOptions options;
  EXPECT_EQ(rendered("{{ tools is none }} {{ tools is defined }}", options), "True True");
}

TEST(ChatTemplate, SpecialTokensThatTheModelDoesNotHaveAreUndefined) {
  EXPECT_EQ(rendered("[{{ bos_token }}]{{ eos_token is defined }}", RenderOptions()), "[]False");
}

TEST(ChatTemplate, ExtraVariablesAreFound) {
  RenderOptions options;
  options.extra = {{"enable_thinking", false}};
  EXPECT_EQ(rendered("{{ enable_thinking is defined and enable_thinking is false }}", options),
            "True");
  options.extra = 5;
  EXPECT_EQ(rendered("", options), "invalid_argument: extra: not an object");
}

TEST(ChatTemplate, TheDateComesFromTheCallerOrNotAtAll) {
  const std::string source =
      "{% if strftime_now is defined %}{{ strftime_now('%d %b %Y') }}{% else %}26 Jul 2024{% endif "
      "%}";
  RenderOptions options;
  EXPECT_EQ(rendered(source, options), "26 Jul 2024");
  options.strftime_now = [](std::string_view format) { return "<" + std::string(format) + ">"; };
  EXPECT_EQ(rendered(source, options), "<%d %b %Y>");
}

// The last message: {"role": "assistant", "content": "ok"}.
TEST(ChatTemplate, ATextThatIsToGoOnEndsWithTheLastMessage) {
  RenderOptions options = test_options();
  options.add_generation_prompt = false;
  options.continue_final_message = true;
  const std::string plain = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}";
  EXPECT_EQ(rendered(plain, options), "<system>S</s><user> Hi é🙂 </s><assistant>ok");
  EXPECT_EQ(rendered("{{ messages[0].content }}", options),
            "invalid_argument: continue_final_message: the template leaves out the last message's "
            "text");
}

// What `source` makes of one message that is to go on.
std::string unfinished(const std::string& source, const std::string& content) {
  RenderOptions options;
  options.continue_final_message = true;
  const auto chat = ChatTemplate::parse(source, "t.jinja");
  const TemplateJson message = {{"role", "assistant"}, {"content", content}};
  const auto text = chat->render(TemplateJson::array({message}), options);
  return text.ok() ? *text : to_string(text.error());
}

TEST(ChatTemplate, ATextThatIsToGoOnHasTheSpacesThatTheTemplateLeaves) {
  EXPECT_EQ(unfinished("{{ messages[0].content }} </s>The end", "The end \n"), "The end \n");
  EXPECT_EQ(unfinished("{{ messages[0].content | trim }} </s>The end", "The end \n"), "The end");
  EXPECT_EQ(unfinished("{{ messages[0].content | trim }} </s>", "The end\u3000"), "The end");
}

// The line breaks before it are the template's, not the message's.
TEST(ChatTemplate, AnEmptyTextThatIsToGoOnHasWhatTheTemplateWritesBeforeIt) {
  const std::string trims = "<assistant>\n\n{{ messages[0].content | trim }}</s>";
  EXPECT_EQ(unfinished(trims, ""), "<assistant>\n\n");
  EXPECT_EQ(unfinished(trims, " \n"), "<assistant>\n\n");
  EXPECT_EQ(unfinished("<assistant>\n\n{{ messages[0].content }}</s>", ""), "<assistant>\n\n");
  EXPECT_EQ(unfinished("<a>\n{{ messages[0].content.lstrip('\n') }}</s>", "\n\n"), "<a>\n");
}

TEST(ChatTemplate, MessagesAreAnArray) {
  const auto chat = ChatTemplate::parse("x", "t.jinja");
  ASSERT_TRUE(chat.ok());
  const auto text = chat->render(TemplateJson::object(), {});
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().detail, "messages: not an array");
}

TEST(ChatTemplate, ATextInPartsGoesOnFromTheLastOfThem) {
  const auto chat = ChatTemplate::parse(
      "{% for p in messages[0].content %}{{ p.text | trim }}{% endfor %}</s>", "t.jinja");
  ASSERT_TRUE(chat.ok());
  RenderOptions options;
  options.continue_final_message = true;
  const auto messages = TemplateJson::parse(R"([{"role": "user", "content": [
      {"type": "text", "text": "a"}, {"type": "text", "text": "b "}]}])");
  EXPECT_EQ(*chat->render(messages, options), "ab");
  for (const char* const none : {R"([{"role": "user", "content": []}])",
                                 R"([{"role": "user", "content": [{"type": "image"}]}])"}) {
    EXPECT_FALSE(chat->render(TemplateJson::parse(none), options).ok()) << none;
  }
}

// Amounts of tokens, say, that a model gave to a tool.
TEST(ChatTemplate, IntegersBeyond64BitsPrintByTheirDigits) {
  const auto digits = [](std::string_view text) {
    return TemplateJson::binary({text.begin(), text.end()});
  };
  RenderOptions options;
  options.extra["n"] = {digits("1500000000000000000000"), digits("-9223372036854775809")};
  EXPECT_EQ(rendered("{{ n }}{{ n|tojson }}", options),
            "[1500000000000000000000, -9223372036854775809]"
            "[1500000000000000000000, -9223372036854775809]");
  EXPECT_EQ(rendered("{{ n[1]|abs }} {{ n[1] < 0 < n[0] }} {{ n[0] is integer }}", options),
            "9223372036854775809 True True");
}

// As schemas of unsigned integers have them.
TEST(ChatTemplate, IntegersBeyond63BitsPrintAsTheyAreWritten) {
  RenderOptions options;
  options.extra = TemplateJson::parse(R"({"n": {"maximum": 18446744073709551615}})");
  EXPECT_EQ(rendered("{{ n.maximum }} {{ n | tojson }} {{ n }}", options),
            R"(18446744073709551615 {"maximum": 18446744073709551615} )"
            R"({'maximum': 18446744073709551615})");
  EXPECT_EQ(
      rendered("{{ n.maximum is integer }} {{ n.maximum is float }} {{ n.maximum is number }} "
               "{{ n.maximum > 7 }} {{ n.maximum ~ '' }}",
               options),
      "True False True True 18446744073709551615");
  for (const char* const computed : {"{{ n.maximum + 1 }}", "{{ -n.maximum }}",
                                     "{{ n.maximum is even }}", "{{ 2 * n.maximum }}"}) {
    EXPECT_THAT(rendered(computed, options), HasSubstr("beyond 64 bits")) << computed;
  }
}

TEST(ChatTemplate, JsonThatIsNestedTooDeeplyIsRefused) {
  RenderOptions options;
  options.extra =
      TemplateJson::parse("{\"n\": " + std::string(200, '[') + std::string(200, ']') + "}");
  EXPECT_EQ(rendered("", options), "invalid_argument: n: JSON is nested too deeply");
}

TEST(ChatTemplate, MovesWithItsText) {
  auto chat = ChatTemplate::parse("a{{ 'b\\n' }}{{ x }}", "t.jinja");
  ASSERT_TRUE(chat.ok());
  const ChatTemplate moved = std::move(chat).value();
  const auto text = moved.render(test_messages(), test_options());
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(*text, "ab\nex");
}

class ChatTemplateLimits : public ::testing::Test {
 protected:
  ChatTemplateLimits() {
    options_.limits = {.bytes_max = 100'000, .output_bytes_max = 10'000, .steps_max = 10'000};
  }
  RenderOptions options_;
};

TEST_F(ChatTemplateLimits, Steps) {
  EXPECT_EQ(rendered("{% for i in range(1000) %}{% for j in range(1000) %}{% endfor %}{% endfor %}",
                     options_),
            "too_large: t.jinja:1: rendering exceeds its limit of memory for values");
  options_.limits.bytes_max = 100'000'000;
  EXPECT_EQ(
      rendered("{% for i in range(1000) %}\n{% for j in range(1000) %}{% endfor %}{% endfor %}",
               options_),
      "too_large: t.jinja:2: rendering exceeds its limit of steps");
}

TEST_F(ChatTemplateLimits, Memory) {
  options_.limits.steps_max = 1'000'000;
  const std::string memory = "rendering exceeds its limit of memory for values";
  EXPECT_THAT(rendered("{% set n = namespace(t='ab') %}{% for i in range(50) %}{% set n.t = n.t + "
                       "n.t %}{% endfor %}",
                       options_),
              HasSubstr(memory));
  EXPECT_THAT(rendered("{{ 'abcdefghij' * 9000 * 9000 }}", options_), HasSubstr(memory));
  EXPECT_THAT(rendered("{{ [1] * 9000 }}", options_), HasSubstr(memory));
  EXPECT_THAT(rendered("{{ ('a' * 5000).replace('a', 'b' * 5000) }}", options_), HasSubstr(memory));
  EXPECT_THAT(rendered("{{ (['x' * 900] * 900) | join }}", options_), HasSubstr(memory));
}

TEST_F(ChatTemplateLimits, ALongTextInAFewPartsIsNoMoreThanThese) {
  options_.extra = {{"answer", std::string(20'000, 'a') + "</think>b"},
                    {"line", std::string(20'000, ' ') + "c"},
                    {"lines", std::string(20'000, '\n')}};
  EXPECT_EQ(rendered("{{ answer.split('</think>')[-1] }}{{ answer.split()|length }}", options_),
            "b1");
  EXPECT_EQ(rendered("{{ lines.split('\n', 1)|length }}", options_), "2");
  const std::string memory = "rendering exceeds its limit of memory for values";
  EXPECT_THAT(rendered("{{ lines.split('\n') }}", options_), HasSubstr(memory));
  EXPECT_THAT(rendered("{{ line.split() }}", options_), HasSubstr(memory));
}

TEST_F(ChatTemplateLimits, Output) {
  options_.limits.steps_max = 1'000'000;
  EXPECT_THAT(rendered("{% for i in range(500) %}{{ 'a' * 50 }}{% endfor %}", options_),
              HasSubstr("rendering exceeds its limit of output"));
}

TEST_F(ChatTemplateLimits, DepthAndWeightOfAValue) {
  options_.limits = {};
  const std::string depth = "rendering exceeds its limit of depth or size of one value";
  EXPECT_THAT(
      rendered(
          "{% set n = namespace(t=[]) %}{% for i in range(500) %}{% set n.t = [n.t] %}{% endfor %}",
          options_),
      HasSubstr(depth));
  EXPECT_THAT(rendered("{% set n = namespace(t=[]) %}{% for i in range(60) %}{% set n.t = [n.t, "
                       "n.t] %}{% endfor %}",
                       options_),
              HasSubstr(depth));
}

TEST(ChatTemplateLimitsOfRange, ARangeHasAtMostSoManyNumbers) {
  EXPECT_EQ(rendered("{{ range(1000000000000)|list }}"),
            "too_large: t.jinja:1: range(): more than 100000 numbers");
}

class LoadChatTemplate : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    dir_ = std::filesystem::path(::testing::TempDir()) /
           (std::string("stemma_chat_template_") + test->name());
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  void write(const std::string& name, const std::string& text) {
    std::ofstream(dir_ / name, std::ios::binary) << text;
  }

  // What the model's template makes of the test's messages; "" where there is no template.
  std::string load_and_render() { return load_and_render({}); }
  std::string load_and_render(const RenderOptions& options) {
    const auto chats = load_chat_templates(dir_);
    if (!chats.ok()) return to_string(chats.error());
    if (!chats->has_value()) return "";
    const auto text = (*chats)->render(test_messages(), options);
    return text.ok() ? *text : to_string(text.error());
  }

  std::string error_in(const std::string& name, const std::string& what) {
    return "corrupt: " + (dir_ / name).string() + ": " + what;
  }

  std::filesystem::path dir_;
};

TEST_F(LoadChatTemplate, AModelMayHaveNone) {
  EXPECT_EQ(load_and_render(), "");
  write("tokenizer_config.json", R"({"bos_token": "<s>"})");
  EXPECT_EQ(load_and_render(), "");
}

TEST_F(LoadChatTemplate, TheFileGoesBeforeTheField) {
  write("tokenizer_config.json",
        R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": "field"})");
  EXPECT_EQ(load_and_render(), "field");
  write("chat_template.jinja", "{{ bos_token }}file{{ eos_token }}");
  EXPECT_EQ(load_and_render(), "<s>file</s>");
}

TEST_F(LoadChatTemplate, TheOtherTokensThatTheModelNamesAreFoundToo) {
  write("tokenizer_config.json",
        R"({"unk_token": "<unk>", "pad_token": {"content": "<pad>"}, "sep_token": null})");
  write("chat_template.jinja", "{{ unk_token }}{{ pad_token }}{{ sep_token is defined }}");
  EXPECT_EQ(load_and_render(), "<unk><pad>False");
}

TEST_F(LoadChatTemplate, SoAreThoseWithoutANameOrWithOneOfTheModelsOwn) {
  write("tokenizer_config.json",
        R"({"additional_special_tokens": ["<a>", {"content": "<b>"}],
            "extra_special_tokens": {"image_token": "<image>"}})");
  write("chat_template.jinja", "{{ additional_special_tokens|join(' ') }}{{ image_token }}");
  EXPECT_EQ(load_and_render(), "<a> <b><image>");
  write("tokenizer_config.json", R"({"additional_special_tokens": []})");
  write("chat_template.jinja", "{{ additional_special_tokens is defined }}");
  EXPECT_EQ(load_and_render(), "False");
}

// As files from before the end of 2023 have them: what the map says goes first, lists are joined.
TEST_F(LoadChatTemplate, OlderFilesNameTheTokensInAMapOfTheirOwn) {
  write("special_tokens_map.json",
        R"({"bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>",
            "additional_special_tokens": ["<b>", {"content": "<c>"}]})");
  write("chat_template.jinja",
        "{{ bos_token }}{{ eos_token }}{{ additional_special_tokens|join(' ') }}");
  EXPECT_EQ(load_and_render(), "<s></s><b> <c>") << "there need be no other file";
  write("tokenizer_config.json",
        R"({"bos_token": "<x>", "additional_special_tokens": ["<a>", "<c>"]})");
  EXPECT_EQ(load_and_render(), "<s></s><a> <c> <b>");
  write("tokenizer_config.json", R"({"bos_token": "<x>", "added_tokens_decoder": {}})");
  EXPECT_EQ(load_and_render(), "<x>") << "newer files say it all";
  write("tokenizer_config.json", "{}");
  write("special_tokens_map.json", R"({"eos_token": 5})");
  EXPECT_EQ(load_and_render(), error_in("special_tokens_map.json",
                                        "eos_token: neither a text nor an object with content"));
}

TEST_F(LoadChatTemplate, SomeClassesHaveTokensThatNoFileNames) {
  write("chat_template.jinja", "{{ bos_token }}{{ eos_token }}{{ unk_token }}{{ pad_token }}");
  write("tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizerFast"})");
  EXPECT_EQ(load_and_render(), "<s></s><unk>");
  write("tokenizer_config.json", R"({"tokenizer_class": "GemmaTokenizer", "eos_token": "<e>"})");
  EXPECT_EQ(load_and_render(), "<bos><e><unk><pad>");
  write("tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizer", "bos_token": null})");
  EXPECT_EQ(load_and_render(), "</s><unk>") << "a file may say that there is none";
  write("tokenizer_config.json", R"({"tokenizer_class": "PreTrainedTokenizerFast"})");
  EXPECT_EQ(load_and_render(), "");
}

TEST_F(LoadChatTemplate, OfAListTheDefaultIsTaken) {
  write("tokenizer_config.json",
        R"({"chat_template": [{"name": "tool_use", "template": "t"},
                              {"name": "default", "template": "d"}]})");
  EXPECT_EQ(load_and_render(), "d");
}

TEST_F(LoadChatTemplate, ChatsWithToolsHaveTheirOwnWhereThereIsOne) {
  write("tokenizer_config.json",
        R"({"chat_template": [{"name": "default", "template": "d"},
                              {"name": "tool_use", "template": "t {{ tools[0].type }}"}]})");
  EXPECT_EQ(load_and_render(test_options()), "t function");
  write("chat_template.jinja", "file");
  EXPECT_EQ(load_and_render(test_options()), "file") << "the field is of no account";
  std::filesystem::create_directories(dir_ / "additional_chat_templates");
  write("additional_chat_templates/tool_use.jinja", "tools' file");
  EXPECT_EQ(load_and_render(test_options()), "tools' file");
  EXPECT_EQ(load_and_render(), "file");
}

TEST_F(LoadChatTemplate, ChatsWithToolsAreRefusedWhereTheirTemplateCannotBeRendered) {
  const std::string name = "tokenizer_config.json";
  write(name, R"({"chat_template": [{"name": "default", "template": "d"},
                                    {"name": "tool_use", "template": "{% include 'x' %}"}]})");
  EXPECT_EQ(load_and_render(), "d");
  EXPECT_EQ(load_and_render(test_options()),
            "unsupported: the model's template for chats with tools cannot be rendered: " +
                (dir_ / name).string() +
                ": chat_template: tool_use:1: the statement {% include %} is not supported");
}

TEST_F(LoadChatTemplate, ErrorsNameFileAndField) {
  const std::string name = "tokenizer_config.json";
  write(name, "{");
  EXPECT_EQ(load_and_render(), error_in(name, "not valid JSON at byte 2"));
  write(name, "5");
  EXPECT_EQ(load_and_render(), error_in(name, "must be a JSON object"));
  write(name, R"({"chat_template": 5})");
  EXPECT_EQ(load_and_render(), error_in(name, "chat_template: neither a text nor a list"));
  write(name, R"({"chat_template": [{"name": "rag", "template": "t"}]})");
  EXPECT_EQ(load_and_render(),
            error_in(name, "chat_template: a list without an entry named \"default\""));
  write(name, R"({"chat_template": [{"name": "rag"}]})");
  EXPECT_EQ(load_and_render(),
            error_in(name, "chat_template: an entry without the texts name and template"));
  write(name, R"({"chat_template": "x", "bos_token": 5})");
  EXPECT_EQ(load_and_render(),
            error_in(name, "bos_token: neither a text nor an object with content"));
  write(name, R"({"chat_template": "{{ x"})");
  EXPECT_EQ(load_and_render(), error_in(name, "chat_template:1: a tag is not closed"));
}

// Each of them is not looked for among all before it, which would take minutes.
TEST_F(LoadChatTemplate, TheFileMayNameManyTokens) {
  std::string text = R"({"chat_template": "t", "added_tokens_decoder": {"0": {"content": "<x>"})";
  for (int i = 1; i < 200'000; ++i) text += ", \"" + std::to_string(i) + R"(": {"content": "<x>"})";
  write("tokenizer_config.json", text + "}}");
  EXPECT_EQ(load_and_render(), "t");
}

TEST_F(LoadChatTemplate, ValuesThatNestDeeplyAreRefused) {
  const std::string name = "tokenizer_config.json";
  const auto nested = [](std::size_t levels) {
    return R"({"chat_template": "t", "x": )" + std::string(levels - 1, '[') +
           std::string(levels - 1, ']') + "}";
  };
  write(name, nested(64));
  EXPECT_EQ(load_and_render(), "t");
  for (const std::size_t levels : {std::size_t{65}, std::size_t{100'000}}) {
    write(name, nested(levels));
    EXPECT_EQ(load_and_render(),
              "too_large: " + (dir_ / name).string() + ": JSON nested deeper than 64 levels");
  }
}

}  // namespace
}  // namespace stemma
