#include "server/thought_budget.h"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/token_bytes.h"
#include "model/unicode_text.h"

namespace stemma {
namespace {

constexpr std::size_t kBitsPerWord = 64;
constexpr std::int64_t kBytesOfCharacter = 4;

// Of what is left of a mark from each of its bytes on, the token that writes most of it; nothing if
// one cannot be written. Marks are plain text, which tokenizers spell as it is.
std::optional<std::vector<TokenId>> tokens_of_mark(std::string_view mark,
                                                   const Tokenizer& tokenizer) {
  std::vector<TokenId> tokens;
  for (std::string_view left = mark; !left.empty(); left.remove_prefix(1)) {
    std::string_view begin = left;
    std::optional<TokenId> token;
    for (; !token.has_value() && !begin.empty(); begin.remove_suffix(1)) {
      token = tokenizer.token_id(begin);
      if (token.has_value() && token_bytes(tokenizer, *token) != begin) token.reset();
    }
    if (!token.has_value()) return std::nullopt;
    tokens.push_back(*token);
  }
  return tokens;
}

std::vector<std::uint64_t> all_tokens(std::int64_t vocab_tokens) {
  std::vector<std::uint64_t> words((static_cast<std::size_t>(vocab_tokens) + kBitsPerWord - 1) /
                                   kBitsPerWord);
  for (std::int64_t token = 0; token < vocab_tokens; ++token) {
    const auto bit = static_cast<std::size_t>(token);
    words[bit / kBitsPerWord] |= std::uint64_t{1} << (bit % kBitsPerWord);
  }
  return words;
}

bool has(std::span<const std::uint64_t> words, std::size_t bit) {
  const std::size_t word = bit / kBitsPerWord;
  return word < words.size() && (words[word] >> (bit % kBitsPerWord) & 1) != 0;
}

class BudgetedThoughts final : public OutputConstraint {
 public:
  BudgetedThoughts(OwnedConstraint constraint, const ThoughtBudget& budget,
                   std::vector<TokenId> mark_tokens, const Tokenizer& tokenizer,
                   std::int64_t vocab_tokens)
      : constraint_(std::move(constraint)),
        budget_(budget),
        mark_tokens_(std::move(mark_tokens)),
        tokenizer_(&tokenizer),
        reader_(budget.place, /*has_form=*/false, budget.marks) {
    if (form_or_null() == nullptr) everything_ = all_tokens(vocab_tokens);
    end_if_all_used();
  }

  std::unique_ptr<OutputConstraint> clone() const override {
    return std::make_unique<BudgetedThoughts>(*this);
  }
  std::int64_t prepare(std::int64_t units) override {
    return form_or_null() == nullptr ? 0 : form_or_null()->prepare(units);
  }
  bool is_ready() override { return form_or_null() == nullptr || form_or_null()->is_ready(); }

  std::span<const std::uint64_t> allowed() override {
    const auto allowed = form_or_null() == nullptr ? std::span<const std::uint64_t>(everything_)
                                                   : form_or_null()->allowed();
    if (mark_left_.empty()) return allowed;
    const auto token =
        static_cast<std::size_t>(mark_tokens_[budget_.marks.end.size() - mark_left_.size()]);
    only_.assign(token / kBitsPerWord + 1, 0);
    if (has(allowed, token)) only_.back() = std::uint64_t{1} << (token % kBitsPerWord);
    return only_;
  }
  bool may_end() override {
    if (!mark_left_.empty()) return false;
    return form_or_null() == nullptr || form_or_null()->may_end();
  }
  bool is_whole() override { return form_or_null() != nullptr && form_or_null()->is_whole(); }

  void accept(TokenId token) override {
    if (form_or_null() != nullptr) form_or_null()->accept(token);
    if (!reader_.may_think()) return;
    const std::string bytes = token_bytes(*tokenizer_, token);
    if (!mark_left_.empty()) mark_left_.remove_prefix(bytes.size());
    think(bytes);
  }

 private:
  OutputConstraint* form_or_null() const { return constraint_.get(); }
  bool is_thinking() const { return reader_.is_decided() && reader_.may_think(); }

  void think(std::string_view bytes) {
    const bool was_thinking = is_thinking();
    ThoughtText read;
    reader_.push(bytes, read);
    if (!is_thinking()) return;
    if (was_thinking) ++tokens_;
    for (const char byte : bytes) characters_.push(static_cast<std::uint8_t>(byte), read.thoughts);
    last_bytes_.append(bytes);
    const std::size_t kept = budget_.marks.end.size();
    if (last_bytes_.size() > kept) last_bytes_.erase(0, last_bytes_.size() - kept);
    if (mark_left_.empty()) end_if_all_used();
  }

  // Of a mark that the model has begun by itself only the rest has to come.
  void end_if_all_used() {
    if (!is_thinking() || tokens_ < budget_.tokens) return;
    if (!characters_.is_whole() && tokens_ < budget_.tokens + kBytesOfCharacter - 1) return;
    mark_left_ = budget_.marks.end;
    mark_left_.remove_prefix(bytes_of_begun_mark(last_bytes_, {&budget_.marks.end, 1}));
  }

  OwnedConstraint constraint_;
  ThoughtBudget budget_;
  std::vector<TokenId> mark_tokens_;  // [bytes of the mark]
  const Tokenizer* tokenizer_;
  ThoughtReader reader_;
  std::int64_t tokens_ = 0;     // that it has thought
  std::string last_bytes_;      // of them, as many as the mark has
  std::string_view mark_left_;  // of the mark, once the budget is used up; empty: nothing
  Utf8Assembler characters_{Utf8Assembler::IllFormed::kOnePerByte};
  std::vector<std::uint64_t> everything_;  // without a form: all that may come
  std::vector<std::uint64_t> only_;        // what allowed() gave last
};

}  // namespace

OwnedConstraint with_thought_budget(OwnedConstraint constraint, const ThoughtBudget& budget,
                                    const Tokenizer& tokenizer, std::int64_t vocab_tokens) {
  if (budget.place == ThoughtPlace::kBehind) return constraint;
  auto mark_tokens = tokens_of_mark(budget.marks.end, tokenizer);
  if (!mark_tokens.has_value()) return constraint;
  return OwnedConstraint(std::make_unique<BudgetedThoughts>(
      std::move(constraint), budget, *std::move(mark_tokens), tokenizer, vocab_tokens));
}

}  // namespace stemma
