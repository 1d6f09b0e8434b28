#include "server/token_chances.h"

#include "grammar/token_bytes.h"
#include "model/unicode_text.h"

namespace stemma {

TokenChances::TokenChances(const Tokenizer& tokenizer, const Rules& rules)
    : tokenizer_(&tokenizer),
      rules_(rules),
      text_(tokenizer, rules.skip_special_tokens),
      begun_(rules.goes_on) {
  if (rules.goes_on) text_.begin_behind_others();
}

TokenChance TokenChances::given(TokenId token) {
  const TokenLogprob entry = {token};
  TokenChance chance = next(std::span(&entry, 1));
  chance.is_given = true;
  return chance;
}

TokenChance TokenChances::next(std::span<const TokenLogprob> entries) {
  TokenChance chance = {.token = named(entries.front()), .likeliest = {}};
  for (const TokenLogprob& entry : entries.subspan(1)) chance.likeliest.push_back(named(entry));
  chance.first_character = characters_;
  if (is_text(entries.front().token)) {
    characters_ += characters_in(text_.push(entries.front().token));
    begun_ = true;
  }
  ++tokens_;
  return chance;
}

bool TokenChances::is_text(TokenId token) const {
  if (tokens_ < rules_.begin || tokens_ >= rules_.end) return false;
  return !rules_.skip_special_tokens || !tokenizer_->is_special(token);
}

NamedLogprob TokenChances::named(const TokenLogprob& entry) const {
  NamedLogprob named = {.text = begun_ ? text_behind_others(*tokenizer_, entry.token)
                                       : tokenizer_->decode(std::span(&entry.token, 1), false),
                        .logprob = entry.logprob,
                        .token = entry.token,
                        .rank = entry.rank};
  if (named.text.find(kReplacementCharacter) != std::string::npos) {
    named.bytes = token_bytes(*tokenizer_, entry.token);
  }
  return named;
}

PromptChances chances_of_prompt(const Tokenizer& tokenizer, const TokenChances::Rules& rules,
                                std::span<const TokenId> given) {
  PromptChances chances = {.given = {}, .rest = TokenChances(tokenizer, rules)};
  chances.given.reserve(given.size());
  for (const TokenId token : given) chances.given.push_back(chances.rest.given(token));
  return chances;
}

}  // namespace stemma
