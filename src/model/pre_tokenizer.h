// PreTokenizer: the "pre_tokenizer" of a tokenizer.json: cuts a normalized text into the pieces
// that are merged one by one.
//
// Thread:     const methods are safe from many threads at once.
// Memory:     the text, rewritten where a step asks for it (at most some eight times longer), and
//             24 bytes a piece.
// Cost:       one search a step and piece; the searches are limited (tokenizer_regex).
// Not here:   added tokens, which are cut out before (tokenizer_added); UnicodeScripts,
//             BertPreTokenizer, CharDelimiterSplit (refused by name).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/tokenizer_json.h"
#include "model/tokenizer_regex.h"
#include "stemma/result.h"

namespace stemma {

// What becomes of the matches of a Split.
enum class SplitBehavior : std::uint8_t {
  kRemoved,             // dropped
  kIsolated,            // each a piece of its own
  kMergedWithPrevious,  // appended to the piece before
  kMergedWithNext,      // put in front of the piece after
  kContiguous,          // neighbouring matches are one piece
};

// One text and the pieces it is cut into, from left to right, none empty.
struct TextPieces {
  struct Piece {
    ByteRange range;
    bool begins_input = false;  // nothing of the user's text stands before it
  };

  std::string text;
  std::vector<Piece> pieces;
};

class PreTokenizer {
 public:
  // Cuts nothing.
  PreTokenizer() = default;
  static Result<PreTokenizer> parse(const JsonField& field);

  // The pieces of `text`; none if it is empty. `begins_input`: it is the beginning of the user's
  // text. REQUIRES: well-formed UTF-8.
  Result<TextPieces> apply(std::string text, bool begins_input) const;

 private:
  struct Split {
    TextPattern pattern;
    SplitBehavior behavior = SplitBehavior::kRemoved;
    bool invert = false;
  };
  // A space in front of every piece that does not begin with one.
  struct PrefixSpace {};
  // Every byte by its character of the byte-level alphabet.
  struct ByteAlphabet {};
  // Spaces become `symbol`, and one is put in front.
  struct Metaspace {
    enum class Prepend : std::uint8_t { kAlways, kFirst, kNever };
    std::string symbol;
    Prepend prepend = Prepend::kAlways;
  };
  using Step = std::variant<Split, PrefixSpace, ByteAlphabet, Metaspace>;

  Status add_step(std::string_view type, const JsonField& field);
  Status add_byte_level(const JsonField& field);
  Status add_split(const JsonField& field);
  Status add_metaspace(const JsonField& field);
  Status add_punctuation(const JsonField& field);
  Status add_own_split(std::string_view expression, SplitBehavior behavior, bool invert);
  static Result<Metaspace::Prepend> prepend_scheme(const JsonField& field);
  static Result<TextPieces> split(const Split& step, TextPieces pieces);
  static TextPieces rewrite(const Step& step, const TextPieces& pieces);

  std::vector<Step> steps_;
  bool has_byte_level_ = false;
};

}  // namespace stemma
