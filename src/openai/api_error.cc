#include "openai/api_error.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace stemma {
namespace {

nlohmann::ordered_json text_or_null(const std::string& text) {
  return text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(text);
}

}  // namespace

std::string error_body(const ApiError& error) {
  nlohmann::ordered_json body;
  body["error"]["message"] = error.message;
  body["error"]["type"] = error.type;
  body["error"]["param"] = text_or_null(error.param);
  body["error"]["code"] = text_or_null(error.code);
  return body.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

ApiError field_error(std::string param, std::string message) {
  ApiError error;
  error.message = param.empty() ? std::move(message) : param + ": " + message;
  error.param = std::move(param);
  return error;
}

ApiError not_allowed(std::string message) {
  ApiError error = field_error("", std::move(message));
  error.status = 401;
  error.type = "authentication_error";
  error.code = "invalid_api_key";
  return error;
}

ApiError forbidden(std::string message) {
  ApiError error = field_error("", std::move(message));
  error.status = 403;
  error.type = "permission_error";
  return error;
}

ApiError too_large(std::string message) {
  ApiError error = field_error("", std::move(message));
  error.status = 413;
  return error;
}

ApiError not_found(std::string message) {
  ApiError error = field_error("", std::move(message));
  error.status = 404;
  error.type = "not_found_error";
  return error;
}

ApiError overloaded(std::string message) {
  ApiError error = field_error("", std::move(message));
  error.status = 429;
  error.type = "rate_limit_error";
  error.code = "queue_full";
  error.retry_after_s = 1;
  return error;
}

ApiError server_error(std::string message) {
  ApiError error = field_error("", std::move(message));
  error.status = 500;
  error.type = "server_error";
  return error;
}

ApiError api_error_of(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kTooLarge:
    case ErrorCode::kUnsupported:
      return field_error("", error.detail);
    case ErrorCode::kNotFound:
      return not_found(error.detail);
    default:
      return server_error(error.detail);
  }
}

}  // namespace stemma
