#include "grammar/byte_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "grammar/byte_compiler.h"
#include "grammar/byte_texts.h"
#include "model/unicode_text.h"

namespace stemma {
namespace {

constexpr CharRange kSurrogates = {0xD800, 0xDFFF};

// The first character behind which a range has to be cut, so that what is before it is all
// sequences of bytes whose places take values independently of each other; nothing if it is so.
std::optional<char32_t> cut_behind(CharRange range) {
  for (const char32_t longest : {char32_t{0x7F}, char32_t{0x7FF}, char32_t{0xFFFF}}) {
    if (range.first <= longest && longest < range.last) return longest;
  }
  if (range.last < 0x80) return std::nullopt;
  for (int bits = 6; bits <= 18; bits += 6) {
    const char32_t low = (char32_t{1} << bits) - 1;
    if ((range.first & ~low) == (range.last & ~low)) return std::nullopt;
    if ((range.first & low) != 0) return range.first | low;
    if ((range.last & low) != low) return (range.last & ~low) - 1;
  }
  return std::nullopt;
}

}  // namespace

std::vector<CharRange> other_chars(std::span<const CharRange> ranges) {
  std::vector<CharRange> others;
  char32_t next = 0;
  for (const CharRange& range : ranges) {
    if (range.first > next) others.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kCharMax) others.push_back({next, kCharMax});
  return others;
}

// One too many stands for all that follow: nothing is made of them any more.
ByteGrammar::Part ByteGrammar::add(Node node) {
  if (is_full()) return {static_cast<std::int32_t>(kPartsMax)};
  nodes_.push_back(std::move(node));
  return {static_cast<std::int32_t>(nodes_.size()) - 1};
}

ByteGrammar::Part ByteGrammar::bytes(std::uint8_t first, std::uint8_t last) {
  return add({.kind = Kind::kBytes, .first = first, .last = last, .parts = {}});
}

ByteGrammar::Part ByteGrammar::text(std::string_view bytes_of_text) {
  std::vector<Part> parts;
  parts.reserve(bytes_of_text.size());
  for (const char byte : bytes_of_text) {
    parts.push_back(bytes(static_cast<std::uint8_t>(byte), static_cast<std::uint8_t>(byte)));
  }
  return sequence(std::move(parts));
}

void ByteGrammar::add_utf8(CharRange range, std::vector<Part>& out) {
  while (const std::optional<char32_t> cut = cut_behind(range)) {
    add_utf8({range.first, *cut}, out);
    range.first = *cut + 1;
  }
  std::string first;
  std::string last;
  utf8_append(range.first, first);
  utf8_append(range.last, last);
  std::vector<Part> parts;
  parts.reserve(first.size());
  for (std::size_t i = 0; i < first.size(); ++i) {
    parts.push_back(bytes(static_cast<std::uint8_t>(first[i]), static_cast<std::uint8_t>(last[i])));
  }
  out.push_back(sequence(std::move(parts)));
}

ByteGrammar::Part ByteGrammar::one_of(std::span<const CharRange> ranges) {
  std::vector<Part> parts;
  for (const CharRange& range : ranges) {
    STEMMA_CHECK_LE(range.first, range.last);
    const CharRange below = {range.first, std::min<char32_t>(range.last, kSurrogates.first - 1)};
    const CharRange above = {std::max<char32_t>(range.first, kSurrogates.last + 1), range.last};
    if (below.first <= below.last) add_utf8(below, parts);
    if (above.first <= above.last) add_utf8(above, parts);
  }
  return either(std::move(parts));
}

// Characters that follow each other are one step.
ByteGrammar::Part ByteGrammar::one_of(std::string_view chars) {
  std::vector<CharRange> ranges;
  for (const char byte : chars) {
    const auto code = static_cast<char32_t>(byte);
    if (!ranges.empty() && code == ranges.back().last + 1) {
      ranges.back().last = code;
    } else {
      ranges.push_back({code, code});
    }
  }
  return one_of(ranges);
}

ByteGrammar::Part ByteGrammar::sequence(std::vector<Part> parts) {
  if (parts.size() == 1) return parts.front();
  return add({.kind = Kind::kSequence, .parts = std::move(parts)});
}

ByteGrammar::Part ByteGrammar::either(std::vector<Part> parts) {
  STEMMA_CHECK(!parts.empty(), "a choice has something to choose");
  if (parts.size() == 1) return parts.front();
  return add({.kind = Kind::kEither, .parts = std::move(parts)});
}

ByteGrammar::Part ByteGrammar::nothing(std::string why) {
  const Part part = add({.kind = Kind::kEither, .parts = {}});
  if (!is_full()) nothings_.emplace(part.number, std::move(why));
  return part;
}

ByteGrammar::Part ByteGrammar::one_text_of(std::span<const std::string_view> texts) {
  const Part nothing_more = sequence({});
  std::vector<Begun> ways;
  ways.reserve(texts.size());
  for (const std::string_view text : texts) ways.push_back({text, nothing_more});
  return one_begun_of(std::move(ways));
}

ByteGrammar::Part ByteGrammar::one_begun_of(std::vector<Begun> ways) {
  STEMMA_CHECK(!ways.empty(), "a choice has something to choose");
  std::stable_sort(ways.begin(), ways.end(),
                   [](const Begun& a, const Begun& b) { return a.text < b.text; });
  // Texts from `begin` to `end` are alike in all before `depth`; their rests become `rule`.
  struct Rest {
    std::size_t begin, end, depth;
    Part rule;
  };
  const Part whole = rule();
  std::vector<Rest> open = {{0, ways.size(), 0, whole}};
  while (!open.empty()) {
    const Rest rest = open.back();
    open.pop_back();
    std::vector<Part> parts;
    std::size_t at = rest.begin;
    while (at < rest.end) {
      std::size_t alike = at + 1;
      std::size_t depth = rest.depth;
      if (ways[at].text.size() == depth) {
        const Part behind = ways[at].rest;
        if (parts.empty() || parts.back().number != behind.number) parts.push_back(behind);
        at = alike;
        continue;
      }
      const char byte = ways[at].text[depth];
      while (alike < rest.end && ways[alike].text[depth] == byte) ++alike;
      // Sorted: what the first and the last have in common all of them have.
      const std::string_view first = ways[at].text;
      const std::string_view last = ways[alike - 1].text;
      while (depth < first.size() && depth < last.size() && first[depth] == last[depth]) ++depth;
      const Part common = text(first.substr(rest.depth, depth - rest.depth));
      if (alike == at + 1) {
        parts.push_back(sequence({common, ways[at].rest}));
      } else {
        open.push_back({at, alike, depth, rule()});
        parts.push_back(sequence({common, open.back().rule}));
      }
      at = alike;
    }
    define(rest.rule, either(std::move(parts)));
  }
  return whole;
}

ByteGrammar::Part ByteGrammar::repeated(Part part, std::int64_t least,
                                        std::optional<std::int64_t> most) {
  STEMMA_CHECK(least >= 0 && least <= most.value_or(least), "at least as often as at most");
  return add({.kind = Kind::kRepeated, .least = least, .most = most.value_or(-1), .parts = {part}});
}

ByteGrammar::Part ByteGrammar::rule() {
  rules_.push_back({});
  return add(
      {.kind = Kind::kRule, .rule = static_cast<std::int32_t>(rules_.size()) - 1, .parts = {}});
}

void ByteGrammar::define(Part rule, Part body) {
  if (is_full()) return;
  const Node& node = nodes_[static_cast<std::size_t>(rule.number)];
  STEMMA_CHECK(node.kind == Kind::kRule, "only rules are defined");
  Part& place = rules_[static_cast<std::size_t>(node.rule)];
  STEMMA_CHECK(place.number < 0, "a rule is defined once");
  place = body;
}

ByteGrammar::Part ByteGrammar::rule(Part body) {
  const Part made = rule();
  define(made, body);
  return made;
}

std::optional<std::string> ByteGrammar::why_nothing(Part whole) const {
  if (is_full() || nothings_.empty()) return std::nullopt;
  const auto part = ByteTexts(*this, whole).without_text_for(whole);
  if (!part.has_value()) return std::nullopt;
  return nothings_.at(part->number);
}

Status ByteGrammar::check_room() const {
  if (!is_full()) return {};
  return Error{ErrorCode::kTooLarge, fmt::format("more than {} parts", kPartsMax)};
}

Result<ByteProgram> ByteGrammar::compile(Part start) const {
  STEMMA_RETURN_IF_ERROR(check_room());
  return ByteCompiler(*this, start).compile();
}

}  // namespace stemma
