#include "model/pre_tokenizer.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "model/tokenizer_bytes.h"
#include "model/tokenizer_normalizer.h"
#include "model/unicode_text.h"

namespace stemma {
namespace {

// The pattern of GPT-2 (Radford et al. 2019, encoder.py), which ByteLevel stands for.
constexpr std::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// Whitespace: runs of word characters, and runs of what is neither word nor space (UTS 18, annex C,
// for \w).
constexpr std::string_view kWhitespacePattern =
    R"([\w\p{Join_Control}]+|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}\s]+)";
// Unicode punctuation, and those of ASCII that Unicode calls symbols.
constexpr std::string_view kPunctuationPattern = R"([\p{P}$+<=>^`|~])";

// A cut of a piece: a match, or what lies between two.
struct Cut {
  ByteRange range;
  bool is_match = false;
};

std::vector<Cut> cuts_of(std::string_view text, const std::vector<ByteRange>& matches,
                         bool invert) {
  std::vector<Cut> cuts;
  std::size_t at = 0;
  for (const ByteRange& match : matches) {
    if (match.begin > at) {
      cuts.push_back({{at, match.begin}, invert});
    }
    cuts.push_back({match, !invert});
    at = match.end;
  }
  if (at < text.size()) {
    cuts.push_back({{at, text.size()}, invert});
  }
  return cuts;
}

// Joins each match to the piece before it, unless that piece ended with a match.
std::vector<ByteRange> merged_with_previous(const std::vector<Cut>& cuts) {
  std::vector<ByteRange> ranges;
  bool after_match = false;
  for (const Cut& cut : cuts) {
    if (cut.is_match && !after_match && !ranges.empty()) {
      ranges.back().end = cut.range.end;
    } else {
      ranges.push_back(cut.range);
    }
    after_match = cut.is_match;
  }
  return ranges;
}

// The mirror image: from right to left.
std::vector<ByteRange> merged_with_next(const std::vector<Cut>& cuts) {
  std::vector<ByteRange> ranges;
  bool before_match = false;
  for (auto cut = cuts.rbegin(); cut != cuts.rend(); ++cut) {
    if (cut->is_match && !before_match && !ranges.empty()) {
      ranges.back().begin = cut->range.begin;
    } else {
      ranges.push_back(cut->range);
    }
    before_match = cut->is_match;
  }
  std::reverse(ranges.begin(), ranges.end());
  return ranges;
}

std::vector<ByteRange> contiguous(const std::vector<Cut>& cuts) {
  std::vector<ByteRange> ranges;
  bool last_is_match = false;
  for (const Cut& cut : cuts) {
    if (!ranges.empty() && cut.is_match == last_is_match) {
      ranges.back().end = cut.range.end;
    } else {
      ranges.push_back(cut.range);
    }
    last_is_match = cut.is_match;
  }
  return ranges;
}

std::vector<ByteRange> ranges_of(const std::vector<Cut>& cuts, SplitBehavior behavior) {
  switch (behavior) {
    case SplitBehavior::kMergedWithPrevious:
      return merged_with_previous(cuts);
    case SplitBehavior::kMergedWithNext:
      return merged_with_next(cuts);
    case SplitBehavior::kContiguous:
      return contiguous(cuts);
    case SplitBehavior::kRemoved:
    case SplitBehavior::kIsolated:
      break;
  }
  std::vector<ByteRange> ranges;
  for (const Cut& cut : cuts) {
    if (behavior == SplitBehavior::kIsolated || !cut.is_match) {
      ranges.push_back(cut.range);
    }
  }
  return ranges;
}

Result<SplitBehavior> behavior_of(const JsonField& field) {
  constexpr std::array<std::pair<std::string_view, SplitBehavior>, 5> kBehaviors = {{
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous},
  }};
  STEMMA_ASSIGN_OR_RETURN(const std::string_view name, field.as_string());
  for (const auto& [known, behavior] : kBehaviors) {
    if (known == name) {
      return behavior;
    }
  }
  return field.unsupported("behavior " + in_quotes(name) + " is not supported");
}

void append_replaced(std::string_view text, char from, std::string_view to, std::string& out) {
  for (const char byte : text) {
    if (byte == from) {
      out.append(to);
    } else {
      out.push_back(byte);
    }
  }
}

}  // namespace

