// Any text as an answer that may call tools: however it is cut, the same calls come out and the
// same text; a call's arguments are JSON; and where there is no call the text is the answer itself.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "openai/completion_answer.h"
#include "openai/tool_calls.h"

namespace {

stemma::ToolCallText read(stemma::ToolCallStyle style, std::string_view answer,
                          std::size_t piece_bytes) {
  static const stemma::ToolTypes kTypes = {
      {"look", {{"at", {"string"}}, {"n", {"integer", "null"}}, {"o", {"object"}}}}, {"go", {}}};
  stemma::ToolCallReader reader(style, kTypes);
  stemma::ToolCallText read;
  for (std::size_t at = 0; at < answer.size(); at += piece_bytes) {
    reader.push(answer.substr(at, piece_bytes), read);
  }
  reader.finish(read);
  return read;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const auto style = static_cast<stemma::ToolCallStyle>(data[0] % 6);
  const std::string_view answer(reinterpret_cast<const char*>(data) + 2, size - 2);
  const stemma::ToolCallText whole = read(style, answer, answer.size() + 1);
  const stemma::ToolCallText cut = read(style, answer, data[1] % 16U + 1);
  if (cut.text != whole.text || cut.calls != whole.calls || cut.places != whole.places)
    std::abort();
  if (whole.places.size() != whole.calls.size()) std::abort();
  if (whole.calls.empty() && whole.text != answer) std::abort();
  for (const stemma::ToolCall& call : whole.calls) {
    if (!stemma::is_json(call.arguments)) std::abort();
  }
  return 0;
}
