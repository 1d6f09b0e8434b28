#include "server/key_book.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <sstream>
#include <utility>

#include "base/ascii.h"
#include "base/file.h"

namespace stemma {
namespace {

Error line_error(std::string_view file, std::int64_t line, std::string_view why) {
  return {ErrorCode::kInvalidArgument, fmt::format("{}:{}: {}", file, line, why)};
}

std::optional<Sha256Digest> try_digest(std::string_view hex) {
  Sha256Digest digest;
  if (hex.size() != 2 * digest.size()) return std::nullopt;
  for (std::size_t i = 0; i < digest.size(); ++i) {
    const char* const begin = hex.data() + 2 * i;
    const auto [end, wrong] = std::from_chars(begin, begin + 2, digest[i], 16);
    if (wrong != std::errc() || end != begin + 2) return std::nullopt;
  }
  return digest;
}

// A scheme's name is written in letters of either case (RFC 9110, 11.1).
bool is_bearer(std::string_view authorization) {
  constexpr std::string_view kBearer = "bearer ";
  return equals_ignoring_case(authorization.substr(0, kBearer.size()), kBearer);
}

}  // namespace

// What a line says of a key.
struct KeyBook::Line {
  Caller caller;
  std::optional<std::int64_t> quota_pages;
};

Result<KeyBook> KeyBook::load(const std::string& file) {
  constexpr std::int64_t kFileBytesMax = std::int64_t{64} << 20;
  PosixFiles files;
  STEMMA_ASSIGN_OR_RETURN(const std::string text, read_file(files, file, kFileBytesMax));
  return parse(text, file);
}

Result<KeyBook> KeyBook::parse(std::string_view text, std::string_view file_name) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  KeyBook book;
  std::istringstream lines{std::string(text)};
  std::string line;
  for (std::int64_t number = 1; std::getline(lines, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    Line entry;
    std::string hex;
    if (!(words >> entry.caller.tenant)) continue;
    if (!(words >> hex)) return line_error(file_name, number, "a tenant and a digest are wanted");
    const auto digest = try_digest(hex);
    if (!digest.has_value()) {
      return line_error(file_name, number, "the digest must be 64 hexadecimal digits (SHA-256)");
    }
    for (std::string word; words >> word;) {
      if (!take_word(word, entry)) {
        return line_error(file_name, number, "\"" + word + "\" is neither admin nor pages=N");
      }
    }
    const std::string wrong = book.add(*digest, std::move(entry));
    if (!wrong.empty()) return line_error(file_name, number, wrong);
  }
  if (book.callers_.empty()) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: has no keys", file_name)};
  }
  return book;
}

// "admin" or "pages=N"; false if it is neither.
bool KeyBook::take_word(std::string_view word, Line& line) {
  if (word == "admin") {
    line.caller.admin = true;
    return true;
  }
  constexpr std::string_view kPages = "pages=";
  if (!word.starts_with(kPages)) return false;
  const std::string_view number = word.substr(kPages.size());
  std::int64_t pages = 0;
  const auto [end, wrong] = std::from_chars(number.data(), number.data() + number.size(), pages);
  if (wrong != std::errc() || end != number.data() + number.size() || pages < 1) return false;
  line.quota_pages = pages;
  return true;
}

std::string KeyBook::add(const Sha256Digest& digest, Line line) {
  std::optional<std::int64_t>& known = quota_pages_[line.caller.tenant];
  if (known.has_value() && line.quota_pages.has_value() && *known != *line.quota_pages) {
    return fmt::format("{} has a quota of {} pages by an earlier line", line.caller.tenant, *known);
  }
  if (line.quota_pages.has_value()) known = line.quota_pages;
  const bool is_new = callers_.emplace(digest, std::move(line.caller)).second;
  return is_new ? "" : "this key appears twice";
}

std::vector<NamedQuota> KeyBook::quotas(std::optional<std::int64_t> default_pages) const {
  std::vector<NamedQuota> quotas;
  for (const auto& [tenant, own_pages] : quota_pages_) {
    const std::optional<std::int64_t> pages = own_pages.has_value() ? own_pages : default_pages;
    if (pages.has_value()) quotas.push_back({tenant, *pages});
  }
  return quotas;
}

std::optional<Caller> KeyBook::caller_of(const std::string* authorization_or_null,
                                         const std::string* api_key_or_null) const {
  if (open_to_all()) return Caller{.admin = true};
  std::string_view key;
  if (authorization_or_null == nullptr) {
    if (api_key_or_null == nullptr) return std::nullopt;
    key = *api_key_or_null;
  } else {
    if (!is_bearer(*authorization_or_null)) return std::nullopt;
    key = std::string_view(*authorization_or_null).substr(std::string_view("Bearer ").size());
  }
  const auto found = callers_.find(sha256(std::as_bytes(std::span(key))));
  if (found == callers_.end()) return std::nullopt;
  return found->second;
}

}  // namespace stemma
