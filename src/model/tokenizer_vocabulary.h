// TokenizerVocabulary: texts of tokens and their ids, both ways.
//
// Thread:     const methods are safe from many threads at once.
// Memory:     the texts once, and some 60 bytes a token; independent of how large the ids are.
// Cost:       a hash look-up by text; by id, an array access where ids have no gaps and a binary
//             search where they have.
// Not here:   merges (tokenizer_bpe), how added tokens are found in a text (tokenizer_added).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "stemma/ids.h"
#include "stemma/result.h"

namespace stemma {

// The largest id that a file may give: below 2^31 − 1, so that the number of ids is a TokenId too.
inline constexpr std::int64_t kTokenIdMax = 0x7FFF'FFFE;

struct VocabularyEntry {
  TokenId id = 0;
  std::string text;
};

class Vocabulary {
 public:
  // No tokens.
  Vocabulary() = default;
  // An error, without a file or field, names the first id or text that comes twice.
  static Result<Vocabulary> build(std::vector<VocabularyEntry> entries);

  // The look-up by text refers into the entries: move-only.
  Vocabulary(Vocabulary&&) noexcept = default;
  Vocabulary& operator=(Vocabulary&&) noexcept = default;
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;
  ~Vocabulary() = default;

  std::optional<TokenId> id_of(std::string_view text) const;
  std::optional<std::string_view> text_of(TokenId id) const;
  // Largest id + 1; 0 without tokens.
  std::int64_t end_id() const {
    return entries_.empty() ? 0 : std::int64_t{entries_.back().id} + 1;
  }
  // In the order of the ids.
  const std::vector<VocabularyEntry>& entries() const { return entries_; }

 private:
  std::vector<VocabularyEntry> entries_;
  std::unordered_map<std::string_view, TokenId> ids_;
};

}  // namespace stemma
