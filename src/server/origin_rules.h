// OriginRules: pages of which sites may ask this server from a browser.
//
// A browser lets any page send requests to whatever it can reach, this machine's ports too. It says
// by `Origin` where the page is from, and keeps the answer from it unless the server grants it
// (Fetch standard, 3.2: CORS). A page whose domain is pointed at this machine once it is loaded
// (DNS rebinding) is one of the server's own to the browser; only `Host` tells. Keys keep such
// pages out, since a page does not have them. Where there are none, requests are refused that come
//
//   from another origin      than the one asked, or those that are allowed
//   under a name in `Host`   that somebody may own, on a server that listens to this machine alone;
//                            nobody owns addresses, names without a dot, those below localhost,
//                            and those of allowed origins are the operator's
//
// Thread:     immutable.
// Memory:     the origins.
// Cost:       a comparison with each of the few origins.
// Not here:   keys (key_book), which answers bear the grant (api_service).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "http/http_message.h"
#include "stemma/result.h"

namespace stemma {

class OriginRules {
 public:
  // Pages of the server's own alone may ask, under whatever name it is reached.
  OriginRules() = default;
  // `allowed` are origins as browsers write them ("https://chat.example", "null"), or "*": any.
  // kInvalidArgument if one is none. `listens_locally`: nobody else's machine can reach the server.
  static Result<OriginRules> of(std::vector<std::string> allowed, bool listens_locally);

  // The origin that an answer to this request is granted to; nullptr: to none.
  const std::string* granted_or_null(const HttpRequest& head) const;
  // Why whoever has no key may not ask this; nullopt: nothing is wrong.
  std::optional<std::string> fault(const HttpRequest& head) const;

 private:
  bool allows(std::string_view origin) const;
  bool is_nobodys(std::string_view host) const;

  std::vector<std::string> allowed_;
  bool allows_all_ = false;
  bool listens_locally_ = false;
};

// Whether the browser asks if a page of another origin may send a request at all.
bool is_preflight(const HttpRequest& request);
// That it may. REQUIRES: is_preflight(request).
HttpResponse preflight_answer(const HttpRequest& request);
// Lets pages of `origin` read `response`.
void grant(std::string_view origin, HttpResponse& response);

}  // namespace stemma
