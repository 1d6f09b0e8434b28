// TextPattern: what a tokenizer.json searches for, a plain string or its own regular expression,
// run by PCRE2.
//
// Thread:     const methods are safe from many threads at once.
// Memory:     the compiled pattern (at most 64 KiB of text); a search allocates its matches and
//             PCRE2's work space.
// Cost:       compiled to machine code where PCRE2 can; the steps of one search are limited in
//             proportion to the text, so that a pattern made to hang gives an error instead.
// Not here:   what is done with the matches (pre_tokenizer, tokenizer_normalizer,
//             tokenizer_decoder).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer_json.h"
#include "stemma/result.h"

struct pcre2_real_code_8;

namespace stemma {

// Bytes [begin, end) of a text.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;

  std::size_t bytes() const { return end - begin; }
  std::string_view of(std::string_view text) const { return text.substr(begin, bytes()); }
  friend bool operator==(ByteRange, ByteRange) = default;
};

class TextPattern {
 public:
  // A plain string. REQUIRES: not empty.
  static TextPattern literal(std::string text);
  // A regular expression in the syntax that tokenizer.json files use (tokenizer_regex_syntax.h).
  static Result<TextPattern> regex(std::string_view expression);
  // {"String": "..."} or {"Regex": "..."}.
  static Result<TextPattern> parse(const JsonField& field);

  // All matches from left to right, not overlapping. An empty match right after a match does not
  // count. An error when the search takes too many steps. REQUIRES: `text` is well-formed UTF-8.
  Result<std::vector<ByteRange>> find_all(std::string_view text) const;

  // The plain string; empty for a regular expression.
  const std::string& literal_text() const { return literal_; }
  bool is_regex() const { return code_ != nullptr; }

  // `text` with every match replaced by `content`, verbatim.
  Result<std::string> replace_all(std::string_view text, std::string_view content) const;
  // An upper bound of the factor by which replace_all can lengthen a text.
  std::size_t growth_max(std::string_view content) const;

 private:
  struct CodeDeleter {
    void operator()(pcre2_real_code_8* code) const;
  };
  using Code = std::unique_ptr<pcre2_real_code_8, CodeDeleter>;

  TextPattern() = default;
  static Result<Code> compile(const std::string& expression);
  std::vector<ByteRange> find_literal(std::string_view text) const;

  std::string literal_;
  Code code_;
};

}  // namespace stemma
