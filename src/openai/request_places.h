// RequestPlaces: where in a request that lies which a chat has at another place.
//
// Requests of other interfaces are read as the chat that each comes to: what is wrong with that is
// told by the path that the client wrote.
//
// Thread:     one request, one thread.
// Memory:     two paths a place.
// Cost:       move is O(places), for what is refused alone.
// Not here:   reading fields (field_reader).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

}  // namespace stemma
