// SamplingParams: how a request wants its tokens chosen from the model's logits, and
// OutputConstraint, what its output has to keep to.
//
// Thread:     a value; a constraint is for one thread at a time.
// Memory:     logit_bias and allowed_tokens, as the caller gives them.
// Cost:       none by itself; what each field makes a token cost: model/sampler.h.
// Not here:   stop conditions (engine.h), the names of these fields in any wire format. Invariants:
//             I13: the same parameters and seed give the same tokens, whatever was cached and
//             whoever shared the batch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "stemma/ids.h"
#include "stemma/result.h"

namespace stemma {

// A token and the natural logarithm of its probability by the model's own logits: before bias,
// penalties, temperature and what is cut off.
struct TokenLogprob {
  TokenId token = -1;
  float logprob = 0;
  std::int32_t rank = 0;  // 1: the likeliest (ties: lower id)
};

// Applied in this order: allowed_tokens, an output's constraint, logit_bias, the three penalties,
// temperature, top_k, top_p (of what top_k left), min_p.
struct SamplingParams {
  float temperature = 0;   // 0: the most likely token; else logits are divided by it
  std::int64_t top_k = 0;  // only the k most likely; 0: all
  float top_p = 1;         // only the fewest most likely that together have this probability
  float min_p = 0;  // only those with at least this share of the most likely one's probability
  float repetition_penalty = 1;  // > 1 makes every token of the prompt and the output less likely
  float presence_penalty = 0;    // subtracted once from each token of the output
  float frequency_penalty = 0;   // subtracted once an occurrence in the output
  std::optional<std::uint64_t> seed = {};                  // whoever admits a request gives it one
  std::vector<std::pair<TokenId, float>> logit_bias = {};  // added to these tokens' logits
  std::vector<TokenId> allowed_tokens = {};                // only these; empty: all

  bool has_penalties() const {
    return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0;
  }
  // Whether a token is chosen from other logits than the model's.
  bool changes_logits() const {
    return has_penalties() || !logit_bias.empty() || !allowed_tokens.empty();
  }

  // Whether each field has a value in its range; the error names the field.
  Status validate(std::int64_t vocab_tokens) const;
};

// What one output has to keep to, token by token: a form of text, for example. It is asked before
// each token and told of it.
class OutputConstraint {
 public:
  virtual ~OutputConstraint() = default;
  // Another one in the same state. Any thread.
  virtual std::unique_ptr<OutputConstraint> clone() const = 0;

  // Work towards allowed() and accept(), which may be much, in portions: so many units at most, of
  // some 125 ns, and what was begun with them. Returns how many it took. What is allowed does not
  // depend on the portions.
  virtual std::int64_t prepare(std::int64_t /*units*/) { return 0; }
  // Whether that is done, until it accepts a token: else they do it all when they are called. Where
  // what constraints share had to be let go meanwhile, accept() does some again, and later portions
  // are less.
  virtual bool is_ready() { return true; }

  // Which tokens may come now: token t is bit t % 64 of word t / 64. Words that are missing allow
  // none. Valid until the next call. It depends on the tokens that were accepted, and nothing else.
  virtual std::span<const std::uint64_t> allowed() = 0;
  // Whether the output may be all; whether nothing can follow.
  virtual bool may_end() = 0;
  virtual bool is_whole() = 0;
  // REQUIRES: allowed() has it.
  virtual void accept(TokenId token) = 0;
};

// A constraint, or none, that is copied as a value.
class OwnedConstraint {
 public:
  OwnedConstraint() = default;
  OwnedConstraint(std::unique_ptr<OutputConstraint> constraint)  // NOLINT: implicit on purpose
      : constraint_(std::move(constraint)) {}
  OwnedConstraint(const OwnedConstraint& other) : constraint_(other.cloned()) {}
  OwnedConstraint& operator=(const OwnedConstraint& other) {
    if (this != &other) constraint_ = other.cloned();
    return *this;
  }
  OwnedConstraint(OwnedConstraint&&) noexcept = default;
  OwnedConstraint& operator=(OwnedConstraint&&) noexcept = default;
  ~OwnedConstraint() = default;

  OutputConstraint* get() const noexcept { return constraint_.get(); }

 private:
  std::unique_ptr<OutputConstraint> cloned() const {
    return constraint_ == nullptr ? nullptr : constraint_->clone();
  }

  std::unique_ptr<OutputConstraint> constraint_;
};

}  // namespace stemma
