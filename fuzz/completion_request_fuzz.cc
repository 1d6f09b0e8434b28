// Any bytes as the body of a chat, of a completion, of a response and of a message: read or
// refused, and what is read is in range.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "anthropic/message_request.h"
#include "openai/completion_answer.h"
#include "openai/completion_request.h"
#include "openai/response_request.h"

namespace {

void check(const stemma::CompletionRequest& request, const stemma::RequestRules& rules) {
  const auto prompts = static_cast<std::int64_t>(request.prompts.size());
  const bool sound = request.copies >= 1 && request.copies <= rules.copies_max &&
                     request.max_tokens.value_or(1) >= (request.echo ? 0 : 1) &&
                     prompts <= rules.copies_max &&
                     request.sampling.validate(rules.vocab_tokens).ok() &&
                     std::isfinite(request.sampling.temperature);
  if (!sound) std::abort();
  for (const auto& prompt : request.prompts) {
    const auto* const tokens = std::get_if<std::vector<stemma::TokenId>>(&prompt);
    if (tokens == nullptr) continue;
    for (const stemma::TokenId token : *tokens) {
      if (token < 0 || token >= rules.vocab_tokens) std::abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  stemma::RequestRules rules;
  rules.vocab_tokens = 1000;
  using Kind = stemma::CompletionKind;
  const auto reads = {stemma::read_completion_request(Kind::kChat, body, rules),
                      stemma::read_completion_request(Kind::kText, body, rules),
                      stemma::read_response_request(body, rules),
                      stemma::read_message_request(body, rules)};
  for (const auto& read : reads) {
    if (const auto* const fault = std::get_if<stemma::ApiError>(&read)) {
      if (stemma::error_event(*fault).empty()) std::abort();
    } else {
      check(std::get<stemma::CompletionRequest>(read), rules);
    }
  }
  return 0;
}
