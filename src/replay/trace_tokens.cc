#include "replay/trace_tokens.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace stemma {

std::vector<TokenId> make_trace_prompt(const TraceRequest& request, std::int64_t page_tokens,
                                       std::int64_t index) {
  STEMMA_CHECK_GE(page_tokens, kTracePageTokensMin);
  std::vector<TokenId> tokens;
  tokens.reserve(static_cast<std::size_t>(request.input_tokens + request.output_tokens));
  for (const std::int64_t hash : request.page_hashes) {
    std::int64_t left = request.input_tokens - static_cast<std::int64_t>(tokens.size());
    left = std::min(left, page_tokens);
    if (left > 0) tokens.push_back(static_cast<TokenId>(hash & 0xFFFFFFFF));
    if (left > 1) tokens.push_back(static_cast<TokenId>(hash >> 32));
    if (left > 2) tokens.resize(tokens.size() + static_cast<std::size_t>(left - 2), TokenId{0});
  }
  tokens.resize(static_cast<std::size_t>(request.input_tokens), own_token(index));
  return tokens;
}

TokenId own_token(std::int64_t index) {
  return static_cast<TokenId>(-1 - index % std::numeric_limits<TokenId>::max());
}

}  // namespace stemma
