// CallJson: calls of tools that are objects of JSON, {"name": N, "arguments": {...}}, read without
// making anything of their arguments: those are passed on as they were written.
//
// Thread:     pure functions; one text, one search.
// Memory:     names, and one call's arguments.
// Cost:       linear in the text.
// Not here:   where in an answer they stand (tool_calls, listed_calls).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace stemma {

struct ToolCall {
  std::string name;
  std::string arguments;  // an object of JSON: what the model wrote of it, as it did

  friend bool operator==(const ToolCall&, const ToolCall&) = default;
};

// Whether a text is an object of JSON, to its last byte.
bool is_json_object(std::string_view text);

// Where the value of JSON that begins at `at` ends; npos: nowhere. A number or a word ends before
// what stands behind it in an object or an array.
std::size_t end_of_json_value(std::string_view json, std::size_t at);

// The call that such an object says, with "arguments" or "parameters", that are an object or a text
// of one; nullopt: it says none, is none, or has a member twice.
std::optional<ToolCall> call_of_object(std::string_view text);

// Looks for the end of an object, an array or a text, however it comes.
class JsonValueSearch {
 public:
  // Where it ends; npos: it has not come. REQUIRES: `json` begins with the value, as at the last
  // call.
  std::size_t find_end(std::string_view json);
  std::size_t looked_through() const noexcept { return at_; }
  // Whether what was looked through can be none: a line ends in a text.
  bool is_broken() const noexcept { return is_broken_; }

 private:
  std::size_t at_ = 0;
  std::size_t depth_ = 0;
  bool in_text_ = false;
  bool is_broken_ = false;
};

}  // namespace stemma
