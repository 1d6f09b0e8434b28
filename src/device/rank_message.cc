#include "device/rank_message.h"

#include <cstddef>

namespace stemma {

namespace {

struct Head {
  RankMessage message;
  std::int64_t words = 0;
};

}  // namespace

Status tell(RankGroup& ranks, const RankMessage& message, std::span<std::int64_t> words) {
  Head head = {message, static_cast<std::int64_t>(words.size())};
  STEMMA_RETURN_IF_ERROR(ranks.broadcast(std::as_writable_bytes(std::span(&head, 1))));
  return words.empty() ? Status() : ranks.broadcast(std::as_writable_bytes(words));
}

Result<RankMessage> hear(RankGroup& ranks, std::vector<std::int64_t>& words) {
  Head head;
  STEMMA_RETURN_IF_ERROR(ranks.broadcast(std::as_writable_bytes(std::span(&head, 1))));
  words.resize(static_cast<std::size_t>(head.words));
  if (head.words > 0) {
    STEMMA_RETURN_IF_ERROR(ranks.broadcast(std::as_writable_bytes(std::span(words))));
  }
  return head.message;
}

}  // namespace stemma
