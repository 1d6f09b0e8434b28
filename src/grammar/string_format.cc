#include "grammar/string_format.h"

#include <fmt/format.h>

namespace stemma {
namespace {

constexpr std::string_view kDate =
    "[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|"
    "30)|02-(?:0[1-9]|1[0-9]|2[0-8]))";
constexpr std::string_view kTime = R"((?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?)"
                                   "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
constexpr std::string_view kHost =
    R"([a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?){0,3})";
constexpr std::string_view kMailbox = R"([A-Za-z0-9_+-]{1,20}(?:\.[A-Za-z0-9_+-]{1,20}){0,2})";
constexpr std::string_view kOctet = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";

}  // namespace

std::string expression_of_format(std::string_view format) {
  if (format == "date") return fmt::format("^{}$", kDate);
  if (format == "time") return fmt::format("^{}$", kTime);
  if (format == "date-time") return fmt::format("^{}T{}$", kDate, kTime);
  if (format == "uuid") return "^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$";
  if (format == "ipv4") return fmt::format(R"(^{0}(?:\.{0}){{3}}$)", kOctet);
  if (format == "hostname") return fmt::format("^{}$", kHost);
  if (format == "email") return fmt::format("^{}@{}$", kMailbox, kHost);
  return {};
}

}  // namespace stemma
