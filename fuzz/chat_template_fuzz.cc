// Chat templates from outside, rendered for messages from outside: no input may crash, hang or
// exceed its limits.
//
// Input: a template, a zero byte, messages as JSON. Without valid messages a conversation of two
// turns is rendered.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "template/chat_template.h"

namespace {

stemma::TemplateJson messages_from(std::string_view json) {
  const auto parsed = stemma::TemplateJson::parse(json, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_array()) return parsed;
  return {{{"role", "system"}, {"content", "Be brief."}},
          {{"role", "user"}, {"content", " ½ 🙂 "}}};
}

stemma::RenderOptions options_for(std::size_t input_bytes) {
  stemma::RenderOptions options;
  options.add_generation_prompt = input_bytes % 2 == 0;
  options.bos_token = "<s>";
  options.tools = {{{"type", "function"}, {"function", {{"name", "f"}, {"n", 1.5}}}}};
  if (input_bytes % 3 == 0) options.strftime_now = [](std::string_view) { return "1 Jan 2025"; };
  options.limits = {.bytes_max = std::size_t{1} << 20,
                    .output_bytes_max = std::size_t{1} << 16,
                    .steps_max = 20'000};
  return options;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(bytes), size);
  const std::size_t end = std::min(input.find('\0'), input.size());
  const auto chat = stemma::ChatTemplate::parse(input.substr(0, end), "fuzz.jinja");
  if (!chat.ok()) {
    STEMMA_CHECK(chat.error().detail.starts_with("fuzz.jinja:"), "an error names its file");
    return 0;
  }
  const auto options = options_for(size);
  const auto messages = messages_from(input.substr(std::min(end + 1, size)));
  const auto text = chat->render(messages, options);
  if (text.ok()) {
    STEMMA_CHECK(text->size() <= options.limits.output_bytes_max, "the output has a limit");
  }
  return 0;
}
