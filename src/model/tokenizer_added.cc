#include "model/tokenizer_added.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "model/unicode_text.h"
#include "template/tokenizer_config.h"

namespace stemma {
namespace {

std::uint64_t edge_of(std::uint32_t node, char byte) {
  return (std::uint64_t{node} << 8) | static_cast<unsigned char>(byte);
}

// All of a token but its id.
Result<AddedToken> token_of(const JsonField& field) {
  AddedToken token;
  STEMMA_ASSIGN_OR_RETURN(const JsonField content, field.member("content"));
  STEMMA_ASSIGN_OR_RETURN(const std::string_view text, content.as_string());
  if (text.size() > kAddedTokenBytesMax) {
    return content.error(ErrorCode::kTooLarge, "longer than 4096 bytes");
  }
  token.content = std::string(text);
  STEMMA_ASSIGN_OR_RETURN(token.single_word, field.bool_or("single_word", false));
  STEMMA_ASSIGN_OR_RETURN(token.lstrip, field.bool_or("lstrip", false));
  STEMMA_ASSIGN_OR_RETURN(token.rstrip, field.bool_or("rstrip", false));
  STEMMA_ASSIGN_OR_RETURN(token.special, field.bool_or("special", false));
  STEMMA_ASSIGN_OR_RETURN(token.normalized, field.bool_or("normalized", !token.special));
  return token;
}

Result<TokenId> id_of(const JsonField& field) {
  STEMMA_ASSIGN_OR_RETURN(const JsonField id, field.member("id"));
  STEMMA_ASSIGN_OR_RETURN(const std::int64_t number, id.as_integer(0, kTokenIdMax));
  return static_cast<TokenId>(number);
}

// Of a member of added_tokens_decoder: its name.
Result<TokenId> id_of_name(const JsonField& field, std::string_view name) {
  TokenId id = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
  const bool is_number = error == std::errc() && end == name.data() + name.size();
  if (!is_number || id < 0 || id > kTokenIdMax) return field.corrupt("its name is no id");
  return id;
}

// Whatever is no special token is passed over.
void add_text(const nlohmann::json& token, std::vector<std::string>& texts) {
  const std::string* const text = special_token_text_or_null(token);
  if (text != nullptr && !text->empty()) texts.push_back(*text);
}

std::vector<std::string> special_texts(const nlohmann::json& config) {
  std::vector<std::string> texts;
  for (const char* const name : kSpecialTokenNames) {
    if (config.contains(name)) add_text(config[name], texts);
  }
  const auto others = config.find("additional_special_tokens");
  if (others == config.end() || !others->is_array()) return texts;
  for (const nlohmann::json& token : *others) add_text(token, texts);
  return texts;
}

}  // namespace

void StringTrie::add(std::string_view text, std::int32_t number) {
  STEMMA_CHECK(!text.empty(), "an empty string is found everywhere");
  begins_[static_cast<unsigned char>(text[0])] = true;
  std::uint32_t node = 0;
  for (const char byte : text) {
    const auto [edge, is_new] =
        edges_.try_emplace(edge_of(node, byte), static_cast<std::uint32_t>(numbers_.size()));
    if (is_new) {
      numbers_.push_back(-1);
    }
    node = edge->second;
  }
  if (numbers_[node] < 0) {
    numbers_[node] = number;
  }
}

std::optional<StringTrie::Found> StringTrie::longest_at(std::string_view text) const {
  if (text.empty() || !begins_[static_cast<unsigned char>(text[0])]) {
    return std::nullopt;
  }
  std::optional<Found> longest;
  std::uint32_t node = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto edge = edges_.find(edge_of(node, text[at]));
    if (edge == edges_.end()) {
      break;
    }
    node = edge->second;
    if (numbers_[node] >= 0) {
      longest = Found{numbers_[node], at + 1};
    }
  }
  return longest;
}

Result<AddedTokens> AddedTokens::parse(const JsonField& field, const Vocabulary& model,
                                       const Normalizer& normalizer) {
  STEMMA_RETURN_IF_ERROR(field.expect_array());
  AddedTokens added;
  for (std::size_t position = 0; position < field.element_count(); ++position) {
    const JsonField element = field.element(position);
    STEMMA_ASSIGN_OR_RETURN(AddedToken token, token_of(element));
    STEMMA_ASSIGN_OR_RETURN(token.id, id_of(element));
    STEMMA_RETURN_IF_ERROR(added.add(element, std::move(token), model));
  }
  STEMMA_RETURN_IF_ERROR(added.index(field, normalizer));
  return added;
}

Status AddedTokens::obey(const JsonField& config, const Vocabulary& model,
                         const Normalizer& normalizer) {
  std::unordered_map<std::string, std::size_t> known;  // contents → places
  for (std::size_t i = 0; i < tokens_.size(); ++i) known.try_emplace(tokens_[i].content, i);
  const std::vector<std::string> special = special_texts(config.value());
  if (const std::optional<JsonField> decoder = config.try_member("added_tokens_decoder")) {
    STEMMA_RETURN_IF_ERROR(obey_decoder(*decoder, model, special, known));
  }
  for (const std::string& text : special) {
    const std::optional<TokenId> id = model.id_of(text);
    if (!id.has_value() || !known.try_emplace(text, tokens_.size()).second) continue;
    tokens_.push_back({.id = *id, .content = text, .normalized = false, .special = true});
  }
  return index(config, normalizer);
}

