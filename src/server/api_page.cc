// The page for the browser. It is whole in itself: it asks this server alone, and runs no script
// but its own (Content-Security-Policy). It shows nothing that needs a key before it is given one.
#include <algorithm>

#include "server/api_service.h"
#include "server/page_files.h"

namespace stemma {
namespace {

constexpr std::string_view kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

std::string_view content_type_of(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".svg")) return "image/svg+xml";
  return "text/javascript; charset=utf-8";
}

}  // namespace

void ApiService::page(ExchangeId exchange, HttpRequest&& request) {
  const std::string_view name = request.path == "/"
                                    ? "index.html"
                                    : std::string_view(request.path).substr(sizeof("/page/") - 1);
  const auto files = page_files();
  const auto file = std::find_if(files.begin(), files.end(),
                                 [&](const PageFile& each) { return each.name == name; });
  if (file == files.end()) return refuse(exchange, not_found("there is nothing at this path"));
  HttpResponse response = {.content_type = std::string(content_type_of(name)),
                           .headers = {{"Content-Security-Policy", std::string(kPolicy)},
                                       {"X-Content-Type-Options", "nosniff"},
                                       {"Referrer-Policy", "no-referrer"},
                                       {"Cache-Control", "no-cache"}},
                           .body = std::string(file->text)};
  answer(exchange, std::move(response));
}

}  // namespace stemma
