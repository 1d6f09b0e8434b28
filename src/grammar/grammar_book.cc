#include "grammar/grammar_book.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "base/check.h"
#include "grammar/byte_automaton.h"
#include "grammar/token_bytes.h"
#include "grammar/token_masks.h"

namespace stemma {
namespace {

// What the automaton of a grammar may remember,
constexpr std::size_t kSizeMax = 8192;
// and how much more while somebody is about to accept a token whose bytes were followed.
constexpr std::size_t kGrowthMax = 32'768;
constexpr std::size_t kGrowthsMax = 16;

Error too_many_ways() {
  return {ErrorCode::kTooLarge, "a text of this form can be read in too many ways"};
}

}  // namespace

// The tokens that a state allows are found for one state at a time, by whoever of its constraints
// has work left: states are let go between two of them.
struct GrammarBook::Grammar {
  Grammar(std::string its_key, ByteProgram program, std::int64_t work)
      : key(std::move(its_key)), automaton(std::move(program), work) {}

  const std::string key;
  std::int64_t users = 0;  // behind the book's lock
  std::atomic<bool> too_costly = false;

  struct Finding {
    std::vector<std::uint64_t> words;
    TokenTrie::Walk walk;
    std::int64_t work = 0;  // of the automaton
  };

  std::mutex mutex;  // of what follows, and of all constraints
  ByteAutomaton automaton;
  std::vector<Constraint*> constraints;
  TokenMasks masks;
  std::optional<Finding> finding;
  std::size_t size_max = kSizeMax;

  std::int64_t work_for(Constraint& constraint, std::int64_t units, const GrammarBook& book);
  void begin_finding(const Constraint& constraint, const GrammarBook& book);
  std::int64_t go_on_finding(std::int64_t units, const GrammarBook& book);
  void end_finding();
  void bound_memory();
  void drop_finding_of(ByteAutomaton::State state);
};

class GrammarBook::Constraint final : public OutputConstraint {
 public:
  // Its user is counted already.
  Constraint(GrammarBook& book, Grammar& grammar) : book_(book), grammar_(grammar) {
    const std::lock_guard lock(grammar_.mutex);
    state_ = grammar_.automaton.start();
    grammar_.constraints.push_back(this);
  }
  ~Constraint() override {
    {
      const std::lock_guard lock(grammar_.mutex);
      std::erase(grammar_.constraints, this);
      grammar_.drop_finding_of(state_);
      let_mask_go();
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
    if (mask_ != nullptr) other->take(*mask_);
    other->ready_ = ready_;
    return other;
  }

  std::int64_t prepare(std::int64_t units) override {
    const std::lock_guard lock(grammar_.mutex);
    return grammar_.work_for(*this, units, book_);
  }

  bool is_ready() override {
    const std::lock_guard lock(grammar_.mutex);
    return ready_ || grammar_.too_costly;
  }

  std::span<const std::uint64_t> allowed() override {
    const std::lock_guard lock(grammar_.mutex);
    if (mask_ == nullptr) grammar_.work_for(*this, ByteAutomaton::kAnyWork, book_);
    if (grammar_.too_costly) return {};
    return mask_->words;
  }

  bool may_end() override {
    const std::lock_guard lock(grammar_.mutex);
    return grammar_.automaton.may_end(state_);
  }

  bool is_whole() override {
    const std::lock_guard lock(grammar_.mutex);
    return !grammar_.automaton.may_go_on(state_);
  }

  // Where it is ready, the automaton knows the way.
  void accept(TokenId token) override {
    const std::string bytes = token_bytes(book_.tokenizer_, token);
    const std::lock_guard lock(grammar_.mutex);
    let_mask_go();
    grammar_.automaton.allow_any_work();
    for (const char byte : bytes) {
      state_ = grammar_.automaton.next(state_, static_cast<std::uint8_t>(byte));
      STEMMA_CHECK(state_ != ByteAutomaton::kDead, "only what is allowed is accepted");
    }
  }

 private:
  friend struct Grammar;

  void take(TokenMask& mask) {
    TokenMasks::hold(mask);
    let_mask_go();
    mask_ = &mask;
    ready_ = true;
  }
  void let_mask_go() {
    if (mask_ != nullptr) grammar_.masks.let_go(*mask_);
    mask_ = nullptr;
    ready_ = false;
  }

  GrammarBook& book_;
  Grammar& grammar_;
  ByteAutomaton::State state_ = 0;
  TokenMask* mask_ = nullptr;  // held
  bool ready_ = false;         // has the mask, and the automaton all states behind its tokens
};

std::int64_t GrammarBook::Grammar::work_for(Constraint& constraint, std::int64_t units,
                                            const GrammarBook& book) {
  std::int64_t left = units;
  while (!constraint.ready_ && !too_costly && left > 0) {
    if (TokenMask* const known = masks.find_or_null(constraint.state_)) {
      constraint.take(*known);
      break;
    }
    if (!finding.has_value()) begin_finding(constraint, book);
    left -= go_on_finding(left, book);
  }
  return units - left;
}

void GrammarBook::Grammar::begin_finding(const Constraint& constraint, const GrammarBook& book) {
  bound_memory();
  std::vector<std::uint64_t> words(token_words(book.vocab_tokens_));
  const std::span<std::uint64_t> bits = words;
  finding.emplace(Finding{std::move(words), TokenTrie::Walk(constraint.state_, bits)});
}

// What the automaton did counts, which is the same in whatever portions.
std::int64_t GrammarBook::Grammar::go_on_finding(std::int64_t units, const GrammarBook& book) {
  const std::int64_t done_before = automaton.work_done();
  const std::int64_t portion = std::min(units, book.work_max_ - finding->work + 1);
  automaton.allow_work(portion);
  const bool found = book.trie_->find_allowed(automaton, finding->walk);
  finding->work += automaton.work_done() - done_before;
  too_costly = automaton.exhausted() || finding->work > book.work_max_;
  if (too_costly) finding.reset();
  if (found && !too_costly) end_finding();
  return portion - automaton.work_left();
}

void GrammarBook::Grammar::end_finding() {
  const ByteAutomaton::State state = finding->walk.state();
  TokenMask& mask = masks.add(state, std::move(finding->words), automaton.size());
  finding.reset();
  for (Constraint* const one : constraints) {
    if (one->state_ == state) one->take(mask);
  }
}

// What was found is let go when it is much, but for where constraints are. Not at once where one is
// ready for its next token: it would have to begin again, and the next one's turn would undo it.
void GrammarBook::Grammar::bound_memory() {
  const std::size_t size = automaton.size();
  const bool awaits_token = std::any_of(
      constraints.begin(), constraints.end(),
      [&](const auto* one) { return one->ready_ && size < one->mask_->found_at + kGrowthMax; });
  if (size < size_max || (awaits_token && size < size_max + kGrowthsMax * kGrowthMax)) return;
  std::vector<ByteAutomaton::State*> states;
  for (Constraint* const one : constraints) {
    one->ready_ = false;
    states.push_back(&one->state_);
  }
  masks.forget_states();
  automaton.keep_only(states);
  size_max = std::max(kSizeMax, 2 * automaton.size());
}

// Where nobody is in that state any more.
void GrammarBook::Grammar::drop_finding_of(ByteAutomaton::State state) {
  if (!finding.has_value() || finding->walk.state() != state) return;
  const bool wanted = std::any_of(constraints.begin(), constraints.end(),
                                  [&](const auto* one) { return one->state_ == state; });
  if (!wanted) finding.reset();
}

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
