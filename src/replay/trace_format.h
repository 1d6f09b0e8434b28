// TraceFormat: the formats of traces by name, and what each of them leaves open.
//
// One JSON object a line (kv-events: or an array):
//   mooncake      (Mooncake, FAST'25)  `timestamp` (ms), `input_length` and `output_length`
//                 (tokens), `hash_ids`: one id for each 512 tokens of the input, the last ones
//                 possibly fewer. Equal ids mean equal prefixes up to and including that piece.
//   qwen-bailian  (Alibaba, anonymised usage traces of Bailian)  the same fields, `timestamp` in
//                 seconds and 16 tokens an id, which says what these 16 are, whatever is before
//                 them: pages are told apart by all ids up to theirs. What else a line holds is not
//                 read.
//   block-hash    `ts`, `il`, `ol`, `bh`: the same four, of which `bh` holds integers of 64 bits,
//                 signed or not, or texts. No published description says how many tokens a hash
//                 stands for, so page_tokens is wanted, nor the unit of `ts`: seconds are taken, as
//                 in servers' own `ts`.
//   prompts       full text: `input`, `output` (may be absent), `timestamp` in microseconds, as in
//                 LMCache's agent traces (prompts_parser).
//   kv-events     what vLLM and SGLang publish about their caches (kv_events_parser).
//   capture       Stemma's own (capture_writer).
//
// Thread:     pure functions.
// Memory:     a table.
// Cost:       one comparison a format.
// Not here:   reading (trace_parser and one file a family), files (trace_reader).
#pragma once

#include <cstdint>
#include <string_view>

#include "stemma/result.h"

namespace stemma {

class Tokenizer;

enum class TraceFamily : std::uint8_t { kHashIds, kPrompts, kKvEvents, kCapture };

struct TraceFormat {
  std::string_view name;
  TraceFamily family = TraceFamily::kHashIds;
  // Of one page: that an id stands for, or that text is cut into. 0: not known from the name.
  std::int64_t page_tokens = 0;
  double ms_per_time_unit = 1;
  bool short_names = false;     // ts, il, ol, bh
  bool ids_of_prefixes = true;  // else of a page's own tokens
};

// How a trace is read.
struct TraceOptions {
  TraceFormat format = {};
  std::int64_t page_tokens = 0;  // 0: the format's own
  // Of prompts: a page is page_tokens of its tokens (16 unless said) and not 64 characters. Must
  // outlive the reader.
  const Tokenizer* tokenizer_or_null = nullptr;
  bool skip_bad = false;  // wrong lines are counted and left out
  // 1: time does not go back in a file. More: a merge keeps so many requests of each file at hand
  // and gives the earliest first, for files that were written as requests ended.
  std::int64_t reorder_requests = 1;
};

// kNotFound for any other name, listing the known ones.
Result<TraceFormat> find_trace_format(std::string_view name);

// kInvalidArgument naming the flag: page_tokens is wanted where the format does not know it, and
// refused where the file says it; only prompts are tokenised.
Status check_trace_options(const TraceOptions& options);

}  // namespace stemma
