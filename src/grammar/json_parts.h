// JsonParts: the texts of JSON that are not of any schema: strings, numbers, any value.
//
// Thread:     one thread a grammar.
// Memory:     their parts, once a grammar.
// Cost:       some 200 parts.
// Not here:   schemas (json_schema).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/byte_grammar.h"
#include "stemma/result.h"

namespace stemma {

// White space between what JSON consists of: some may come, or none.
enum class JsonSpace : std::uint8_t { kSome, kNone };

struct JsonParts {
  using Part = ByteGrammar::Part;

  explicit JsonParts(ByteGrammar& grammar, JsonSpace between = JsonSpace::kSome);

  // The same parts, but that strings are plain texts, without quotes and escapes: what comes behind
  // one begins with `end`, or with white space and `end`. Of texts that have a length or a pattern
  // none has the first character of `end`.
  JsonParts with_plain_strings(std::string_view end) const;
  // Whether strings are, and this can be one: it does not have their end.
  bool has_plain_strings() const { return !plain_end_.empty(); }
  bool may_be_plain(std::string_view text) const { return text.find(plain_end_) == text.npos; }

  // A string of so many characters.
  Part string(std::int64_t least, std::optional<std::int64_t> most) const;
  // A number from `least` to `most`, both in units of 1 / kNumberUnit, which is how exact it is.
  // REQUIRES: -kNumberMax <= least <= most <= kNumberMax.
  Part number_between(std::int64_t least, std::int64_t most) const;
  static constexpr std::int64_t kNumberUnit = 1'000'000;
  static constexpr int kNumberPlaces = 6;  // of which it is the power of ten
  static constexpr std::int64_t kNumberMax = 1'000'000'000'000 * kNumberUnit;
  // A string whose characters are what `expression` matches, anywhere in it.
  Result<Part> string_of(std::string_view expression) const;
  // A string that is none of these. Up to where it differs from all of them it has escapes only of
  // characters that need one, each the shortest.
  Part other_string(const std::vector<std::string>& names) const;
  // An integer from `least` to `most`. REQUIRES: -kIntegerMax <= least <= most <= kIntegerMax.
  Part integer(std::int64_t least, std::int64_t most) const;
  static constexpr std::int64_t kIntegerMax = 999'999'999'999'999'999;
  // Between members or items, and behind a name.
  Part comma() const;
  Part colon() const;
  // `open` and `close` around what may be nothing.
  Part enclosed(std::string_view open, Part inner, std::string_view close) const;

  ByteGrammar& grammar;
  Part space;      // white space, perhaps none
  Part blank;      // behind a colon: a space, perhaps none
  Part character;  // of a string
  Part number;
  Part any;
  Part any_object;

 private:
  Part written(std::span<const CharRange> chars) const;
  enum class Side : std::uint8_t { kAbove, kBelow };
  Part digits_beyond(std::string_view bound, Side side) const;
  Part digits_between(std::string_view least, std::string_view most) const;
  Part whole_numbers(std::int64_t least, std::int64_t most) const;
  Part decimals(std::int64_t least, std::int64_t most) const;
  Part fraction(std::string_view least, std::string_view most) const;
  Part plain_of(std::span<const CharRange> chars) const;

  std::string plain_end_;
  Part plain_text_;  // any
};

}  // namespace stemma
