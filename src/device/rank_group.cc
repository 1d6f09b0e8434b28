#include "device/rank_group.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace stemma {

namespace {

// One rank's word, of one size for all.
struct RankWord {
  std::int32_t failed = 0;
  std::int32_t code = 0;
  std::int32_t sys_errno = 0;
  std::int32_t detail_bytes = 0;
  std::array<char, 496> detail = {};
};

RankWord word_of(const Status& status) {
  RankWord word;
  if (status.ok()) return word;
  const Error& error = status.error();
  word.failed = 1;
  word.code = static_cast<std::int32_t>(error.code);
  word.sys_errno = error.sys_errno;
  const std::size_t bytes = std::min(error.detail.size(), word.detail.size());
  word.detail_bytes = static_cast<std::int32_t>(bytes);
  std::copy_n(error.detail.begin(), bytes, word.detail.begin());
  return word;
}

Error error_of(const RankWord& word, std::size_t rank) {
  const std::string detail(word.detail.data(), static_cast<std::size_t>(word.detail_bytes));
  return {static_cast<ErrorCode>(word.code),
          rank == 0 ? detail : "rank " + std::to_string(rank) + ": " + detail, word.sys_errno};
}

}  // namespace

Status agree(RankGroup& ranks, const Status& own) {
  const RankWord word = word_of(own);
  std::vector<RankWord> words(static_cast<std::size_t>(ranks.ranks()));
  STEMMA_RETURN_IF_ERROR(ranks.all_gather(std::as_bytes(std::span(&word, 1)),
                                          std::as_writable_bytes(std::span(words))));
  for (std::size_t rank = 0; rank < words.size(); ++rank) {
    if (words[rank].failed != 0) return error_of(words[rank], rank);
  }
  return {};
}

}  // namespace stemma
