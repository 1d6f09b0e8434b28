#include "replay/timed_report.h"

namespace stemma {

std::string_view request_outcome_name(RequestOutcome outcome) {
  switch (outcome) {
    case RequestOutcome::kFinished:
      return "finished";
    case RequestOutcome::kNoPrompt:
      return "no_prompt";
    case RequestOutcome::kExceedsContext:
      return "exceeds_context";
    case RequestOutcome::kExceedsPool:
      return "exceeds_pool";
  }
  return "unknown";
}

}  // namespace stemma
