#include "server/origin_rules.h"

#include <algorithm>
#include <utility>

#include "base/ascii.h"

namespace stemma {
namespace {

constexpr std::string_view kSchemeEnd = "://";

// "host[:port]" of an origin; empty of one that has none.
std::string_view authority_of(std::string_view origin) {
  const std::size_t scheme_end = origin.find(kSchemeEnd);
  if (scheme_end == std::string_view::npos) return {};
  return origin.substr(scheme_end + kSchemeEnd.size());
}

std::string_view without_port(std::string_view authority) {
  if (authority.starts_with('[')) return authority.substr(0, authority.find(']') + 1);
  return authority.substr(0, authority.find(':'));
}

bool is_origin(std::string_view text) {
  if (text == "null") return true;
  const std::string_view authority = authority_of(text);
  return !without_port(authority).empty() && !text.starts_with(kSchemeEnd) &&
         authority.find_first_of("/?#@ ") == std::string_view::npos;
}

}  // namespace

Result<OriginRules> OriginRules::of(std::vector<std::string> allowed, bool listens_locally) {
  OriginRules rules;
  rules.listens_locally_ = listens_locally;
  for (std::string& origin : allowed) {
    if (origin == "*") {
      rules.allows_all_ = true;
    } else if (is_origin(origin)) {
      rules.allowed_.push_back(std::move(origin));
    } else {
      return Error{ErrorCode::kInvalidArgument,
                   origin + ": no origin, such as https://chat.example or http://localhost:3000"};
    }
  }
  return rules;
}

bool OriginRules::allows(std::string_view origin) const {
  const auto is_it = [&](std::string_view one) { return equals_ignoring_case(one, origin); };
  return allows_all_ || std::any_of(allowed_.begin(), allowed_.end(), is_it);
}

bool OriginRules::is_nobodys(std::string_view host) const {
  const std::string_view name = without_port(host);
  const bool is_address =
      name.starts_with('[') || name.find_first_not_of("0123456789.") == std::string_view::npos;
  if (is_address || name.find('.') == std::string_view::npos) return true;
  constexpr std::string_view kLocal = ".localhost";
  if (name.size() > kLocal.size() &&
      equals_ignoring_case(name.substr(name.size() - kLocal.size()), kLocal)) {
    return true;
  }
  return std::any_of(allowed_.begin(), allowed_.end(), [&](std::string_view origin) {
    return equals_ignoring_case(without_port(authority_of(origin)), name);
  });
}

const std::string* OriginRules::granted_or_null(const HttpRequest& head) const {
  const std::string* const origin = head.header_or_null("origin");
  return origin != nullptr && allows(*origin) ? origin : nullptr;
}

std::optional<std::string> OriginRules::fault(const HttpRequest& head) const {
  if (allows_all_) return std::nullopt;
  const std::string* const host = head.header_or_null("host");
  if (listens_locally_ && host != nullptr && !is_nobodys(*host)) {
    return "the name in Host is not this machine's: see --allowed-origins";
  }
  const std::string* const origin = head.header_or_null("origin");
  if (origin == nullptr || allows(*origin)) return std::nullopt;
  const std::string_view own = host == nullptr ? std::string_view() : *host;
  if (!own.empty() && equals_ignoring_case(authority_of(*origin), own)) return std::nullopt;
  return "pages of this origin may not ask: see --allowed-origins";
}

bool is_preflight(const HttpRequest& request) {
  return request.method == "OPTIONS" && request.header_or_null("origin") != nullptr &&
         request.header_or_null("access-control-request-method") != nullptr;
}

HttpResponse preflight_answer(const HttpRequest& request) {
  HttpResponse response = {.status = 204, .content_type = ""};
  response.headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, DELETE");
  if (const std::string* const wanted = request.header_or_null("access-control-request-headers")) {
    response.headers.emplace_back("Access-Control-Allow-Headers", *wanted);
  }
  response.headers.emplace_back("Access-Control-Max-Age", "7200");
  return response;
}

void grant(std::string_view origin, HttpResponse& response) {
  response.headers.emplace_back("Access-Control-Allow-Origin", origin);
  response.headers.emplace_back("Access-Control-Expose-Headers", "*");
  response.headers.emplace_back("Vary", "Origin");
}

}  // namespace stemma
