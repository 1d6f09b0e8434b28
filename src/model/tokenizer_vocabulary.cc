#include "model/tokenizer_vocabulary.h"

#include <algorithm>
#include <utility>

#include "model/tokenizer_json.h"

namespace stemma {

Result<Vocabulary> Vocabulary::build(std::vector<VocabularyEntry> entries) {
  std::sort(entries.begin(), entries.end(),
            [](const VocabularyEntry& a, const VocabularyEntry& b) { return a.id < b.id; });
  const auto twin = std::adjacent_find(
      entries.begin(), entries.end(),
      [](const VocabularyEntry& a, const VocabularyEntry& b) { return a.id == b.id; });
  if (twin != entries.end()) {
    return Error{ErrorCode::kCorrupt, "id " + std::to_string(twin->id) + " belongs to both " +
                                          in_quotes(twin->text) + " and " +
                                          in_quotes(std::next(twin)->text)};
  }
  Vocabulary vocabulary;
  vocabulary.entries_ = std::move(entries);
  vocabulary.ids_.reserve(vocabulary.entries_.size());
  for (const VocabularyEntry& entry : vocabulary.entries_) {
    if (!vocabulary.ids_.emplace(entry.text, entry.id).second) {
      return Error{ErrorCode::kCorrupt, in_quotes(entry.text) + " comes twice"};
    }
  }
  return vocabulary;
}

std::optional<TokenId> Vocabulary::id_of(std::string_view text) const {
  const auto found = ids_.find(text);
  return found == ids_.end() ? std::nullopt : std::optional<TokenId>(found->second);
}

std::optional<std::string_view> Vocabulary::text_of(TokenId id) const {
  const auto place = static_cast<std::size_t>(id);
  if (id >= 0 && place < entries_.size() && entries_[place].id == id) {
    return entries_[place].text;
  }
  const auto found = std::lower_bound(
      entries_.begin(), entries_.end(), id,
      [](const VocabularyEntry& entry, TokenId wanted) { return entry.id < wanted; });
  if (found == entries_.end() || found->id != id) {
    return std::nullopt;
  }
  return found->text;
}

}  // namespace stemma