Status AddedTokens::obey_decoder(const JsonField& field, const Vocabulary& model,
                                 std::span<const std::string> special,
                                 std::unordered_map<std::string, std::size_t>& known) {
  STEMMA_RETURN_IF_ERROR(field.expect_object());
  for (const auto& member : field.value().items()) {
    STEMMA_ASSIGN_OR_RETURN(const JsonField entry, field.member(member.key()));
    STEMMA_ASSIGN_OR_RETURN(AddedToken token, token_of(entry));
    STEMMA_ASSIGN_OR_RETURN(token.id, id_of_name(entry, member.key()));
    token.special |= std::find(special.begin(), special.end(), token.content) != special.end();
    const auto found = known.find(token.content);
    if (found != known.end()) {
      token.id = tokens_[found->second].id;
      tokens_[found->second] = std::move(token);
      continue;
    }
    token.id = model.id_of(token.content).value_or(token.id);
    known.emplace(token.content, tokens_.size());
    STEMMA_RETURN_IF_ERROR(add(entry, std::move(token), model));
  }
  return {};
}

Status AddedTokens::add(const JsonField& field, AddedToken token, const Vocabulary& model) {
  if (token.content.empty()) {
    return {};  // found nowhere
  }
  STEMMA_RETURN_IF_ERROR(check_id(field, token, model));
  tokens_.push_back(std::move(token));
  return {};
}

Status AddedTokens::check_id(const JsonField& field, const AddedToken& token,
                             const Vocabulary& model) const {
  const auto model_id = model.id_of(token.content);
  if (model_id && *model_id != token.id) {
    return field.error_below(".id", ErrorCode::kCorrupt,
                             "is " + std::to_string(token.id) + ", but model.vocab gives " +
                                 in_quotes(token.content) + " the id " + std::to_string(*model_id));
  }
  const auto model_text = model.text_of(token.id);
  if (model_text && *model_text != token.content) {
    return field.error_below(".id", ErrorCode::kCorrupt,
                             std::to_string(token.id) + " already belongs to " +
                                 in_quotes(*model_text) + " in model.vocab");
  }
  return {};
}

// Special tokens count before others of the same text; one that comes twice takes its first form.
Status AddedTokens::index(const JsonField& field, const Normalizer& normalizer) {
  std::stable_partition(tokens_.begin(), tokens_.end(),
                        [](const AddedToken& token) { return token.special; });
  STEMMA_ASSIGN_OR_RETURN(word_character_, TextPattern::regex(R"([\w\p{Join_Control}])"));
  raw_ = StringTrie();
  normalized_ = StringTrie();
  special_.clear();
  std::unordered_map<std::string_view, TokenId> seen;
  std::vector<VocabularyEntry> entries;
  for (std::size_t number = 0; number < tokens_.size(); ++number) {
    const AddedToken& token = tokens_[number];
    if (token.special) {
      special_.insert(token.id);
    }
    const auto [first, is_new] = seen.try_emplace(token.content, token.id);
    if (is_new || first->second != token.id) {
      entries.push_back({token.id, token.content});
    }
    std::string sought = token.content;
    if (token.normalized) {
      STEMMA_ASSIGN_OR_RETURN(NormalizedText normalized, normalizer.apply(std::move(sought)));
      sought = std::move(normalized.text);
    }
    if (!sought.empty()) {
      (token.normalized ? normalized_ : raw_).add(sought, static_cast<std::int32_t>(number));
    }
  }
  Result<Vocabulary> vocabulary = Vocabulary::build(std::move(entries));
  if (!vocabulary.ok()) {
    return field.error(vocabulary.error().code, vocabulary.error().detail);
  }
  vocabulary_ = std::move(vocabulary).value();
  return {};
}

// A token may lie in white space that the one before it took. As in Hugging Face's tokenizers it is
// there all the same, and what follows it is text again; but white space that it would take itself
// is taken.
std::vector<AddedTokens::Part> AddedTokens::cut(std::string_view text, Form form,
                                                bool parse_special) const {
  const StringTrie& trie = form == Form::kRaw ? raw_ : normalized_;
  std::vector<Part> parts;
  std::size_t taken_end = 0;
  std::size_t space_end = 0;  // of the white space that was looked through last
  for (std::size_t at = 0; at < text.size();) {
    const std::optional<StringTrie::Found> found = trie.longest_at(text.substr(at));
    if (!found) {
      ++at;
      continue;
    }
    const ByteRange match{at, at + found->bytes};
    at = match.end;
    const AddedToken& token = tokens_[static_cast<std::size_t>(found->number)];
    if ((token.special && !parse_special) || (token.single_word && !stands_alone(text, match))) {
      continue;
    }
    ByteRange range = match;
    if (token.lstrip && match.begin < taken_end) {
      range.begin = taken_end;
    } else if (token.lstrip) {
      range.begin -= trailing_space_bytes(text.substr(taken_end, match.begin - taken_end));
    }
    if (token.rstrip) {
      if (match.end > space_end)
        space_end = match.end + leading_space_bytes(text.substr(match.end));
      range.end = space_end;
    }
    if (range.begin >= range.end) continue;
    if (range.begin > taken_end) {
      parts.push_back({{taken_end, range.begin}, std::nullopt});
    }
    parts.push_back({range, token.id});
    taken_end = range.end;
  }
  if (taken_end < text.size()) {
    parts.push_back({{taken_end, text.size()}, std::nullopt});
  }
  return parts;
}

bool AddedTokens::stands_alone(std::string_view text, ByteRange range) const {
  const bool word_before = range.begin > 0 && is_word_at(text, utf8_floor(text, range.begin - 1));
  const bool word_after = range.end < text.size() && is_word_at(text, range.end);
  return !word_before && !word_after;
}

bool AddedTokens::is_word_at(std::string_view text, std::size_t at) const {
  const auto found = word_character_->find_all(text.substr(at, utf8_next(text, at) - at));
  return found.ok() && !found.value().empty();
}

}  // namespace stemma
