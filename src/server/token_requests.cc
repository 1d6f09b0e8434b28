#include "server/token_requests.h"

#include <utility>

#include "anthropic/message_request.h"
#include "openai/field_reader.h"

namespace stemma {
namespace {

ApiResult<std::vector<TokenId>> tokens_of(FieldReader& fields, std::optional<ApiError>& fault,
                                          const Preparation& preparation) {
  CompletionRequest request;
  if (fields.find_or_null("messages") != nullptr) {
    read_chat_text(fields, preparation.rules(), fault, request);
    if (fault.has_value()) return *std::move(fault);
    return preparation.chat_tokens(request);
  }
  const auto text = fields.text("prompt", preparation.rules().body_bytes_max);
  const bool special = fields.boolean("add_special_tokens").value_or(true);
  if (!text.has_value()) fields.fail("prompt", "missing");
  if (fault.has_value()) return *std::move(fault);
  return preparation.text_tokens(*text, special);
}

}  // namespace

ApiResult<TemplateJson> tokenize_body(std::string_view body, const Preparation& preparation) {
  ApiResult<TemplateJson> parsed = read_json_body(body, preparation.rules().body_bytes_max);
  if (std::holds_alternative<ApiError>(parsed)) return parsed;
  std::optional<ApiError> fault;
  FieldReader fields(std::get<TemplateJson>(parsed), "", fault);
  const bool has_texts = fields.boolean("return_token_strs").value_or(false);
  auto tokens = tokens_of(fields, fault, preparation);
  if (auto* const refused = std::get_if<ApiError>(&tokens)) return std::move(*refused);
  const auto& ids = std::get<std::vector<TokenId>>(tokens);
  TemplateJson json;
  json["count"] = ids.size();
  json["max_model_len"] = preparation.context_tokens();
  json["tokens"] = ids;
  if (has_texts) json["token_strs"] = preparation.token_texts(ids);
  return json;
}

ApiResult<TemplateJson> count_tokens_body(std::string_view body, const Preparation& preparation) {
  auto read = read_message_request(body, preparation.rules(), MessageUse::kCount);
  if (auto* const fault = std::get_if<ApiError>(&read)) return std::move(*fault);
  const auto& request = std::get<CompletionRequest>(read);
  if (auto fault = preparation.check_model(request.model)) return *std::move(fault);
  auto tokens = preparation.chat_tokens(request);
  if (auto* const fault = std::get_if<ApiError>(&tokens)) return std::move(*fault);
  return TemplateJson{{"input_tokens", std::get<std::vector<TokenId>>(tokens).size()}};
}

ApiResult<TemplateJson> detokenize_body(std::string_view body, const Preparation& preparation) {
  ApiResult<TemplateJson> parsed = read_json_body(body, preparation.rules().body_bytes_max);
  if (std::holds_alternative<ApiError>(parsed)) return parsed;
  std::optional<ApiError> fault;
  FieldReader fields(std::get<TemplateJson>(parsed), "", fault);
  const TemplateJson* const list = fields.array_or_null("tokens");
  if (list == nullptr) fields.fail("tokens", "missing");
  std::vector<TokenId> tokens;
  if (list != nullptr) {
    tokens = read_tokens(*list, "tokens", preparation.rules().vocab_tokens, fault);
  }
  if (fault.has_value()) return *std::move(fault);
  TemplateJson json;
  json["prompt"] = preparation.text_of(tokens);
  return json;
}

}  // namespace stemma
