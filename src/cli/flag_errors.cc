#include "cli/flag_errors.h"

#include <array>
#include <utility>

namespace stemma {

namespace {

// Fields of the engine's options, and the flags that they come from.
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kFlags = {{
    {"kv_bytes ", "--kv-bytes"},
    {"pages ", "--kv-bytes"},
    {"windowed_pages ", "--kv-bytes"},
    {"page_size ", "--page-size"},
    {"context_tokens_max ", "--context-tokens"},
    {"requests_max ", "--concurrency"},
    {"chunk_tokens_max ", "--chunk-tokens"},
    {"step_tokens_max ", "--chunk-tokens"},
}};

}  // namespace

Error behind_flag(const Error& error) {
  for (const auto& [field, flag] : kFlags) {
    if (error.detail.starts_with(field)) return named(flag, error);
  }
  return error;
}

}  // namespace stemma
