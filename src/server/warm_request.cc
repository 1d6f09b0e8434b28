#include "server/warm_request.h"

#include <optional>

#include "openai/field_reader.h"

namespace stemma {

ApiResult<CompletionRequest> read_warm_request(std::string_view body, const RequestRules& rules) {
  ApiResult<TemplateJson> parsed = read_json_body(body, rules.body_bytes_max, rules.vocab_tokens);
  if (auto* const fault = std::get_if<ApiError>(&parsed)) return std::move(*fault);
  const TemplateJson& object = std::get<TemplateJson>(parsed);
  std::optional<ApiError> unread;
  const FieldReader fields(object, "", unread);
  const bool says_how_it_ends = fields.find_or_null("add_generation_prompt") != nullptr;
  const bool is_chat = fields.find_or_null("messages") != nullptr;
  if (is_chat && fields.find_or_null("prompt") != nullptr) {
    return field_error("prompt", "not together with messages");
  }
  auto read =
      completion_request_of(is_chat ? CompletionKind::kChat : CompletionKind::kText, object, rules);
  auto* const request = std::get_if<CompletionRequest>(&read);
  if (request == nullptr) return read;
  // What comes behind the messages is the next one, not an answer.
  if (!says_how_it_ends) request->add_generation_prompt = false;
  request->max_tokens = 1;
  request->min_tokens = 0;
  request->copies = 1;
  request->stream = false;
  request->logprobs.reset();
  request->sampling = SamplingParams();
  return read;
}

}  // namespace stemma
