#include "grammar/grammar_book.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "grammar/byte_automaton.h"
#include "grammar/token_bytes.h"

namespace stemma {
namespace {

// Of a grammar: what its automaton may remember, and states of which allowed tokens are kept.
constexpr std::size_t kSizeMax = 8192;
constexpr std::size_t kMasksMax = 512;

Error too_many_ways() {
  return {ErrorCode::kTooLarge, "a text of this form can be read in too many ways"};
}

}  // namespace

struct GrammarBook::Grammar {
  Grammar(std::string its_key, ByteProgram program, std::int64_t work)
      : key(std::move(its_key)), automaton(std::move(program), work) {}

  const std::string key;
  std::int64_t users = 0;  // behind the book's lock
  std::atomic<bool> too_costly = false;

  std::mutex mutex;  // of what follows
  ByteAutomaton automaton;
  std::vector<ByteAutomaton::State*> states;  // of the constraints
  std::unordered_map<ByteAutomaton::State, std::vector<std::uint64_t>> masks;
  std::size_t size_max = kSizeMax;

  // What was found is let go when it is much, but for where constraints are.
  void bound_memory() {
    if (masks.size() >= kMasksMax) masks.clear();
    if (automaton.size() < size_max) return;
    masks.clear();
    automaton.keep_only(states);
    size_max = std::max(kSizeMax, 2 * automaton.size());
  }
};

class GrammarBook::Constraint final : public OutputConstraint {
 public:
  // Its user is counted already.
  Constraint(GrammarBook& book, Grammar& grammar) : book_(book), grammar_(grammar) {
    const std::lock_guard lock(grammar_.mutex);
    state_ = grammar_.automaton.start();
    grammar_.states.push_back(&state_);
  }
  ~Constraint() override {
    {
      const std::lock_guard lock(grammar_.mutex);
      std::erase(grammar_.states, &state_);
    }
    book_.leave(grammar_);
  }
  Constraint(const Constraint&) = delete;
  Constraint& operator=(const Constraint&) = delete;

  std::unique_ptr<OutputConstraint> clone() const override {
    book_.enter(grammar_);
    auto other = std::make_unique<Constraint>(book_, grammar_);
    const std::lock_guard lock(grammar_.mutex);
    other->state_ = state_;
    return other;
  }

  std::span<const std::uint64_t> allowed() override {
    const std::lock_guard lock(grammar_.mutex);
    if (grammar_.too_costly) return {};
    grammar_.bound_memory();
    const auto [mask, added] = grammar_.masks.try_emplace(state_);
    if (added) {
      mask->second.resize(token_words(book_.vocab_tokens_));
      grammar_.automaton.allow_work(book_.work_max_);
      book_.trie_->allowed(grammar_.automaton, state_, mask->second);
      grammar_.too_costly = grammar_.automaton.exhausted();
      if (grammar_.too_costly) return {};
    }
    allowed_ = mask->second;
    return allowed_;
  }

  bool may_end() override {
    const std::lock_guard lock(grammar_.mutex);
    return grammar_.automaton.may_end(state_);
  }

  bool is_whole() override {
    const std::lock_guard lock(grammar_.mutex);
    return !grammar_.automaton.may_go_on(state_);
  }

  void accept(TokenId token) override {
    const std::string bytes = token_bytes(book_.tokenizer_, token);
    const std::lock_guard lock(grammar_.mutex);
    grammar_.automaton.allow_work(std::numeric_limits<std::int64_t>::max());
    for (const char byte : bytes) {
      state_ = grammar_.automaton.next(state_, static_cast<std::uint8_t>(byte));
      STEMMA_CHECK(state_ != ByteAutomaton::kDead, "only what is allowed is accepted");
    }
  }

 private:
  GrammarBook& book_;
  Grammar& grammar_;
  ByteAutomaton::State state_ = 0;
  std::vector<std::uint64_t> allowed_;
};

GrammarBook::GrammarBook(const Tokenizer& tokenizer, std::int64_t vocab_tokens,
                         std::int64_t work_max)
    : tokenizer_(tokenizer), vocab_tokens_(vocab_tokens), work_max_(work_max) {}

GrammarBook::~GrammarBook() {
  for (const auto& grammar : grammars_) {
    STEMMA_CHECK_EQ(grammar->users, 0);
  }
}

GrammarBook::Grammar* GrammarBook::find_or_null(const std::string& key) {
  const auto found = std::find_if(grammars_.begin(), grammars_.end(),
                                  [&](const auto& grammar) { return grammar->key == key; });
  if (found == grammars_.end()) return nullptr;
  std::rotate(found, found + 1, grammars_.end());
  return grammars_.back().get();
}

// Compiled without the lock: others go on meanwhile, and may compile the same.
Result<OwnedConstraint> GrammarBook::open(const std::string& key, Writer write) {
  std::unique_lock lock(mutex_);
  if (find_or_null(key) == nullptr) {
    lock.unlock();
    ByteGrammar grammar;
    STEMMA_ASSIGN_OR_RETURN(const ByteGrammar::Part whole, write(grammar));
    STEMMA_ASSIGN_OR_RETURN(ByteProgram program, grammar.compile(whole));
    auto compiled = std::make_unique<Grammar>(key, std::move(program), work_max_);
    if (compiled->automaton.exhausted()) return too_many_ways();
    lock.lock();
    if (find_or_null(key) == nullptr) grammars_.push_back(std::move(compiled));
  }
  if (trie_ == nullptr) {
    trie_ = std::make_unique<TokenTrie>(bytes_of_tokens(tokenizer_, vocab_tokens_));
  }
  Grammar& grammar = *grammars_.back();
  if (grammar.too_costly) return too_many_ways();
  ++grammar.users;
  drop_idle();
  lock.unlock();
  return OwnedConstraint(std::make_unique<Constraint>(*this, grammar));
}

void GrammarBook::drop_idle() {
  std::size_t idle = 0;
  for (const auto& grammar : grammars_) idle += grammar->users == 0 ? 1U : 0U;
  std::erase_if(grammars_, [&](const auto& grammar) {
    if (grammar->users > 0 || idle <= kIdleMax) return false;
    --idle;
    return true;
  });
}

void GrammarBook::enter(Grammar& grammar) {
  const std::lock_guard lock(mutex_);
  ++grammar.users;
}

void GrammarBook::leave(Grammar& grammar) {
  const std::lock_guard lock(mutex_);
  --grammar.users;
  drop_idle();
}

std::size_t GrammarBook::grammars() const {
  const std::lock_guard lock(mutex_);
  return grammars_.size();
}

}  // namespace stemma
