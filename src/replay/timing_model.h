// TimingModel: how long a step of a model takes, in the Runner's place.
//
// A step costs a fixed part (every weight is read once), a part for each prompt token, a part for
// each prompt token and token of its context (attention), a part for each request that decodes, and
// a part for each token of their contexts (keys and values are read once). Parts are added: where a
// real machine overlaps arithmetic and memory this says too much, never more than twice.
//
// Presets:
//   llama-8b-h200     derived from data sheets: Llama 3.1 8B in bf16 on one H200, at half of its
//                     989 TFLOP/s (dense bf16) and three quarters of its 4.8 TB/s
//   llama-70b-8xh200  the same for Llama 3.1 70B on eight, its matrices and heads divided among
//                     them, the time to exchange sums left out
//   scribe-3m-cpu     measured: models/scribe-3m with `stemma generate --cache none` on one thread
//                     of a 2.6 GHz x86 virtual machine with AVX-512; the least of three runs each
//                     of prompts of 64 to 12,000 tokens and batches of 1 to 16. Within 4% of single
//                     prompts from 512 tokens on and of their outputs, within 15% of batches; it
//                     leaves out some 2 ms that any first step took
//
// Thread:     values.
// Memory:     a few words.
// Cost:       a step's cost is five products.
// Not here:   which requests share a step (sched/), the clock (timed_replay).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "stemma/result.h"

namespace stemma {

// What one step computes. Prompts are all that is not the next token of a running request.
struct StepWork {
  std::int64_t prompt_tokens = 0;
  std::int64_t attention_pairs = 0;  // of a prompt token and a token it attends to, itself included
  std::int64_t decode_requests = 0;
  std::int64_t decode_context_tokens = 0;  // of all of them

  // Prompt tokens at positions `first` … `end`-1 of one request. REQUIRES: 0 <= first <= end.
  void add_prompt(std::int64_t first, std::int64_t end) noexcept;
  // The next token of a request whose context, that token included, is so long.
  void add_decode(std::int64_t context_tokens) noexcept;
};

// Milliseconds of each part, and how large a token is in the cache.
struct TimingModel {
  double step_ms = 0;
  double prompt_token_ms = 0;
  double attention_pair_ms = 0;
  double decode_request_ms = 0;
  double decode_context_token_ms = 0;
  double kv_token_bytes = 0;  // keys and values of a token: what tiers move; 0: not known

  // A whole step.
  double step_total_ms(const StepWork& work) const noexcept;
  // Without the step's fixed part: what leaving `work` out of a step saves.
  double added_ms(const StepWork& work) const noexcept;
};

// "llama-8b-h200, llama-70b-8xh200, scribe-3m-cpu".
std::string known_timing_presets();

// A preset's name, or a file that ends in ".json": an object of the members of TimingModel, those
// left out being 0. kNotFound for another name, listing the presets; an error in a file names file
// and field. Values are finite and not negative, and a step takes some time.
Result<TimingModel> read_timing_model(const std::string& name_or_file);

}  // namespace stemma
