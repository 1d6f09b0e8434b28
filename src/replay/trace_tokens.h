// Trace tokens: the tokens that stand for a trace's prompt and output, one for one.
//
// Of a trace only hashes of pages are known. A page's tokens are its hash in two halves and then
// zeros, so that pages are equal exactly if their hashes are; a token that no hash covers belongs
// to its request alone. Output tokens have hashes only where the trace knows what an output left in
// the cache (captures); a prompt's tokens behind the pages that were looked up are then those of
// the page that the output went on with.
//
// Thread:     pure functions.
// Memory:     4 bytes a token of prompt and output.
// Cost:       a write a token.
// Not here:   reading traces (trace_reader).
#pragma once

#include <cstdint>
#include <vector>

#include "replay/trace_request.h"
#include "stemma/ids.h"

namespace stemma {

// Fewer tokens cannot hold a hash and differ from a request's own.
inline constexpr std::int64_t kTracePageTokensMin = 3;

// The tokens of the prompt, with room for the output behind them. Hashes beyond the input's end
// have no tokens; the last page may be cut short. REQUIRES: page_tokens >= kTracePageTokensMin.
std::vector<TokenId> make_trace_prompt(const TraceRequest& request, std::int64_t page_tokens,
                                       std::int64_t index);

// What stands for the outputs of one request.
struct TraceOutputs {
  std::int64_t index = 0;         // the request's place in the trace
  std::int64_t lookup_pages = 0;  // pages before output_page_hashes
  std::vector<std::int64_t> output_page_hashes;

  // The output token at a position, counted from the prompt's begin.
  TokenId token_at(std::int64_t position, std::int64_t page_tokens) const;
};

}  // namespace stemma
