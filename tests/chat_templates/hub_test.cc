// What is covered: the chat templates of published models against Jinja itself, set up as Hugging
// Face's apply_chat_template does. How: conversations that tests/hub draws, tools and odd ones
// among them; `tools/check hub` makes them. Skipped with a message where they are absent.
#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "template/chat_template.h"

namespace stemma {
namespace {

const std::filesystem::path kHub = STEMMA_SOURCE_DIR "/build/hub";

std::string text_of_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// 2026-11-30 09:05:03, a Monday.
std::string date_text(std::string_view format) {
  std::tm time = {};
  time.tm_year = 126;
  time.tm_mon = 10;
  time.tm_mday = 30;
  time.tm_hour = 9;
  time.tm_min = 5;
  time.tm_sec = 3;
  time.tm_wday = 1;
  time.tm_yday = 333;
  std::string text(256, '\0');
  text.resize(std::strftime(text.data(), text.size(), std::string(format).c_str(), &time));
  return text;
}

RenderOptions options_of(const TemplateJson& chat) {
  RenderOptions options;
  options.add_generation_prompt = chat["add_generation_prompt"].get<bool>();
  options.bos_token = "<s>";
  options.eos_token = "</s>";
  options.tools = chat["tools"];
  options.extra = chat["extra"];
  options.strftime_now = date_text;
  return options;
}

// What Jinja renders is rendered so; what it refuses is refused.
void expect_same(const ChatTemplate& chat_template, const TemplateJson& chat) {
  const auto text = chat_template.render(chat["messages"], options_of(chat));
  if (!chat.contains("text")) {
    EXPECT_FALSE(text.ok()) << "Jinja says " << chat["error"] << " of " << chat["messages"];
  } else if (text.ok()) {
    EXPECT_EQ(*text, chat["text"].get<std::string>()) << chat["messages"];
  } else {
    ADD_FAILURE() << to_string(text.error()) << " of " << chat["messages"];
  }
}

TEST(HubTemplates, RenderWhatJinjaRenders) {
  if (!std::filesystem::exists(kHub / "chats.json")) {
    GTEST_SKIP() << "no conversations at " << kHub << ": `tools/check hub` makes them";
  }
  int read = 0;
  for (const TemplateJson& one : TemplateJson::parse(text_of_file(kHub / "chats.json"))) {
    const auto name = one["template"].get<std::string>();
    SCOPED_TRACE(name);
    const auto parsed = ChatTemplate::parse(text_of_file(kHub / "templates" / name), name);
    if (!parsed.ok() && parsed.error().code == ErrorCode::kUnsupported) {
      std::printf("%s\n", to_string(parsed.error()).c_str());
      continue;
    }
    ASSERT_TRUE(parsed.ok()) << to_string(parsed.error());
    ++read;
    for (const TemplateJson& chat : one["chats"]) expect_same(*parsed, chat);
  }
  EXPECT_GE(read, 99) << "those that use something which is not rendered are named above";
}

}  // namespace
}  // namespace stemma
