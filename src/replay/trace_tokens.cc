#include "replay/trace_tokens.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace stemma {

namespace {

// The token at `place` of the page of that hash.
TokenId page_token(std::int64_t hash, std::int64_t place) {
  if (place == 0) return static_cast<TokenId>(hash & 0xFFFFFFFF);
  return place == 1 ? static_cast<TokenId>(hash >> 32) : 0;
}

// A token of the request at place `index` of the trace alone: below zero, as no page's third is.
TokenId own_token(std::int64_t index) {
  return static_cast<TokenId>(-1 - index % std::numeric_limits<TokenId>::max());
}

}  // namespace

std::vector<TokenId> make_trace_prompt(const TraceRequest& request, std::int64_t page_tokens,
                                       std::int64_t index) {
  STEMMA_CHECK_GE(page_tokens, kTracePageTokensMin);
  std::vector<TokenId> tokens;
  tokens.reserve(static_cast<std::size_t>(request.input_tokens + request.output_tokens));
  for (const auto* hashes : {&request.page_hashes, &request.output_page_hashes}) {
    for (const std::int64_t hash : *hashes) {
      std::int64_t left = request.input_tokens - static_cast<std::int64_t>(tokens.size());
      left = std::min(left, page_tokens);
      for (std::int64_t place = 0; place < left; ++place) tokens.push_back(page_token(hash, place));
    }
  }
  tokens.resize(static_cast<std::size_t>(request.input_tokens), own_token(index));
  return tokens;
}

TokenId TraceOutputs::token_at(std::int64_t position, std::int64_t page_tokens) const {
  const std::int64_t page = position / page_tokens - lookup_pages;
  if (page < 0 || page >= static_cast<std::int64_t>(output_page_hashes.size())) {
    return own_token(index);
  }
  return page_token(output_page_hashes[static_cast<std::size_t>(page)], position % page_tokens);
}

}  // namespace stemma
