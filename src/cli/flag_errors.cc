#include "cli/flag_errors.h"

#include <array>
#include <utility>

namespace stemma {

namespace {

// Fields of the engine's options and of its requests, and the flags that they come from.
constexpr std::array<std::pair<std::string_view, std::string_view>, 15> kFlags = {{
    {"kv_bytes ", "--kv-bytes"},
    {"pages ", "--kv-bytes"},
    {"windowed_pages ", "--kv-bytes"},
    {"page_size ", "--page-size"},
    {"context_tokens_max ", "--context-tokens"},
    {"requests_max ", "--concurrency"},
    {"chunk_tokens_max ", "--chunk-tokens"},
    {"step_tokens_max ", "--chunk-tokens"},
    {"lower tiers need the cache ", "--cache"},
    {"selective_uses ", "--selective-uses"},
    {"temperature ", "--temperature"},
    {"top_k ", "--top-k"},
    {"top_p ", "--top-p"},
    {"min_p ", "--min-p"},
    {"repetition_penalty ", "--repetition-penalty"},
}};

}  // namespace

Error behind_flag(const Error& error) {
  for (const auto& [field, flag] : kFlags) {
    if (error.detail.starts_with(field)) return named(flag, error);
  }
  return error;
}

}  // namespace stemma
