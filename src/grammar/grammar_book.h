// GrammarBook: grammars over the tokens of one vocabulary, compiled once for all requests that ask
// for the same, and the constraints that keep an output to one.
//
// Thread:     open() and the constraints it gives: any; a constraint belongs to one thread at a
//             time. What constraints of one grammar have found is shared, behind a lock.
// Memory:     the vocabulary's bytes as a tree, with the first grammar; a grammar's states and the
//             tokens that each allows, one list for all who are in a state: some 20 MiB with 128k
//             tokens, and where states are costly what is found at one time; kIdleMax grammars that
//             nobody uses.
// Cost:       open(): the grammar, if it is a new one, and 40 ms with the first one of 128k tokens.
//             A token: a look-up where an output was in this state before; else
//             TokenTrie::find_allowed, which prepare() does in portions.
// Not here:   grammars (byte_grammar, json_schema), who samples (Engine).
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

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

  // What may be done to know which tokens may come next (ByteAutomaton::allow_work), a quarter of a
  // second at most; schemas of JSON need a tenth of it where they need much. A grammar that needs
  // more, for a text may be read in very many ways, allows nothing any more; nor does one of which
  // a single byte needs more than ByteAutomaton::kByteWorkMax.
  static constexpr std::int64_t kWorkMax = 2'000'000;

  // `tokenizer` must outlive this; this must outlive the constraints. The model has so many logits.
  GrammarBook(const Tokenizer& tokenizer, std::int64_t vocab_tokens,
              std::int64_t work_max = kWorkMax);
  ~GrammarBook();
  GrammarBook(const GrammarBook&) = delete;
  GrammarBook& operator=(const GrammarBook&) = delete;

  // Adds parts to a grammar and gives the one that outputs are to be.
  using Writer = FunctionRef<Result<ByteGrammar::Part>(ByteGrammar&)>;

  // A constraint to what `write` writes, or what it did when it was called with this key before.
  // Errors are those of `write` and ByteGrammar::compile; kTooLarge for a grammar that needed more
  // work than may be done.
  Result<OwnedConstraint> open(const std::string& key, Writer write);

  // Of which something is compiled.
  std::size_t grammars() const;

 private:
  struct Grammar;
  class Constraint;

  Grammar* find_or_null(const std::string& key);
  void drop_idle();
  void enter(Grammar& grammar);
  void leave(Grammar& grammar);

  const Tokenizer& tokenizer_;
  const std::int64_t vocab_tokens_;
  const std::int64_t work_max_;
  mutable std::mutex mutex_;               // of what follows
  std::unique_ptr<const TokenTrie> trie_;  // made once: constraints read it without the lock
  std::vector<std::unique_ptr<Grammar>> grammars_;  // those used last at the end
};

}  // namespace stemma
