// GrammarBook: grammars over the tokens of one vocabulary, compiled once for all requests that ask
// for the same, and the constraints that keep an output to one.
//
// Thread:     open() and the constraints it gives: any; a constraint belongs to one thread at a
//             time. What constraints of one grammar have found is shared, behind a lock.
// Memory:     the vocabulary's bytes as a tree, with the first grammar; a grammar's states and the
//             tokens that each allows, one list for all who are in a state: some 20 MiB with 128k
//             tokens, and 40 MiB more where states are costly. Limits::bytes in all, and what is
//             being found; Limits::idle_bytes of it in kIdleMax grammars that nobody uses.
// Cost:       open(): the grammar, if it is a new one, and 40 ms with the first one of 128k tokens.
//             A token: a look-up where an output was in this state before; else
//             TokenTrie::find_allowed, which prepare() does in portions. A grammar that is refused
//             for what it costs is refused at once when it comes again. What was let go, because it
//             was much, is found again when it is needed; letting go counts as work too.
// Not here:   grammars (byte_grammar, json_schema), who samples (Engine).
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "base/function_ref.h"
#include "grammar/byte_grammar.h"
#include "grammar/token_trie.h"
#include "model/tokenizer.h"
#include "stemma/result.h"
#include "stemma/sampling.h"

namespace stemma {

class GrammarBook {
 public:
  // Grammars that are kept for the next who asks.
  static constexpr std::size_t kIdleMax = 16;
  // Refusals that are kept for the same.
  static constexpr std::size_t kRefusedMax = 64;

  // What may be done to know which tokens may come next (ByteAutomaton::allow_work), a quarter of a
  // second at most; schemas of JSON need a tenth of it where they need much. Behind a text where
  // more is needed, for it may be read in very many ways, nothing is allowed; nor where a single
  // byte needs more than ByteAutomaton::kByteWorkMax. Both follow from the grammar and the text,
  // not from what others have found.
  static constexpr std::int64_t kWorkMax = 2'000'000;

  struct Limits {
    std::int64_t work = kWorkMax;
    // Of all grammars: those with most let go of what they have found.
    std::int64_t bytes = std::int64_t{128} << 20;
    // Of those that nobody uses.
    std::int64_t idle_bytes = std::int64_t{64} << 20;
  };

  // `tokenizer` must outlive this; this must outlive the constraints. The model has so many logits.
  GrammarBook(const Tokenizer& tokenizer, std::int64_t vocab_tokens)
      : GrammarBook(tokenizer, vocab_tokens, Limits()) {}
  GrammarBook(const Tokenizer& tokenizer, std::int64_t vocab_tokens, const Limits& limits);
  ~GrammarBook();
  GrammarBook(const GrammarBook&) = delete;
  GrammarBook& operator=(const GrammarBook&) = delete;

  // Adds parts to a grammar and gives the one that outputs are to be.
  using Writer = FunctionRef<Result<ByteGrammar::Part>(ByteGrammar&)>;

  // A constraint to what `write` writes, or what it did when it was called for this form before,
  // of which only a digest is kept. Errors are those of `write` and ByteGrammar::compile; kTooLarge
  // for a grammar that needs more work than may be done before its first byte.
  Result<OwnedConstraint> open(std::string_view form, Writer write);
  // The same where nothing has to be compiled for it, which may take a second; else nothing.
  std::optional<Result<OwnedConstraint>> open_known(std::string_view form);

  // Of which something is compiled; what they have allocated.
  std::size_t grammars() const;
  std::int64_t bytes() const;

 private:
  struct Grammar;
  class Constraint;

  Grammar* find_or_null(const Sha256Digest& key);
  Result<std::unique_ptr<Grammar>> compile(const Sha256Digest& key, Writer write);
  // What is known of it, if anything is. REQUIRES: `lock` is this mutex_'s.
  std::optional<Result<OwnedConstraint>> open_kept(const Sha256Digest& key,
                                                   std::unique_lock<std::mutex> lock);
  using Grammars = std::vector<std::unique_ptr<Grammar>>;
  // What goes, for who destroys it without the lock.
  Grammars take_idle();
  void count_bytes(Grammar& grammar);
  // Returns how much work it was. REQUIRES: the caller has no lock.
  std::int64_t bound_memory();
  void enter(Grammar& grammar);
  void leave(Grammar& grammar);

  const Tokenizer& tokenizer_;
  const std::int64_t vocab_tokens_;
  const Limits limits_;
  mutable std::mutex mutex_;               // of what follows
  std::unique_ptr<const TokenTrie> trie_;  // made once: constraints read it without the lock
  Grammars grammars_;                      // those used last at the end
  // What compiling forms gave, latest last: whatever their writers would say.
  std::deque<std::pair<Sha256Digest, Error>> refused_;
  std::atomic<std::int64_t> bytes_ = 0;
};

}  // namespace stemma
