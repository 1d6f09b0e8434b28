#include "anthropic/message_error.h"

#include <string_view>

#include "openai/completion_answer.h"

namespace stemma {
namespace {

// Its clients choose what to do by the type.
std::string_view type_of(const ApiError& error) {
  if (error.status == 413) return "request_too_large";
  if (error.status == 503) return "overloaded_error";
  if (error.status >= 500) return "api_error";
  return error.type;
}

}  // namespace

std::string message_error_body(const ApiError& error, const std::string& request_id) {
  TemplateJson body;
  body["type"] = "error";
  body["error"]["type"] = type_of(error);
  body["error"]["message"] = error.message;
  if (!request_id.empty()) body["request_id"] = request_id;
  return json_text(body);
}

}  // namespace stemma
