// Rope: the angles by which rotary position embedding turns the pairs of a head.
//
// Angles are computed in double from the position alone, each time they are needed, so a position
// has the same bits in every batch (I13) and no table of the whole context is kept. (Su et al.
// 2021, RoFormer, eq. 34; the scalings as the Hugging Face configurations of Llama define them;
// YaRN: Peng et al. 2023, arXiv 2309.00071, with the ramp's ends at whole pairs, as published
// models compute it.)
//
// Thread:     immutable; from any thread.
// Memory:     head_dim / 2 doubles.
// Cost:       one cosine and one sine a pair, about 30 ns.
// Not here:   the rotation itself (device/row_ops).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/config.h"

namespace stemma {

// What YaRN multiplies turned vectors by, and what the scores of latent attention: 1 without YaRN.
double vector_length(const RopeConfig& config);
double score_factor(const RopeConfig& config);

// All of it, in words that differ where a bit of a setting does.
std::string rope_text(const RopeConfig& config);

class Rope {
 public:
  // REQUIRES: head_dim is even.
  Rope(const RopeConfig& config, std::int64_t head_dim);

  // Radians that pair i turns per position, after scaling.   [head_dim / 2]
  std::span<const double> frequencies() const noexcept { return frequencies_; }

  // The cosine and sine of every pair at `position`, times the factor of turned vectors.
  // REQUIRES: position >= 0; both have head_dim / 2 values.
  void angles(std::int64_t position, std::span<float> cosines, std::span<float> sines) const;

 private:
  std::vector<double> frequencies_;
  double vector_length_;
};

}  // namespace stemma
