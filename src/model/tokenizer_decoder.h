// TokenDecoder: the "decoder" of a tokenizer.json: turns the texts of tokens back into text, piece
// by piece.
//
// One implementation serves both ways to decode: a whole text is the same stream, pushed and
// flushed at once.
//
// Thread:     TokenDecoder: const methods are safe from many threads at once; a DecodeStream
//             belongs to one thread.
// Memory:     a stream holds back an unfinished character, an unfinished match of a Replace, and
//             the trailing characters that a Strip may remove.
// Cost:       O(bytes of the token) a push and step.
// Not here:   ids (tokenizer, detokenizer); WordPiece, BPEDecoder, CTC (refused by name).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/tokenizer_json.h"
#include "model/tokenizer_regex.h"
#include "model/unicode_text.h"
#include "stemma/result.h"

namespace stemma {

// The steps of a decoder. Before a Fuse or ByteLevel a step sees tokens one by one, after it one
// text that goes on.
class TokenDecoder {
 public:
  struct Replace {
    TextPattern pattern;
    std::string content;
  };
  // <0xE5> and its like become bytes, and bytes characters. Ill-formed bytes become one U+FFFD
  // each. Hugging Face's tokenizers make that of every byte of a run of such tokens where one is
  // ill-formed, well-formed characters too; a stream would have to hold a run back to its end for
  // it, and tells characters as they are complete.
  struct ByteFallback {};
  // Removes up to `start_chars` times `symbol` from the beginning, `stop_chars` times from the end.
  struct Strip {
    std::string symbol;
    std::int64_t start_chars = 0;
    std::int64_t stop_chars = 0;
  };
  // `symbol` becomes a space; in the first token nothing, if `drop_first`.
  struct Metaspace {
    std::string symbol;
    bool drop_first = true;
  };
  // Characters of the byte-level alphabet become bytes, and bytes characters, ill-formed sequences
  // U+FFFD. A token with other characters stands for itself.
  struct ByteLevel {};
  // A space between tokens: what a file without a decoder means.
  struct JoinWithSpaces {};

  using Kind = std::variant<Replace, ByteFallback, Strip, Metaspace, ByteLevel, JoinWithSpaces>;
  struct Step {
    Kind kind;
    bool fused = false;  // sees one text that goes on
  };

  // JoinWithSpaces.
  TokenDecoder();
  static Result<TokenDecoder> parse(const JsonField& field);

  const std::vector<Step>& steps() const { return steps_; }

 private:
  Status add_step(std::string_view type, const JsonField& field);
  Status add_replace(const JsonField& field);
  Status add_strip(const JsonField& field);
  Status add_metaspace(const JsonField& field);
  Status expect_tokens(const JsonField& field, std::string_view type) const;
  void push_step(Kind kind) { steps_.push_back({std::move(kind), fused_}); }

  std::vector<Step> steps_;
  bool fused_ = false;
  bool after_byte_fallback_ = false;
  std::size_t growth_ = 1;
};

// One text on its way through the steps. Refers to its decoder, which must outlive it.
class DecodeStream {
 public:
  explicit DecodeStream(const TokenDecoder& decoder);

  // The next token is not the first of its text. REQUIRES: none was pushed since a text began.
  void begin_behind_others();
  // Appends to `out` the text that is certain after this token.
  void push(std::string_view token_text, std::string& out);
  // Appends the rest; the next push begins a new text.
  void flush(std::string& out);

 private:
  // What a step remembers between pushes.
  struct Memory {
    Utf8Assembler bytes{Utf8Assembler::IllFormed::kOnePerByte};
    std::string held;
    std::int64_t stripped_chars = 0;
    bool start_over = false;  // Strip: the beginning is behind
    std::int64_t pieces = 0;
  };

  void reset();
  void feed(std::size_t step, std::string_view piece, std::string& out);
  void finish(std::size_t step, std::string& out);
  void pass(std::size_t step, const TokenDecoder::Replace& replace, std::string_view piece,
            std::string& out);
  void pass(std::size_t step, const TokenDecoder::ByteFallback&, std::string_view piece,
            std::string& out);
  void pass(std::size_t step, const TokenDecoder::Strip& strip, std::string_view piece,
            std::string& out);
  void pass(std::size_t step, const TokenDecoder::Metaspace& metaspace, std::string_view piece,
            std::string& out);
  void pass(std::size_t step, const TokenDecoder::ByteLevel&, std::string_view piece,
            std::string& out);
  void pass(std::size_t step, const TokenDecoder::JoinWithSpaces&, std::string_view piece,
            std::string& out);

  const TokenDecoder* decoder_;
  std::vector<Memory> memories_;  // by step
};

}  // namespace stemma
