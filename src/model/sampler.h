// Sampler: one token from one row of logits.
//
// Thread:     one thread a sampler; samplers share nothing.
// Memory:     scratch of 21 bytes a vocabulary entry and 8 KiB, taken at construction; sampling
//             allocates nothing.
// Cost:       O(vocab), plus O(n log n) for the n tokens that have to be ranked: of top-k's k all,
//             up to 1,024; of more, and of top-p, those as likely as the last one that is left, and
//             as the one that is drawn, to a sixteenth of an octave. Penalties: what the output has
//             of each token once, and of a repetition penalty also what the prompt has, or all of
//             both where nobody has that ready.
// Not here:   where logits come from (transformer), stop conditions (stop_strings.h), a request's
//             parameters (stemma/sampling.h). Invariants: I13.
//
// The token depends on the logits' bits, the parameters, the request's own tokens and nothing else:
// sums run in a fixed order, ties go to the lower id, and the random number of an output position
// is a function of the seed and the position. A request that is preempted and resumed, or that
// shares a batch, draws the same tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "stemma/ids.h"
#include "stemma/runner.h"
#include "stemma/sampling.h"

namespace stemma {

// What a top_p of 0, which asks for the likeliest token, is read as: it leaves that token alone.
inline constexpr float kLeastTopP = 1e-6F;

// How often a token of an output is there.
struct TokenCount {
  TokenId token = -1;
  std::int32_t count = 0;
};

// `token` came once more. A look at each of `counts`, which has every token once.
void count_token(TokenId token, std::vector<TokenCount>& counts);

// A request's tokens so far: its prompt as it was submitted, then its output. What was preempted
// and recomputed is still output.
struct SamplingHistory {
  std::span<const TokenId> tokens = {};
  std::int64_t prompt_tokens = 0;
  // Each token of the prompt once, where somebody has them ready: all of a long prompt is then not
  // looked at for each output token. Empty: nobody has.
  std::span<const TokenId> distinct_prompt = {};
  // The same of the output, where somebody counts it as it comes.
  std::span<const TokenCount> output_counts = {};

  // The number of the output token that is sampled next.
  std::int64_t output_position() const {
    return static_cast<std::int64_t>(tokens.size()) - prompt_tokens;
  }
};

// What may be given beside what the parameters say.
struct TokenRules {
  std::span<const TokenId> forbidden = {};
  OutputConstraint* constraint_or_null = nullptr;
  // Are given where the constraint may end, and nowhere else, whatever it allows.
  std::span<const TokenId> ends = {};
};

// The random number in [0, 1) of an output position.
double sampling_unit(std::uint64_t seed, std::int64_t output_position);

// What is left of `params` where there is neither bias nor penalty, for the output of that number.
// REQUIRES: it has a seed if the temperature is not 0.
TokenChoice choice_of(const SamplingParams& params, std::int64_t output_position);

class Sampler {
 public:
  // REQUIRES: vocab_tokens >= 1.
  explicit Sampler(std::int64_t vocab_tokens);

  // The token; nothing if no logit is a number above minus infinity, which a sound model never
  // gives, or what may be given has no such logit: the caller fails the request. NaN counts as
  // minus infinity. Where there is plus infinity, the lowest such id is certain. REQUIRES:
  // logits.size()
  // == vocab_tokens; params are valid and have a seed if the temperature is not 0; 0 <=
  // history.prompt_tokens <= history.tokens.size(); its tokens and those of `rules` are in the
  // vocabulary.
  std::optional<TokenId> try_sample(std::span<const float> logits, const SamplingParams& params,
                                    const SamplingHistory& history, const TokenRules& rules = {});
  // The same without bias and penalties. REQUIRES: as try_sample.
  std::optional<TokenId> try_choose(std::span<const float> logits, const TokenChoice& choice);

 private:
  // The logits with bias and penalties, and without what may not be given: `logits` itself where
  // there is none of these, else logits_.
  std::span<const float> adjusted(std::span<const float> logits, const SamplingParams& params,
                                  const SamplingHistory& history, const TokenRules& rules);
  // Fills logits_ with those of `allowed`, of all where it is empty.
  void take_allowed(std::span<const float> logits, std::span<const TokenId> allowed);
  void keep_to(OutputConstraint& constraint, std::span<const TokenId> ends);
  void penalize(const SamplingParams& params, const SamplingHistory& history);
  void penalize_once(const SamplingParams& params, TokenId token);
  // Fills weights_ with exp((logit - max) / temperature): the most likely token has 1.
  void weigh(std::span<const float> logits, TokenId top, float temperature);
  double sum_runs(double min_weight);
  TokenId draw_unordered(double min_weight, double unit);
  TokenId draw_of_few(const TokenChoice& choice);
  TokenId draw_of_many(const TokenChoice& choice);
  // The first of `ranked` that adds to `reached` so that it exceeds `target`; else the last.
  TokenId first_beyond(double target, double reached, std::span<const TokenId> ranked) const;
  // The k most likely tokens, in no order.
  std::span<TokenId> gather_top_k(std::int64_t top_k);
  // Tokens of which the most likely are left, until they have the weight that is wanted.
  struct Candidates {
    std::span<TokenId> tokens;
    double wanted;
  };
  Candidates gather_for_top_p(const TokenChoice& choice);
  Candidates gather_for_top_k(const TokenChoice& choice);
  std::span<TokenId> gather(double min_weight);
  double weight_of(TokenId token) const { return weights_[static_cast<std::size_t>(token)]; }
  std::size_t bin_at(TokenId token) const;
  // Those of a bin, the most likely first; the others are behind them.
  std::span<TokenId> rank_bin(std::size_t bin, std::span<TokenId> candidates) const;

  std::vector<float> logits_;    // [vocab], after bias and penalties
  std::vector<double> weights_;  // [vocab]
  static constexpr std::size_t kRunTokens = 512;
  std::vector<double> run_sums_;      // of weights, a run of tokens each
  std::vector<double> bin_sums_;      // of weights, by how great they are: see bin_of
  std::vector<TokenId> candidates_;   // [vocab]
  std::vector<std::int32_t> counts_;  // [vocab], of output tokens; all 0 between calls
  std::vector<std::uint8_t> seen_;    // [vocab]; all 0 between calls
};

}  // namespace stemma
