// Any bytes as one line of a prompts file: a request or an error, never a crash.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "replay/prompts_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string_view line(reinterpret_cast<const char*>(bytes), size);
  const auto parsed = stemma::parse_prompt_line(line, "prompts:1");
  if (parsed.ok() && parsed->max_tokens.value_or(1) < 1) __builtin_trap();
  return 0;
}
