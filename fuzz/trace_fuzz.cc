// Any bytes as one line of a trace: a request or an error, never a crash.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "replay/trace_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string_view line(reinterpret_cast<const char*>(bytes), size);
  for (const char* name : {"mooncake", "qwen-bailian", "prompts"}) {
    const auto request =
        stemma::parse_trace_line(line, *stemma::find_trace_format(name), "trace:1");
    if (request.ok() && request->input_tokens < 0) __builtin_trap();
  }
  return 0;
}
