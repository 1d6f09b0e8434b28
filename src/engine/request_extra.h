// RequestExtra: what the engine knows of a request beside what the scheduler does.
//
// Thread:     engine thread only.
// Memory:     one a place of the scheduler's slab; its lists come with the request.
// Cost:       none.
// Not here:   what differs between the steps of its life (sched/request).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "model/adapter_book.h"
#include "model/sampler.h"
#include "stemma/ids.h"
#include "stemma/request.h"
#include "stemma/sampling.h"

namespace stemma {

struct RequestExtra {
  SamplingParams sampling;
  std::vector<TokenId> distinct_prompt;   // where a repetition penalty is of it
  std::vector<TokenCount> output_counts;  // where there are penalties; room for all that can come
  std::vector<TokenId> stop_tokens;
  OwnedConstraint constraint;  // in the state behind the request's output; none when it has ended
  std::int64_t min_tokens = 0;
  std::optional<std::int64_t> logprobs;
  // Read only of a request that scores its prompt.
  std::int64_t prompt_logprobs = 0;
  std::int64_t prompt_logprobs_from = 1;
  bool has_copies = false;  // it is one of them
  bool is_copy = false;     // and not the first, whose prompt is counted
  AdapterLease adapter;     // as long as a step may compute it
  std::vector<SiblingNamespace> siblings;
  NamespaceDigest namespace_digest;           // with its adapter
  std::optional<SharedPrefix> shared_prefix;  // likewise
  std::int64_t ghost_space = 0;               // of its namespace
  std::int64_t submitted_us = 0;
  std::int64_t started_us = -1;
  std::int64_t first_token_us = -1;
  PrefixStop stop = PrefixStop::kCold;
  std::int64_t evicted_ago_us = 0;
  std::string_view differing_field;

  // The request has ended: what it holds goes, and the memory of its lists, which may be long.
  void let_go() {
    constraint = {};
    adapter = {};
    distinct_prompt = std::vector<TokenId>();
    output_counts = std::vector<TokenCount>();
    stop_tokens = std::vector<TokenId>();
    siblings = std::vector<SiblingNamespace>();
    sampling = SamplingParams();
  }
};

}  // namespace stemma
