#include "grammar/grammar_book.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <span>
#include <utility>

#include "base/check.h"
#include "grammar/byte_automaton.h"
#include "grammar/token_bytes.h"
#include "grammar/token_masks.h"

namespace stemma {
namespace {

// Grammars with less than this part of all memory are not asked for some: what they gave would soon
// be found again.
constexpr std::int64_t kSmallPart = 64;

// Forms are as long as clients make them, and nobody finds two that have one digest.
Sha256Digest key_of(std::string_view form) {
  return sha256(std::as_bytes(std::span(form)));
}

Error too_many_ways() {
  return {ErrorCode::kTooLarge, "a text of this form can be read in too many ways"};
}

}  // namespace

// The tokens that a state allows are found for one state at a time, by whoever of its constraints
// has work left. What is known may be let go at any time: whoever begins anew then finds the same,
// and lists that constraints hold stay.
struct GrammarBook::Grammar {
  Grammar(const Sha256Digest& its_key, ByteProgram program, std::int64_t work)
      : key(its_key), automaton(std::move(program), work) {}

  const Sha256Digest key;
  std::int64_t users = 0;               // behind the book's lock
  std::atomic<std::int64_t> bytes = 0;  // as the book has counted them

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
  std::int64_t last_work = 0;  // of the finding before

  std::int64_t work_for(Constraint& constraint, std::int64_t units, const GrammarBook& book);
  std::int64_t begin_finding(const Constraint& constraint, const GrammarBook& book);
  std::int64_t go_on_finding(std::int64_t units, const GrammarBook& book);
  std::int64_t begin_anew(const GrammarBook& book);
  void find_from(ByteAutomaton::State state, const GrammarBook& book);
  void end_finding(bool too_costly);
  std::int64_t let_go();
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
      book_.count_bytes(grammar_);
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
    return other;
  }

  std::int64_t prepare(std::int64_t units) override {
    const std::int64_t owed = std::min(owed_, units);
    owed_ -= owed;
    return owed < units ? owed + work(units - owed) : owed;
  }

  bool is_ready() override {
    const std::lock_guard lock(grammar_.mutex);
    return mask_ != nullptr;
  }

