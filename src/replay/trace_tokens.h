// Trace tokens: the tokens that stand for a trace's prompt and output, one for one.
//
// Of a trace only hashes of pages are known. A page's tokens are its hash in two halves and then
// zeros, so that pages are equal exactly if their hashes are; a token that no hash covers belongs
// to its request alone, as do all output tokens.
//
// Thread:     pure functions.
// Memory:     4 bytes a token of prompt and output.
// Cost:       a write a token.
// Not here:   reading traces (trace_reader).
#pragma once

#include <cstdint>
#include <vector>

#include "replay/trace_reader.h"
#include "stemma/ids.h"

namespace stemma {

// Fewer tokens cannot hold a hash and differ from a request's own.
inline constexpr std::int64_t kTracePageTokensMin = 3;

// The tokens of the prompt, with room for the output behind them. Hashes beyond the input's end
// have no tokens; the last page may be cut short. REQUIRES: page_tokens >= kTracePageTokensMin.
std::vector<TokenId> make_trace_prompt(const TraceRequest& request, std::int64_t page_tokens,
                                       std::int64_t index);

// A token of the request at place `index` of the trace alone: below zero, as no page's third is.
TokenId own_token(std::int64_t index);

}  // namespace stemma