Result<PreTokenizer> PreTokenizer::parse(const JsonField& field) {
  PreTokenizer pre_tokenizer;
  STEMMA_RETURN_IF_ERROR(
      for_each_step(field, "pretokenizers", [&](std::string_view type, const JsonField& step) {
        return pre_tokenizer.add_step(type, step);
      }));
  return pre_tokenizer;
}

Status PreTokenizer::add_step(std::string_view type, const JsonField& field) {
  if (type == "ByteLevel") {
    return add_byte_level(field);
  }
  if (type == "Split") {
    return add_split(field);
  }
  if (type == "Metaspace") {
    return add_metaspace(field);
  }
  if (type == "Punctuation") {
    return add_punctuation(field);
  }
  if (type == "Digits") {
    STEMMA_ASSIGN_OR_RETURN(const bool alone, field.bool_or("individual_digits", false));
    return add_own_split(R"(\p{N})", alone ? SplitBehavior::kIsolated : SplitBehavior::kContiguous,
                         false);
  }
  if (type == "Whitespace") {
    return add_own_split(kWhitespacePattern, SplitBehavior::kRemoved, true);
  }
  if (type == "WhitespaceSplit") {
    return add_own_split(R"(\s)", SplitBehavior::kRemoved, false);
  }
  return field.unsupported("pre_tokenizer " + in_quotes(type) + " is not supported");
}

// trim_offsets is about offsets into the text, which Stemma does not give.
Status PreTokenizer::add_byte_level(const JsonField& field) {
  if (std::exchange(has_byte_level_, true)) {
    return field.unsupported("a second ByteLevel is not supported");
  }
  STEMMA_ASSIGN_OR_RETURN(const bool prefix, field.bool_or("add_prefix_space", true));
  STEMMA_ASSIGN_OR_RETURN(const bool use_regex, field.bool_or("use_regex", true));
  STEMMA_ASSIGN_OR_RETURN([[maybe_unused]] const bool trim, field.bool_or("trim_offsets", true));
  if (prefix) {
    steps_.emplace_back(PrefixSpace{});
  }
  if (use_regex) {
    STEMMA_RETURN_IF_ERROR(add_own_split(kByteLevelPattern, SplitBehavior::kIsolated, false));
  }
  steps_.emplace_back(ByteAlphabet{});
  return {};
}

Status PreTokenizer::add_split(const JsonField& field) {
  STEMMA_ASSIGN_OR_RETURN(const JsonField pattern_field, field.member("pattern"));
  STEMMA_ASSIGN_OR_RETURN(TextPattern pattern, TextPattern::parse(pattern_field));
  STEMMA_ASSIGN_OR_RETURN(const JsonField behavior_field, field.member("behavior"));
  STEMMA_ASSIGN_OR_RETURN(const SplitBehavior behavior, behavior_of(behavior_field));
  STEMMA_ASSIGN_OR_RETURN(const bool invert, field.bool_or("invert", false));
  steps_.emplace_back(Split{std::move(pattern), behavior, invert});
  return {};
}

Status PreTokenizer::add_punctuation(const JsonField& field) {
  SplitBehavior behavior = SplitBehavior::kIsolated;
  if (const auto behavior_field = field.try_member("behavior")) {
    STEMMA_ASSIGN_OR_RETURN(behavior, behavior_of(*behavior_field));
  }
  return add_own_split(kPunctuationPattern, behavior, false);
}

Status PreTokenizer::add_metaspace(const JsonField& field) {
  STEMMA_ASSIGN_OR_RETURN(const JsonField symbol_field, field.member("replacement"));
  STEMMA_ASSIGN_OR_RETURN(const char32_t code, symbol_field.as_character());
  Metaspace step;
  utf8_append(code, step.symbol);
  STEMMA_ASSIGN_OR_RETURN(step.prepend, prepend_scheme(field));
  STEMMA_ASSIGN_OR_RETURN(const bool split, field.bool_or("split", true));
  TextPattern symbol = TextPattern::literal(step.symbol);
  steps_.emplace_back(std::move(step));
  if (split) {
    steps_.emplace_back(Split{std::move(symbol), SplitBehavior::kMergedWithNext, false});
  }
  return {};
}

