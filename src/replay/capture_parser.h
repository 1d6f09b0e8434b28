// CaptureParser: Stemma's own traces (capture_writer says what is in them).
//
// Thread:     one thread a parser.
// Memory:     one line.
// Cost:       parsing.
// Not here:   writing (capture_writer).
#pragma once

#include <nlohmann/json.hpp>

#include "replay/trace_parser.h"

namespace stemma {

class CaptureParser final : public TraceParser {
 public:
  // As every parser; the first line is the header, and gives no request.
  Status take(std::string_view line, std::string_view where) override;
  std::int64_t page_tokens() const override { return page_size_; }

 private:
  Status take_header(const nlohmann::json& object, std::string_view where);
  Status take_request(const nlohmann::json& object, std::string_view where);

  std::int64_t page_size_ = 0;  // until the header was read
};

}  // namespace stemma
