// TextCursor: how far a text has been read, for readers of notations.
//
// Thread:     one reader, one thread.
// Memory:     none of its own; the text must outlive it.
// Cost:       O(what is looked at).
// Not here:   what is wrong with a text (the readers), JSON (base/json_text).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace stemma {

class TextCursor {
 protected:
  explicit TextCursor(std::string_view text) : text_(text) {}

  bool at_end() const { return at_ >= text_.size(); }
  bool sees(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  // Whether it is there; then it has been read.
  bool take(std::string_view what) {
    if (!sees(what)) return false;
    at_ += what.size();
    return true;
  }

  // What digits say, kNumberMax at most; nullopt: there is none.
  static constexpr std::int64_t kNumberMax = 1'000'000;
  std::optional<std::int64_t> take_number() {
    std::optional<std::int64_t> number;
    for (; !at_end() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      number = std::min(number.value_or(0) * 10 + (text_[at_] - '0'), kNumberMax);
    }
    return number;
  }

  // What so many hexadecimal digits say, 2^28 at most; nullopt, and read up to there, where one is
  // none.
  std::optional<char32_t> take_hex(std::size_t digits) {
    constexpr std::string_view kHex = "0123456789abcdef0123456789ABCDEF";
    char32_t code = 0;
    for (std::size_t i = 0; i < digits; ++i, ++at_) {
      const std::size_t place = at_end() ? std::string_view::npos : kHex.find(text_[at_]);
      if (place == std::string_view::npos) return std::nullopt;
      code = std::min<char32_t>(code * 16 + static_cast<char32_t>(place % 16), 1u << 28);
    }
    return code;
  }

  const std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace stemma
