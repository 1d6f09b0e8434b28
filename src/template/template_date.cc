#include "template/template_date.h"

#include <array>
#include <charconv>
#include <ctime>

namespace stemma {
namespace {

constexpr std::size_t kTextBytesMax = 4096;

// The number that is all of `digits`; -1: they are none.
int number_of(std::string_view digits) {
  unsigned number = 0;
  const char* const end = digits.data() + digits.size();
  const auto read = std::from_chars(digits.data(), end, number);
  return read.ec == std::errc{} && read.ptr == end ? static_cast<int>(number) : -1;
}

}  // namespace

std::string date_text(std::string_view format, std::int64_t time_s) {
  const std::time_t time = time_s;
  std::tm local = {};
  localtime_r(&time, &local);
  std::array<char, kTextBytesMax + 1> text = {};
  const std::size_t bytes =
      std::strftime(text.data(), text.size(), std::string(format).c_str(), &local);
  return {text.data(), bytes};
}

Result<std::int64_t> begin_of_day(std::string_view day) {
  const bool has_form = day.size() == 10 && day[4] == '-' && day[7] == '-';
  std::tm wanted = {};
  if (has_form) {
    wanted.tm_year = number_of(day.substr(0, 4)) - 1900;
    wanted.tm_mon = number_of(day.substr(5, 2)) - 1;
    wanted.tm_mday = number_of(day.substr(8, 2));
    wanted.tm_isdst = -1;  // whichever it was then
  }
  std::tm found = wanted;
  const std::time_t time = std::mktime(&found);
  const bool is_day = has_form && wanted.tm_year >= -1900 && wanted.tm_mday > 0 &&
                      found.tm_mday == wanted.tm_mday && found.tm_mon == wanted.tm_mon &&
                      found.tm_year == wanted.tm_year;
  if (!is_day) {
    return Error{ErrorCode::kInvalidArgument,
                 "must be a day as YYYY-MM-DD (got " + std::string(day) + ")"};
  }
  return std::int64_t{time};
}

}  // namespace stemma
