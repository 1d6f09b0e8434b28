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
#include "openai/ordered_answer.h"
#include "template/template_json.h"

namespace stemma {

class ResponseAnswer final : public OrderedAnswer {
 public:
  // `request`: CompletionRequest::response.
  ResponseAnswer(AnswerHead head, std::string request, bool streams)
      : head_(std::move(head)), request_(std::move(request)), streams_(streams) {}

  std::string begin(const AnswerUsage& of_prompt) override;
  // A token may be told of before what it says: its chance is that of the next text, and of none
  // where a call comes first.
  std::string push(const AnswerPiece& piece) override;
  std::string end(const AnswerUsage& usage, const TemplateJson& receipt) override;
  std::string fail(const ApiError& error) override;

 private:
  // Of an item, and of a part of its content.
  TemplateJson about_item() const;
  TemplateJson about_part() const;
  void open_thoughts(std::string& events);
  void close_thoughts(std::string_view status, std::string& events);
  void open_message(std::string& events);
  void close_message(std::string_view status, std::string& events);
  // An item of one part begins, and ends.
  void open_item(TemplateJson item, TemplateJson part, std::string& events);
  void close_item(TemplateJson item, TemplateJson part, std::string& events);
  void add_thoughts(std::string_view thoughts, std::string& events);
  void add_chances(const AnswerPiece& piece);
  void add_text(std::string_view text, std::string& events);
  void say_text(std::string_view text, std::string& events);
  void add_call(const ToolCall& call, std::int64_t number, std::string& events);
  void say(std::string_view type, TemplateJson event, std::string& events);
  // What the answer is now, and an event of it.
  std::string text_of(const TemplateJson& response) const;
  void say_response(std::string_view type, const TemplateJson& response, std::string& events);

  AnswerHead head_;
  std::string request_;  // an object of JSON
  bool streams_;
  TemplateJson items_ = TemplateJson::array();  // that are whole
  bool in_thoughts_ = false;
  bool in_message_ = false;
  std::string text_;                              // of the message, or the thoughts, that are open
  TemplateJson chances_;                          // of its tokens
  TemplateJson waiting_ = TemplateJson::array();  // chances of tokens that said nothing yet
  std::string finish_reason_;
  std::int64_t said_ = 0;
};

}  // namespace stemma
