// LatentConfig: the sizes of multi-head latent attention, as a DeepSeek config.json says them.
//
// Thread:     values and pure functions.
// Memory:     none.
// Cost:       a parse at start-up.
// Not here:   the attention (latent_attention), the rest of config.json (config).
#pragma once

#include <cstdint>

namespace stemma {

class JsonFields;

// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): K and V of all heads are products of
// one latent row a token; a part of q and k beside it carries the position.
struct LatentConfig {
  std::int64_t rank = 0;  // columns of the latent row; 0: the model has ordinary attention
  std::int64_t query_rank =
      0;                       // q is a product of a row of as many columns; 0: of the hidden state
  std::int64_t plain_dim = 0;  // of a head of q and k: the part without a position
  std::int64_t rope_dim = 0;   // and the part that is turned to its position; even
  std::int64_t value_dim = 0;  // of a head of v

  std::int64_t query_head_dim() const noexcept { return plain_dim + rope_dim; }
  // What the pool keeps of a token: its latent row, then the turned part of k.
  std::int64_t row_dim() const noexcept { return rank + rope_dim; }

  friend bool operator==(const LatentConfig&, const LatentConfig&) = default;
};

// What the norms of the latent row and of q's low row add below their root: in DeepSeek's modeling
// files and in Hugging Face's they are built with their class's own default, whatever the file's
// rms_norm_eps is, which the other norms have.
inline constexpr double kLatentNormEpsilon = 1e-6;

// Reads the sizes; what is missing or wrong is remembered in `fields`.
LatentConfig read_latent(JsonFields& fields);

}  // namespace stemma
