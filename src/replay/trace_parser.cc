#include "replay/trace_parser.h"

#include <utility>

#include "base/check.h"
#include "replay/capture_parser.h"
#include "replay/hash_ids_parser.h"
#include "replay/kv_events_parser.h"
#include "replay/prompts_parser.h"

namespace stemma {

bool TraceParser::try_next(TraceRequest& request) {
  if (!ready_.has_value()) return false;
  request = *std::exchange(ready_, std::nullopt);
  return true;
}

void TraceParser::end() {}

bool TraceParser::hashes_are_chained() const {
  return true;
}

Result<std::unique_ptr<TraceParser>> make_trace_parser(const TraceOptions& options) {
  STEMMA_RETURN_IF_ERROR(check_trace_options(options));
  switch (options.format.family) {
    case TraceFamily::kHashIds:
      return std::unique_ptr<TraceParser>(std::make_unique<HashIdsParser>(options));
    case TraceFamily::kPrompts:
      return std::unique_ptr<TraceParser>(std::make_unique<PromptsParser>(options));
    case TraceFamily::kKvEvents:
      return std::unique_ptr<TraceParser>(std::make_unique<KvEventsParser>());
    case TraceFamily::kCapture:
      return std::unique_ptr<TraceParser>(std::make_unique<CaptureParser>());
  }
  STEMMA_CHECK(false, "every family has a parser");
}

}  // namespace stemma
