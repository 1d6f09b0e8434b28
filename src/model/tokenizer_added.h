// AddedTokens: the "added_tokens" of a tokenizer.json: tokens that are found in a text before
// anything else is done with it. A tokenizer_config.json may have more of them, and other flags of
// the same, and names special ones (template/tokenizer_config): Hugging Face's transformers add all
// that to what tokenizer.json says when they load both, and so does Stemma.
//
// Thread:     const methods are safe from many threads at once.
// Memory:     the texts, and 16 bytes for each of their bytes.
// Cost:       cut() walks a trie from every byte that begins an added token: O(text x longest added
//             token), at most kAddedTokenBytesMax.
// Not here:   the tokens' place in the model (tokenizer_bpe).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "model/tokenizer_json.h"
#include "model/tokenizer_normalizer.h"
#include "model/tokenizer_regex.h"
#include "model/tokenizer_vocabulary.h"
#include "stemma/ids.h"
#include "stemma/result.h"

namespace stemma {

inline constexpr std::size_t kAddedTokenBytesMax = 4096;

struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool single_word = false;  // only where neither neighbour is part of a word
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space after it
  bool normalized = true;    // sought in the normalized text, in normalized form
  bool special = false;
};

// Strings and the number of the first one that each is, found longest first.
class StringTrie {
 public:
  // The first of two equal strings counts. REQUIRES: not empty.
  void add(std::string_view text, std::int32_t number);
  struct Found {
    std::int32_t number = -1;
    std::size_t bytes = 0;
  };
  // The longest string that `text` begins with, or nothing.
  std::optional<Found> longest_at(std::string_view text) const;

 private:
  std::unordered_map<std::uint64_t, std::uint32_t> edges_;  // (node, byte) → node
  std::vector<std::int32_t> numbers_ = {-1};                // by node
  std::array<bool, 256> begins_{};
};

class AddedTokens {
 public:
  // Which tokens a cut looks for.
  enum class Form : std::uint8_t { kRaw, kNormalized };
  // A stretch of text: one added token, or text between them.
  struct Part {
    ByteRange range;
    std::optional<TokenId> token;
  };

  AddedTokens() = default;
  // `model`: the model's vocabulary; an added token that is also there must have the same id.
  static Result<AddedTokens> parse(const JsonField& field, const Vocabulary& model,
                                   const Normalizer& normalizer);

  // Takes over what a tokenizer_config.json says of added tokens: "added_tokens_decoder", and, of
  // the special tokens that it names, those that the model's vocabulary has. A token that is known
  // keeps its id. REQUIRES: `config` is an object.
  Status obey(const JsonField& config, const Vocabulary& model, const Normalizer& normalizer);

  // Cuts `text` at the added tokens of that form: the leftmost first, the longest of those that
  // begin at one place. Without `parse_special` special tokens stay text.
  std::vector<Part> cut(std::string_view text, Form form, bool parse_special) const;

  // Whether it is special, and is not shown.
  bool is_special(TokenId id) const { return special_.contains(id); }
  void show(TokenId id) { special_.erase(id); }
  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  Status add(const JsonField& field, AddedToken token, const Vocabulary& model);
  Status obey_decoder(const JsonField& field, const Vocabulary& model,
                      std::span<const std::string> special,
                      std::unordered_map<std::string, std::size_t>& known);
  Status check_id(const JsonField& field, const AddedToken& token, const Vocabulary& model) const;
  Status index(const JsonField& field, const Normalizer& normalizer);
  bool stands_alone(std::string_view text, ByteRange range) const;
  bool is_word_at(std::string_view text, std::size_t at) const;

  std::vector<AddedToken> tokens_;
  std::optional<TextPattern> word_character_;  // present if there are tokens
  StringTrie raw_;
  StringTrie normalized_;
  std::unordered_set<TokenId> special_;
  Vocabulary vocabulary_;
};

}  // namespace stemma
