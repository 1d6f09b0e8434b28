// BpeModel: the "model" of a tokenizer.json, byte-pair encoding: turns one piece of text into
// tokens.
//
// Starts with one token a character and merges, again and again, the neighbouring pair that stands
// first in the file's list of merges, the leftmost of equal ones (Sennrich, Haddow, Birch 2016).
//
// Thread:     const methods are safe from many threads at once; a BpeScratch belongs to one call.
// Memory:     the vocabulary, and 32 bytes a merge; a scratch holds some 40 bytes a character of
//             the longest piece.
// Cost:       O(n log n) for a piece of n characters, whatever the merges.
// Not here:   dropout, continuing_subword_prefix, end_of_word_suffix (refused); Unigram, WordPiece,
//             WordLevel (refused).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "model/tokenizer_json.h"
#include "model/tokenizer_vocabulary.h"
#include "stemma/ids.h"
#include "stemma/result.h"

namespace stemma {

// What happens when a pair of tokens meets: the rank of the merge (lower merges first) and the
// token it makes.
struct Merge {
  std::int32_t rank = 0;
  TokenId token = 0;
};

// Pairs of tokens and their merges: open addressing, at most half full.
class MergeTable {
 public:
  MergeTable() = default;
  explicit MergeTable(std::size_t merges_max);

  // A pair that comes again takes the later rank. REQUIRES: at most merges_max pairs.
  void put(TokenId left, TokenId right, Merge merge);
  const Merge* find_or_null(TokenId left, TokenId right) const;

 private:
  struct Slot {
    std::uint64_t pair = kFree;
    Merge merge;
  };
  static constexpr std::uint64_t kFree = ~std::uint64_t{0};
  static std::uint64_t pair_of(TokenId left, TokenId right);
  std::size_t place_of(std::uint64_t pair) const;

  std::vector<Slot> slots_;
};

// Work space of encode(), kept from piece to piece.
struct BpeScratch {
  // A token and its living neighbours; −1 at the ends. A token merged into its left neighbour is
  // dead.
  struct Symbol {
    TokenId token = 0;
    std::int32_t previous = -1;
    std::int32_t next = -1;
    bool alive = true;
  };
  // A merge that was possible when it was queued.
  struct Candidate {
    std::int32_t rank = 0;
    std::int32_t place = 0;
    TokenId token = 0;
  };

  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
};

class BpeModel {
 public:
  BpeModel() = default;
  static Result<BpeModel> parse(const JsonField& field);

  // Appends the tokens of `piece`. Characters that the vocabulary lacks become bytes
  // (byte_fallback), else the unknown token, else nothing. REQUIRES: well-formed UTF-8, fewer than
  // 2^31 characters.
  void encode(std::string_view piece, BpeScratch& scratch, std::vector<TokenId>& out) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }
  // The text of the unknown token; empty without one.
  const std::string& unknown_text() const { return unknown_text_; }
  // Names the unknown token's id where it is no token of the vocabulary but an added one.
  void set_unknown(TokenId token) { unknown_ = token; }
  bool lacks_unknown() const { return !unknown_text_.empty() && !unknown_; }

 private:
  // Characters whose token is looked up in an array: all of ASCII and of the byte-level alphabet.
  static constexpr std::size_t kQuickCharacters = 512;

  Status parse_options(const JsonField& field);
  Status parse_vocabulary(const JsonField& field);
  Status parse_merges(const JsonField& field);
  Status parse_merge(const JsonField& merges, std::size_t position, std::string& text);
  void fill_quick_tables();
  std::optional<TokenId> token_of(std::string_view character) const;
  void split(std::string_view piece, BpeScratch& scratch) const;
  bool add_bytes(std::string_view character, BpeScratch& scratch) const;
  void queue(std::int32_t place, BpeScratch& scratch) const;
  void merge_all(BpeScratch& scratch) const;

  Vocabulary vocabulary_;
  MergeTable merges_;
  std::array<TokenId, kQuickCharacters> quick_tokens_{};
  std::array<TokenId, 256> byte_tokens_{};
  std::string unknown_text_;
  std::optional<TokenId> unknown_;
  bool fuse_unknown_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;
};

}  // namespace stemma
