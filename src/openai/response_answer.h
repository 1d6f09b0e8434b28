// Response answers: the bodies and stream events of /v1/responses, in OpenAI's shape.
//
// An answer is a list of items: thoughts, messages, and calls of functions, in the order in which
// they came.
//
// Thread:     one answer, one stream.
// Memory:     the answer so far.
// Cost:       O(text); the last events repeat all of it, as their readers expect.
// Not here:   what is asked (response_request), the socket (http/).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "openai/api_error.h"
#include "openai/completion_answer.h"
#include "template/template_json.h"

namespace stemma {

// The whole answer. `request`: CompletionRequest::response. `receipt`: null for none.
std::string response_body(const AnswerHead& head, const TemplateJson& request,
                          const AnswerPiece& answer, const AnswerUsage& usage,
                          const TemplateJson& receipt);

// The events of one answer. Each function returns those that are new.
class ResponseStream {
 public:
  ResponseStream(AnswerHead head, TemplateJson request)
      : head_(std::move(head)), request_(std::move(request)) {}

  // Once, first.
  std::string begin();
  std::string push(const AnswerPiece& piece);
  // Once, last: one of these two.
  std::string end(const AnswerUsage& usage, const TemplateJson& receipt);
  std::string fail(const ApiError& error);

 private:
  // Of an item, and of a part of its content.
  TemplateJson about_item() const;
  TemplateJson about_part() const;
  void open_thoughts(std::string& events);
  void close_thoughts(std::string_view status, std::string& events);
  void open_message(std::string& events);
  void close_message(std::string& events);
  std::string_view ended_status() const;
  // An item of one part begins, and ends.
  void open_item(TemplateJson item, TemplateJson part, std::string& events);
  void close_item(TemplateJson item, TemplateJson part, std::string& events);
  void add_thoughts(const AnswerPiece& piece, std::string& events);
  void add_text(const AnswerPiece& piece, std::string& events);
  void add_call(const AnswerPiece& piece, std::size_t call, std::string& events);
  void say(std::string_view type, TemplateJson event, std::string& events);

  AnswerHead head_;
  TemplateJson request_;
  TemplateJson items_ = TemplateJson::array();  // that are whole
  bool in_thoughts_ = false;
  bool in_message_ = false;
  std::string text_;      // of the message, or the thoughts, that are open
  TemplateJson chances_;  // of its tokens
  std::string finish_reason_;
  std::int64_t said_ = 0;
};

}  // namespace stemma
