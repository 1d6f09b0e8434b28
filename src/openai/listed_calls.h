// ListedCalls: calls as models of Mistral write them, behind the mark "[TOOL_CALLS]".
//
//   [{"name": N, "arguments": {...}}, ...]      all of them, by older tokenizers
//   N[ARGS]{...}                                one, by newer ones; the next has a mark of its own
//   N[CALL_ID]I[ARGS]{...}                      by some with an identifier, which nobody reads
//   N{...}
//
// They end with their JSON: there is no other mark.
//
// Thread:     one mark, one reader.
// Memory:     the calls.
// Cost:       linear in them, however they come.
// Not here:   where calls are in an answer (tool_calls).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "openai/call_json.h"

namespace stemma {

inline constexpr std::string_view kListedCallsMark = "[TOOL_CALLS]";
inline constexpr std::string_view kArgumentsMark = "[ARGS]";

// Reads what comes behind a mark.
class ListedCallReader {
 public:
  enum class Outcome : std::uint8_t { kGoesOn, kCalls, kNone };

  // What `text` begins with: calls, none whatever comes, or what may become some.
  // REQUIRES: it begins with the text of the last call, and that went on.
  Outcome read(std::string_view text);
  // Where the calls end, or what was looked through and is none.
  std::size_t end() const { return end_; }
  // REQUIRES: there are some.
  std::vector<ToolCall> take_calls() { return std::move(calls_); }

 private:
  // What stands before the object of one call; longer ones are none.
  static constexpr std::size_t kHeadBytesMax = 2048;

  // Where the JSON begins; the text's end: it has not come; nullopt: it will not.
  static std::optional<std::size_t> find_value(std::string_view text);

  std::size_t value_begin_ = std::string_view::npos;
  JsonValueSearch value_;
  std::size_t end_ = 0;
  std::vector<ToolCall> calls_;
};

}  // namespace stemma
