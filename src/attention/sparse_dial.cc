#include "attention/sparse_dial.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

namespace stemma {

namespace {

// Keeps the products of tokens_kept within 63 bits.
constexpr std::int64_t kKeptOfMax = std::int64_t{1} << 16;

std::optional<std::int64_t> try_parse_count(std::string_view text) {
  std::int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size() || count < 1) return std::nullopt;
  return count;
}

}  // namespace

Status validate(const SparseDial& dial) {
  std::string what;
  if (dial.dense_tokens < 0) {
    what = fmt::format("dense_tokens must be at least 0 (got {})", dial.dense_tokens);
  } else if (dial.kept_tokens < 1) {
    what = fmt::format("kept_tokens must be at least 1 (got {})", dial.kept_tokens);
  } else if (dial.kept_of != 0 && (dial.kept_of < dial.kept_tokens || dial.kept_of > kKeptOfMax)) {
    what = fmt::format("kept_of must be 0 or in {} ... {} (got {})", dial.kept_tokens, kKeptOfMax,
                       dial.kept_of);
  } else {
    return {};
  }
  return Error{ErrorCode::kInvalidArgument, "sparse dial: " + what};
}

std::string kept_text(const SparseDial& dial) {
  return dial.kept_of == 0 ? fmt::format("{}", dial.kept_tokens)
                           : fmt::format("{}/{}", dial.kept_tokens, dial.kept_of);
}

std::optional<SparseDial> try_parse_kept(std::string_view text) {
  const std::size_t slash = text.find('/');
  const auto kept = try_parse_count(text.substr(0, slash));
  if (!kept.has_value()) return std::nullopt;
  SparseDial dial;
  dial.kept_tokens = *kept;
  dial.kept_of = 0;
  if (slash != std::string_view::npos) {
    const auto of = try_parse_count(text.substr(slash + 1));
    if (!of.has_value()) return std::nullopt;
    dial.kept_of = *of;
  }
  if (!validate(dial).ok()) return std::nullopt;
  return dial;
}

}  // namespace stemma
