// HashIdsParser: traces that give a request's times, lengths and one id a page: mooncake,
// qwen-bailian and block-hash (trace_format).
//
// Thread:     one thread a parser.
// Memory:     one line.
// Cost:       parsing.
// Not here:   texts (prompts_parser).
#pragma once

#include "replay/trace_parser.h"

namespace stemma {

class HashIdsParser final : public TraceParser {
 public:
  // REQUIRES: check_trace_options(options) is ok.
  explicit HashIdsParser(const TraceOptions& options);

  Status take(std::string_view line, std::string_view where) override;
  std::int64_t page_tokens() const override { return page_tokens_; }

 private:
  TraceFormat format_;
  std::int64_t page_tokens_;
};

}  // namespace stemma