// The newer "prepend_scheme", or the older "add_prefix_space"; both only if they agree.
Result<PreTokenizer::Metaspace::Prepend> PreTokenizer::prepend_scheme(const JsonField& field) {
  using Prepend = Metaspace::Prepend;
  STEMMA_ASSIGN_OR_RETURN(const bool prefix, field.bool_or("add_prefix_space", true));
  const auto scheme_field = field.try_member("prepend_scheme");
  if (!scheme_field) {
    return prefix ? Prepend::kAlways : Prepend::kNever;
  }
  STEMMA_ASSIGN_OR_RETURN(const std::string_view scheme, scheme_field->as_string());
  if (!prefix && scheme != "never") {
    return scheme_field->corrupt(in_quotes(scheme) + " contradicts add_prefix_space false");
  }
  if (scheme == "always") {
    return Prepend::kAlways;
  }
  if (scheme == "first") {
    return Prepend::kFirst;
  }
  if (scheme == "never") {
    return Prepend::kNever;
  }
  return scheme_field->unsupported("prepend_scheme " + in_quotes(scheme) + " is not supported");
}

Status PreTokenizer::add_own_split(std::string_view expression, SplitBehavior behavior,
                                   bool invert) {
  STEMMA_ASSIGN_OR_RETURN(TextPattern pattern, TextPattern::regex(expression));
  steps_.emplace_back(Split{std::move(pattern), behavior, invert});
  return {};
}

Result<TextPieces> PreTokenizer::apply(std::string text, bool begins_input) const {
  TextPieces pieces;
  pieces.text = std::move(text);
  if (!pieces.text.empty()) {
    pieces.pieces.push_back({{0, pieces.text.size()}, begins_input});
  }
  for (const Step& step : steps_) {
    if (const auto* cut = std::get_if<Split>(&step)) {
      STEMMA_ASSIGN_OR_RETURN(pieces, split(*cut, std::move(pieces)));
    } else {
      pieces = rewrite(step, pieces);
    }
  }
  return pieces;
}

Result<TextPieces> PreTokenizer::split(const Split& step, TextPieces pieces) {
  std::vector<TextPieces::Piece> smaller;
  for (const TextPieces::Piece& piece : pieces.pieces) {
    const std::string_view text = piece.range.of(pieces.text);
    STEMMA_ASSIGN_OR_RETURN(const std::vector<ByteRange> matches, step.pattern.find_all(text));
    for (const ByteRange& range : ranges_of(cuts_of(text, matches, step.invert), step.behavior)) {
      if (range.bytes() > 0) {
        smaller.push_back({{piece.range.begin + range.begin, piece.range.begin + range.end},
                           piece.begins_input && range.begin == 0});
      }
    }
  }
  pieces.pieces = std::move(smaller);
  return pieces;
}

TextPieces PreTokenizer::rewrite(const Step& step, const TextPieces& pieces) {
  TextPieces out;
  out.pieces.reserve(pieces.pieces.size());
  out.text.reserve(pieces.text.size() * 2);
  for (const TextPieces::Piece& piece : pieces.pieces) {
    const std::string_view text = piece.range.of(pieces.text);
    const std::size_t begin = out.text.size();
    if (std::holds_alternative<PrefixSpace>(step)) {
      out.text.append(text.starts_with(' ') ? "" : " ").append(text);
    } else if (const auto* metaspace = std::get_if<Metaspace>(&step)) {
      const bool wanted = metaspace->prepend == Metaspace::Prepend::kAlways ||
                          (metaspace->prepend == Metaspace::Prepend::kFirst && piece.begins_input);
      const bool is_there = text.starts_with(' ') || text.starts_with(metaspace->symbol);
      out.text.append(wanted && !is_there ? metaspace->symbol : "");
      append_replaced(text, ' ', metaspace->symbol, out.text);
    } else {
      for (const char byte : text) {
        utf8_append(byte_level_alphabet()[static_cast<unsigned char>(byte)], out.text);
      }
    }
    out.pieces.push_back({{begin, out.text.size()}, piece.begins_input});
  }
  return out;
}

}  // namespace stemma
