// CostlyConstraint: a constraint that allows tokens by their rest when divided by three, and of
// which each token takes work to find out.
//
// Thread:     tests.
// Memory:     a word.
// Cost:       none: work is only counted.
// Not here:   anything that ships.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/check.h"
#include "stemma/sampling.h"

namespace stemma {

// Of the tokens below 64 those that leave a rest of 1, 2, 0, 1, ... by three. May end behind
// `least` of them, and is whole behind `most`.
class CostlyConstraint final : public OutputConstraint {
 public:
  struct Extent {
    std::int64_t least = 0;
    std::int64_t most = 0;
    std::int64_t work = 0;  // each token
  };
  explicit CostlyConstraint(Extent extent) : extent_(extent), work_left_(extent.work) {}

  static bool keeps(std::span<const TokenId> output) {
    for (std::size_t i = 0; i < output.size(); ++i) {
      if (output[i] % 3 != static_cast<TokenId>((i + 1) % 3)) return false;
    }
    return true;
  }

  std::unique_ptr<OutputConstraint> clone() const override {
    return std::make_unique<CostlyConstraint>(*this);
  }
  // One unit more than it may: what was begun.
  std::int64_t prepare(std::int64_t units) override {
    const std::int64_t took = std::min(work_left_, units + 1);
    work_left_ -= took;
    work_of_all += took;
    return took;
  }
  bool is_ready() override { return work_left_ == 0; }
  std::span<const std::uint64_t> allowed() override {
    STEMMA_CHECK(is_ready(), "nothing is left to do when a token is chosen");
    word_ = 0;
    for (std::int64_t token = 0; token < 64 && !is_whole(); ++token) {
      if (token % 3 == (tokens_ + 1) % 3) word_ |= std::uint64_t{1} << token;
    }
    return {&word_, 1};
  }
  bool may_end() override { return tokens_ >= extent_.least; }
  bool is_whole() override { return tokens_ >= extent_.most; }
  void accept(TokenId /*token*/) override {
    ++tokens_;
    work_left_ = extent_.work;
  }

  static inline std::int64_t work_of_all = 0;

 private:
  Extent extent_;
  std::int64_t tokens_ = 0;
  std::int64_t work_left_;
  std::uint64_t word_ = 0;
};

}  // namespace stemma
