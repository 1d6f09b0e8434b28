// What is covered: the templates of four model families against the texts that they are known to
// make. How: every vector of the data directory beside the repository; skipped with a message where
// it is absent. Smaller vectors of the same constructs lie in src/template/.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "template/chat_template.h"

namespace stemma {
namespace {

const std::filesystem::path kVectors = STEMMA_SOURCE_DIR "/../shared/data/chat_templates";

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The BOS text that the family has; none where it has none.
std::optional<std::string> bos_token_of(const std::string& family) {
  if (family.starts_with("llama3")) return "<|begin_of_text|>";
  return std::nullopt;
}

void expect_vectors(const std::filesystem::path& path, const std::string& family) {
  SCOPED_TRACE(family);
  const auto chat = ChatTemplate::parse(read(kVectors / (family + ".jinja")), family + ".jinja");
  ASSERT_TRUE(chat.ok()) << to_string(chat.error());
  const TemplateJson vectors = TemplateJson::parse(read(path));
  ASSERT_FALSE(vectors.empty());
  for (const TemplateJson& vector : vectors) {
    RenderOptions options;
    options.add_generation_prompt = vector["add_generation_prompt"].get<bool>();
    options.bos_token = bos_token_of(family);
    const auto text = chat->render(vector["messages"], options);
    ASSERT_TRUE(text.ok()) << to_string(text.error());
    EXPECT_EQ(*text, vector["expected"].get<std::string>());
  }
}

TEST(ChatTemplateVectors, EveryFamilyRendersEveryVectorExactly) {
  if (!std::filesystem::exists(kVectors)) {
    GTEST_SKIP() << "no vectors at " << kVectors << "; only the repository's own are tested";
  }
  constexpr std::string_view kEnding = ".vectors.json";
  int families = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kVectors)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(kEnding)) continue;
    expect_vectors(entry.path(), name.substr(0, name.size() - kEnding.size()));
    ++families;
  }
  EXPECT_GE(families, 4);
}

}  // namespace
}  // namespace stemma
