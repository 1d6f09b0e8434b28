// RequestPlaces: where in a request that lies which a chat has at another place.
//
// Requests of other interfaces are read as the chat that each comes to, with what they have in
// common: what is wrong with that is told by the path that the client wrote.
//
// Thread:     one request, one thread.
// Memory:     two paths a place.
// Cost:       O(JSON); move is O(places), for what is refused or has a form.
// Not here:   reading fields (field_reader), what a chat may say (completion_request).
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "openai/completion_request.h"

namespace stemma {

class RequestPlaces {
 public:
  // What is at `in_chat`, or in it, is of `origin`, unless an earlier place says otherwise.
  void add(std::string in_chat, std::string origin) {
    places_.emplace_back(std::move(in_chat), std::move(origin));
  }

  // Turns a path in the chat, or a text that begins with one, into that in the request.
  void move(std::string& path) const;

 private:
  std::vector<std::pair<std::string, std::string>> places_;
};

// Copies into `chat` the fields of a request that are read as those of a chat: all but `others`.
void copy_fields_of_chats(const TemplateJson& body, std::span<const char* const> others,
                          TemplateJson& chat);

// Reads the chat: its faults, and where its form stands, are told by their places in the request.
ApiResult<CompletionRequest> chat_request_of(const TemplateJson& chat, const RequestRules& rules,
                                             const RequestPlaces& places);

}  // namespace stemma
