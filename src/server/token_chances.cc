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
  skip(entries.front().token);
  return chance;
}

void TokenChances::skip(TokenId token) {
  if (is_text(token)) {
    characters_ += characters_in(text_.push(token));
    begun_ = true;
  }
  ++tokens_;
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

std::vector<TokenChance> GivenTokens::read() const {
  TokenChances reader(*tokenizer, rules);
  std::vector<TokenChance> chances;
  chances.reserve(tokens.size());
  for (const TokenId token : tokens) chances.push_back(reader.given(token));
  return chances;
}

TokenChances GivenTokens::behind() const {
  TokenChances reader(*tokenizer, rules);
  for (const TokenId token : tokens) reader.skip(token);
  return reader;
}

}  // namespace stemma
