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
// Groups of an address, all eight or with some left out at one place.
constexpr std::string_view kGroup = "[0-9a-f]{1,4}";
// Of a date and of a time in a duration: at least one number, and none left out between two.
constexpr std::string_view kDays = "(?:{0}Y(?:{0}M(?:{0}D)?)?|{0}M(?:{0}D)?|{0}D)";
constexpr std::string_view kHours = "T(?:{0}H(?:{0}M(?:{0}S)?)?|{0}M(?:{0}S)?|{0}S)";
constexpr std::string_view kCount = "[0-9]{1,6}";
constexpr std::string_view kOctet = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";

std::string duration_expression() {
  const std::string days = fmt::format(fmt::runtime(kDays), kCount);
  const std::string hours = fmt::format(fmt::runtime(kHours), kCount);
  return fmt::format("^P(?:{0}(?:{1})?|{1}|{2}W)$", days, hours, kCount);
}

std::string ipv6_expression() {
  std::string ways = fmt::format("{0}(?::{0}){{7}}", kGroup);
  constexpr int kGroupsMax = 6;  // where some are left out
  for (int before = 0; before <= kGroupsMax; ++before) {
    const std::string begin =
        before == 0 ? "" : fmt::format("{0}(?::{0}){{{1}}}", kGroup, before - 1);
    const int behind = kGroupsMax - before;
    const std::string end =
        behind == 0 ? "" : fmt::format("(?:{0}(?::{0}){{0,{1}}})?", kGroup, behind - 1);
    ways += fmt::format("|{}::{}", begin, end);
  }
  return fmt::format("^(?:{})$", ways);
}

}  // namespace

std::string expression_of_format(std::string_view format) {
  if (format == "date") return fmt::format("^{}$", kDate);
  if (format == "time") return fmt::format("^{}$", kTime);
  if (format == "date-time") return fmt::format("^{}T{}$", kDate, kTime);
  if (format == "uuid") return "^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$";
  if (format == "ipv4") return fmt::format(R"(^{0}(?:\.{0}){{3}}$)", kOctet);
  if (format == "ipv6") return ipv6_expression();
  if (format == "duration") return duration_expression();
  if (format == "hostname") return fmt::format("^{}$", kHost);
  if (format == "email") return fmt::format("^{}@{}$", kMailbox, kHost);
  return {};
}

}  // namespace stemma
