// ApiError: what a client is told when its request is not answered, in OpenAI's shape.
//
// Thread:     values.
// Memory:     three short texts.
// Cost:       none.
// Not here:   errors of HTTP itself (http/), what is logged for the operator.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "stemma/result.h"

namespace stemma {

struct ApiError {
  int status = 400;  // of HTTP
  std::string message;
  std::string type = "invalid_request_error";
  std::string param;  // path of the field, "messages[2].content"; empty: none
  std::string code;   // "context_length_exceeded", ...; empty: none
  // Seconds after which it is worth asking again; absent: it is not.
  std::optional<int> retry_after_s = std::nullopt;
};

// A T, or why there is none.
template <typename T>
using ApiResult = std::variant<T, ApiError>;

// {"error": {"message", "type", "param", "code"}}.
std::string error_body(const ApiError& error);

// The fault of a field of the request.
ApiError field_error(std::string param, std::string message);
// Whoever asks may not.
ApiError not_allowed(std::string message);
// Whoever asks is known, and may not do this.
ApiError forbidden(std::string message);
// There is no such path or thing.
ApiError not_found(std::string message);
// There is more of it than is taken.
ApiError too_large(std::string message);
// The server can do no more at the moment.
ApiError overloaded(std::string message);
// Something that is not the client's fault.
ApiError server_error(std::string message);

// What an error from inside means to a client: kInvalidArgument and kTooLarge are its fault.
ApiError api_error_of(const Error& error);

}  // namespace stemma