  std::span<const std::uint64_t> allowed() override {
    if (!is_ready()) work(ByteAutomaton::kAnyWork);
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

  // Where it is ready, the automaton knows the way, but for what was let go meanwhile: that is work
  // for which the next portion is less.
  void accept(TokenId token) override {
    const std::string bytes = token_bytes(book_.tokenizer_, token);
    const std::lock_guard lock(grammar_.mutex);
    const bool was_ready = mask_ != nullptr;
    const ByteAutomaton::State before = state_;
    let_mask_go();
    const std::int64_t done_before = grammar_.automaton.work_done();
    grammar_.automaton.allow_any_work();
    for (const char byte : bytes) {
      state_ = grammar_.automaton.next(state_, static_cast<std::uint8_t>(byte));
      STEMMA_CHECK(state_ != ByteAutomaton::kDead, "only what is allowed is accepted");
    }
    if (was_ready) owed_ += grammar_.automaton.work_done() - done_before;
    grammar_.drop_finding_of(before);
  }

 private:
  friend struct Grammar;

  // Memory is bounded without the grammar's lock: others have to give some too.
  std::int64_t work(std::int64_t units) {
    std::int64_t took = 0;
    {
      const std::lock_guard lock(grammar_.mutex);
      took = grammar_.work_for(*this, units, book_);
      book_.count_bytes(grammar_);
    }
    return took + book_.bound_memory();
  }

  void take(TokenMask& mask) {
    TokenMasks::hold(mask);
    let_mask_go();
    mask_ = &mask;
  }
  void let_mask_go() {
    if (mask_ != nullptr) grammar_.masks.let_go(*mask_);
    mask_ = nullptr;
  }

  GrammarBook& book_;
  Grammar& grammar_;
  ByteAutomaton::State state_ = 0;
  TokenMask* mask_ = nullptr;  // held; it is ready where it has one
  std::int64_t owed_ = 0;      // work that was done when it accepted tokens
};

std::int64_t GrammarBook::Grammar::work_for(Constraint& constraint, std::int64_t units,
                                            const GrammarBook& book) {
  std::int64_t left = units;
  while (constraint.mask_ == nullptr && left > 0) {
    if (TokenMask* const known = masks.find_or_null(constraint.state_)) {
      constraint.take(*known);
      break;
    }
    if (!finding.has_value()) left -= begin_finding(constraint, book);
    left -= go_on_finding(left, book);
  }
  return units - left;
}

// What would make it begin anew, if it is as the one before, goes at once.
std::int64_t GrammarBook::Grammar::begin_finding(const Constraint& constraint,
                                                 const GrammarBook& book) {
  const std::int64_t known = automaton.work_done();
  const std::int64_t took = known > 0 && known + last_work > book.limits_.work ? let_go() : 0;
  find_from(constraint.state_, book);
  return took;
}

void GrammarBook::Grammar::find_from(ByteAutomaton::State state, const GrammarBook& book) {
  std::vector<std::uint64_t> words(token_words(book.vocab_tokens_));
  const std::span<std::uint64_t> bits = words;
  finding.emplace(Finding{std::move(words), TokenTrie::Walk(state, bits)});
}

// It takes no more than all that the automaton knows took. Where that is too much, and some of it
// was not done here, it begins anew with nothing known: what others have found does not decide.
std::int64_t GrammarBook::Grammar::go_on_finding(std::int64_t units, const GrammarBook& book) {
  const std::int64_t known = automaton.work_done();
  const std::int64_t portion =
      std::max<std::int64_t>(1, std::min(units, book.limits_.work - known + 1));
  automaton.allow_work(portion);
  const bool found = book.trie_->find_allowed(automaton, finding->walk);
  finding->work += automaton.work_done() - known;
  const std::int64_t took = portion - automaton.work_left();
  const bool is_much = automaton.work_done() > book.limits_.work;
  const bool too_costly =
      automaton.exhausted() || (is_much && finding->work == automaton.work_done());
  if (is_much && !too_costly) return took + begin_anew(book);
  if (found || too_costly) end_finding(too_costly);
  return took;
}

std::int64_t GrammarBook::Grammar::begin_anew(const GrammarBook& book) {
  ByteAutomaton::State state = finding->walk.state();
  const auto in_it = std::find_if(constraints.begin(), constraints.end(),
                                  [&](const auto* one) { return one->state_ == state; });
  STEMMA_CHECK(in_it != constraints.end(), "who asks for it is in its state");
  finding.reset();
  const std::int64_t took = let_go();
  find_from((*in_it)->state_, book);
  return took;
}

// A state of which too much would have to be done allows nothing.
void GrammarBook::Grammar::end_finding(bool too_costly) {
  const ByteAutomaton::State state = finding->walk.state();
  if (too_costly) finding->words.clear();
  last_work = finding->work;
  TokenMask& mask = masks.add(state, std::move(finding->words));
  finding.reset();
  for (Constraint* const one : constraints) {
    if (one->state_ == state) one->take(mask);
  }
}

// All but where constraints are, and what they hold. REQUIRES: no finding.
std::int64_t GrammarBook::Grammar::let_go() {
  const std::int64_t took = automaton.forgetting_work();
  std::vector<ByteAutomaton::State*> states;
  states.reserve(constraints.size());
  for (Constraint* const one : constraints) states.push_back(&one->state_);
  masks.forget_states();
  automaton.keep_only(states);
  return took;
}

// Where nobody is in that state any more.
void GrammarBook::Grammar::drop_finding_of(ByteAutomaton::State state) {
  if (!finding.has_value() || finding->walk.state() != state) return;
  const bool wanted = std::any_of(constraints.begin(), constraints.end(),
                                  [&](const auto* one) { return one->state_ == state; });
  if (!wanted) finding.reset();
}

GrammarBook::GrammarBook(const Tokenizer& tokenizer, std::int64_t vocab_tokens,
                         const Limits& limits)
    : tokenizer_(tokenizer), vocab_tokens_(vocab_tokens), limits_(limits) {}

GrammarBook::~GrammarBook() {
  for (const auto& grammar : grammars_) {
    STEMMA_CHECK_EQ(grammar->users, 0);
  }
}

GrammarBook::Grammar* GrammarBook::find_or_null(const Sha256Digest& key) {
  const auto found = std::find_if(grammars_.begin(), grammars_.end(),
                                  [&](const auto& grammar) { return grammar->key == key; });
  if (found == grammars_.end()) return nullptr;
  std::rotate(found, found + 1, grammars_.end());
  return grammars_.back().get();
}

// What the writer finds is not remembered: it says where in a request a form is.
Result<std::unique_ptr<GrammarBook::Grammar>> GrammarBook::compile(const Sha256Digest& key,
                                                                   Writer write) {
  ByteGrammar grammar;
  STEMMA_ASSIGN_OR_RETURN(const ByteGrammar::Part whole, write(grammar));
  Result<ByteProgram> program = grammar.compile(whole);
  Error error = program.ok() ? too_many_ways() : program.error();
  if (program.ok()) {
    auto compiled = std::make_unique<Grammar>(key, std::move(program).value(), limits_.work);
    if (!compiled->automaton.exhausted()) return compiled;
  }
  const std::lock_guard lock(mutex_);
  refused_.emplace_back(key, error);
  if (refused_.size() > kRefusedMax) refused_.pop_front();
  return error;
}

// Compiled without the lock: others go on meanwhile, and may compile the same.
Result<OwnedConstraint> GrammarBook::open(std::string_view form, Writer write) {
  const Sha256Digest key = key_of(form);
  if (auto known = open_kept(key, std::unique_lock(mutex_))) return *std::move(known);
  STEMMA_ASSIGN_OR_RETURN(std::unique_ptr<Grammar> compiled, compile(key, write));
  std::unique_lock lock(mutex_);
  if (find_or_null(key) == nullptr) {
    count_bytes(*compiled);
    grammars_.push_back(std::move(compiled));
  }
  return *open_kept(key, std::move(lock));
}

std::optional<Result<OwnedConstraint>> GrammarBook::open_known(std::string_view form) {
  return open_kept(key_of(form), std::unique_lock(mutex_));
}

std::optional<Result<OwnedConstraint>> GrammarBook::open_kept(const Sha256Digest& key,
                                                              std::unique_lock<std::mutex> lock) {
  const auto refused = std::find_if(refused_.begin(), refused_.end(),
                                    [&](const auto& one) { return one.first == key; });
  if (refused != refused_.end()) return refused->second;
  Grammar* const grammar = find_or_null(key);
  if (grammar == nullptr) return std::nullopt;
  if (trie_ == nullptr) {
    trie_ = std::make_unique<TokenTrie>(bytes_of_tokens(tokenizer_, vocab_tokens_));
  }
  ++grammar->users;
  const Grammars gone = take_idle();
  lock.unlock();
  return OwnedConstraint(std::make_unique<Constraint>(*this, *grammar));
}

// REQUIRES: the grammar's lock, or that nobody else has it.
void GrammarBook::count_bytes(Grammar& grammar) {
  const std::size_t mask_bytes = token_words(vocab_tokens_) * sizeof(std::uint64_t);
  const auto bytes =
      static_cast<std::int64_t>(grammar.automaton.bytes() + grammar.masks.size() * mask_bytes);
  bytes_ += bytes - grammar.bytes.exchange(bytes);
}

// Those used longest ago where they are many, the largest where they have much.
GrammarBook::Grammars GrammarBook::take_idle() {
  Grammars taken;
  while (true) {
    std::int64_t idle = 0;
    std::int64_t bytes = 0;
    auto oldest = grammars_.end();
    auto largest = grammars_.end();
    for (auto one = grammars_.begin(); one != grammars_.end(); ++one) {
      if ((*one)->users > 0) continue;
      if (idle++ == 0) oldest = largest = one;
      if ((*one)->bytes > (*largest)->bytes) largest = one;
      bytes += (*one)->bytes;
    }
    const bool are_many = idle > static_cast<std::int64_t>(kIdleMax);
    const bool have_much = bytes > limits_.idle_bytes || bytes_ > limits_.bytes;
    if (idle == 0 || (!are_many && !have_much)) return taken;
    const auto goes = are_many ? oldest : largest;
    bytes_ -= (*goes)->bytes;
    taken.push_back(std::move(*goes));
    grammars_.erase(goes);
  }
}

// Those that nobody uses first, then what the largest have found. What is being found stays: it
// would have to begin anew, and bounds itself.
std::int64_t GrammarBook::bound_memory() {
  if (bytes_ <= limits_.bytes) return 0;
  Grammars gone;  // with no lock
  const std::lock_guard lock(mutex_);
  gone = take_idle();
  std::vector<Grammar*> large;
  for (const auto& grammar : grammars_) {
    if (grammar->bytes > limits_.bytes / kSmallPart) large.push_back(grammar.get());
  }
  std::sort(large.begin(), large.end(),
            [](const Grammar* a, const Grammar* b) { return a->bytes > b->bytes; });
  std::int64_t took = 0;
  for (Grammar* const grammar : large) {
    const std::unique_lock its_lock(grammar->mutex, std::try_to_lock);
    if (bytes_ <= limits_.bytes) break;
    if (!its_lock.owns_lock() || grammar->finding.has_value()) continue;
    took += grammar->let_go();
    count_bytes(*grammar);
  }
  return took;
}

void GrammarBook::enter(Grammar& grammar) {
  const std::lock_guard lock(mutex_);
  ++grammar.users;
}

void GrammarBook::leave(Grammar& grammar) {
  Grammars gone;  // with no lock
  const std::lock_guard lock(mutex_);
  --grammar.users;
  gone = take_idle();
}

std::int64_t GrammarBook::bytes() const {
  return bytes_;
}

std::size_t GrammarBook::grammars() const {
  const std::lock_guard lock(mutex_);
  return grammars_.size();
}

}  // namespace stemma
