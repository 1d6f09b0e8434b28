// Any bytes as lines of a trace, in every format: requests or errors, never a crash.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "replay/trace_parser.h"

namespace {

// Reads every line of `text`, wrong ones left out, and what is open at its end.
void read_all(std::string_view text, const stemma::TraceOptions& options) {
  const auto parser = stemma::make_trace_parser(options);
  if (!parser.ok()) __builtin_trap();
  stemma::TraceRequest request;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    (*parser)->take(line, "trace:1").ok();
    while ((*parser)->try_next(request)) {
      if (request.input_tokens < 0 || !(request.timestamp_ms >= 0 && request.timestamp_ms < 1e22)) {
        __builtin_trap();
      }
    }
  }
  (*parser)->end();
  while ((*parser)->try_next(request)) {
    if (request.page_hashes.empty()) __builtin_trap();  // a run of stores holds a page
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  for (const char* name :
       {"mooncake", "qwen-bailian", "block-hash", "prompts", "kv-events", "capture"}) {
    stemma::TraceOptions options;
    options.format = *stemma::find_trace_format(name);
    if (options.format.short_names) options.page_tokens = 16;
    read_all(text, options);
  }
  return 0;
}
