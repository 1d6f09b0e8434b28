#include "http/url.h"

#include <algorithm>
#include <cstddef>

namespace stemma {

int hex_digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::optional<std::string> try_percent_decode(std::string_view text) {
  std::string decoded;
  decoded.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    if (text.size() - i < 3) return std::nullopt;
    const int high = hex_digit_value(text[i + 1]);
    const int low = hex_digit_value(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    decoded += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return decoded;
}

namespace {

std::optional<std::string> decode(std::string_view text) {
  std::string spaced(text);
  std::replace(spaced.begin(), spaced.end(), '+', ' ');
  return try_percent_decode(spaced);
}

// The next one of the query, which is shortened by it.
std::string_view take_parameter(std::string_view& query) {
  const std::string_view parameter = query.substr(0, query.find('&'));
  query.remove_prefix(std::min(parameter.size() + 1, query.size()));
  return parameter;
}

std::string_view key_of(std::string_view parameter) {
  return parameter.substr(0, parameter.find('='));
}

}  // namespace

bool says_only(std::string_view query, std::string_view name) {
  for (int times = 0; !query.empty(); ++times) {
    if (decode(key_of(take_parameter(query))) != name || times > 0) return false;
  }
  return true;
}

Result<std::optional<std::string>> query_value_or_null(std::string_view query,
                                                       std::string_view name) {
  while (!query.empty()) {
    const std::string_view parameter = take_parameter(query);
    const std::string_view key = key_of(parameter);
    if (decode(key) != name) continue;
    auto value = decode(parameter.substr(std::min(key.size() + 1, parameter.size())));
    if (!value.has_value()) return Error{ErrorCode::kInvalidArgument, "is badly percent-encoded"};
    return value;
  }
  return std::optional<std::string>();
}

}  // namespace stemma
