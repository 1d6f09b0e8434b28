// SparseDial: how many of a row's tokens sparse attention attends to: a function of the row's
// position alone.
//
// Thread:     a value.
// Memory:     none.
// Cost:       none.
// Not here:   which tokens (sparse_kernel), the flags (cli/).
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "base/math.h"
#include "stemma/result.h"

namespace stemma {

// Rows that see at most dense_tokens tokens (their own included) attend to all of them. Beyond,
// they attend to kept_tokens, or, where kept_of is not 0, to kept_tokens of every kept_of tokens
// seen, rounded up. 1 of 1 is the dense end: every row attends to everything.
struct SparseDial {
  std::int64_t dense_tokens = 0;
  std::int64_t kept_tokens = 1;
  std::int64_t kept_of = 1;

  // A row that sees at most so many tokens attends to all of them.
  std::int64_t dense_up_to() const noexcept {
    if (kept_of == 0) return std::max(dense_tokens, kept_tokens);
    return kept_tokens == kept_of ? std::numeric_limits<std::int64_t>::max() : dense_tokens;
  }

  // Tokens that a row attends to that sees `seen_tokens`.   1 … seen_tokens   REQUIRES: validated;
  // seen_tokens is at least 1 and below 2^31.
  std::int64_t tokens_kept(std::int64_t seen_tokens) const noexcept {
    if (seen_tokens <= dense_up_to()) return seen_tokens;
    return kept_of == 0 ? kept_tokens : ceil_div(seen_tokens * kept_tokens, kept_of);
  }

  friend bool operator==(const SparseDial&, const SparseDial&) = default;
};

// kInvalidArgument naming the field, unless dense_tokens is at least 0, kept_tokens at least 1, and
// kept_of 0 or kept_tokens … 65536.
Status validate(const SparseDial& dial);

// Of kept_tokens and kept_of: "256" or "1/8", both ways. nullopt for anything else.
std::string kept_text(const SparseDial& dial);
std::optional<SparseDial> try_parse_kept(std::string_view text);

}  // namespace stemma
