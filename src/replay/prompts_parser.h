// PromptsParser: traces of full text. Without a tokenizer a token is a character here, and a page
// the next page_tokens of them; with one, a page is the next page_tokens tokens, special tokens
// written out in the text being text. What is left at the end is no page.
//
// A page's hash is a digest of its text and of the hash before it, so that a hash has one prefix;
// equal texts in several files have equal hashes.
//
// Thread:     one thread a parser.
// Memory:     one line, and its tokens.
// Cost:       SHA-256 of the text, and tokenising it.
// Not here:   the tokenizer (model/tokenizer).
#pragma once

#include "base/digest.h"
#include "replay/trace_parser.h"

namespace stemma {

class PromptsParser final : public TraceParser {
 public:
  // REQUIRES: check_trace_options(options) is ok.
  explicit PromptsParser(const TraceOptions& options);

  Status take(std::string_view line, std::string_view where) override;
  std::int64_t page_tokens() const override { return page_tokens_; }

 private:
  void cut_characters(std::string_view text, TraceRequest& request);
  Status cut_tokens(std::string_view text, std::string_view where, TraceRequest& request);
  Result<std::int64_t> count_tokens(std::string_view text, std::string_view where) const;

  double ms_per_time_unit_;
  const Tokenizer* tokenizer_or_null_;
  std::int64_t page_tokens_;
  Sha256 hasher_;
};

}  // namespace stemma
