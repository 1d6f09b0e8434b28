// The paths of the cache itself.
#include <utility>

#include "server/api_service.h"
#include "server/receipt.h"

namespace stemma {
namespace {

// A body that says what is to be computed ahead of use: a chat's messages, or a prompt.
ApiResult<CompletionRequest> read_warm_request(std::string_view body, const RequestRules& rules) {
  ApiResult<TemplateJson> parsed = read_json_body(body, rules.body_bytes_max);
  if (auto* const fault = std::get_if<ApiError>(&parsed)) return *std::move(fault);
  const TemplateJson& object = std::get<TemplateJson>(parsed);
  const bool is_chat = object.contains("messages");
  auto read =
      read_completion_request(is_chat ? CompletionKind::kChat : CompletionKind::kText, body, rules);
  auto* const request = std::get_if<CompletionRequest>(&read);
  if (request == nullptr) return read;
  // What comes behind the messages is the next one, not an answer.
  if (!object.contains("add_generation_prompt")) request->add_generation_prompt = false;
  request->max_tokens = 1;
  request->copies = 1;
  request->stream = false;
  request->logprobs.reset();
  request->sampling = SamplingParams();
  return read;
}

}  // namespace

void ApiService::warm(ExchangeId exchange, HttpRequest&& request) {
  const Caller caller = exchanges_[exchange].caller;
  work(exchange, [this, exchange, caller, body = std::move(request.body)]() -> Finish {
    auto read = read_warm_request(body, preparation_.rules());
    ApiResult<PreparedAnswer> prepared =
        std::holds_alternative<ApiError>(read)
            ? ApiResult<PreparedAnswer>(std::get<ApiError>(std::move(read)))
            : preparation_.prepare(std::get<CompletionRequest>(std::move(read)), caller);
    return [this, exchange, prepared = std::move(prepared)]() mutable {
      if (const auto* const fault = std::get_if<ApiError>(&prepared)) {
        return refuse(exchange, *fault);
      }
      auto& ready = std::get<PreparedAnswer>(prepared);
      ready.plan.receipt_only = true;
      start(exchange, std::move(ready));
    };
  });
}

void ApiService::flush(ExchangeId exchange, HttpRequest&&) {
  const bool asked = loop_->ask([this, exchange](Engine& engine) {
    const bool flushed = engine.try_flush();
    http_->post([this, exchange, flushed] {
      if (flushed) return answer_json(exchange, {{"success", true}});
      ApiError error = overloaded("requests wait or run: the cache is flushed only between them");
      error.status = 409;
      error.type = "conflict_error";
      error.code = "not_idle";
      refuse(exchange, error);
    });
  });
  if (!asked) refuse(exchange, overloaded("too many requests wait"));
}

}  // namespace stemma
