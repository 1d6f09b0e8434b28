#include "openai/listed_calls.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "openai/completion_answer.h"
#include "openai/text_marks.h"

namespace stemma {
namespace {

constexpr auto kNone = std::string_view::npos;
constexpr std::string_view kIdMark = "[CALL_ID]";
// What no name has.
constexpr std::string_view kNoName = " \t\r\n\"'[]{}<>";

// Of an array of objects that are calls; none if one is not.
std::vector<ToolCall> calls_of_array(std::string_view array) {
  std::vector<ToolCall> calls;
  if (!is_json(array)) return calls;
  const auto skip = [&](std::size_t at) { return array.find_first_not_of(kMarkSpace, at); };
  for (std::size_t at = skip(1); array[at] != ']'; at = skip(at)) {
    const std::size_t end = end_of_json_value(array, at);
    std::optional<ToolCall> call = call_of_object(array.substr(at, end - at));
    if (!call.has_value()) return {};
    calls.push_back(*std::move(call));
    at = skip(end);
    if (array[at] == ',') ++at;
  }
  return calls;
}

// Whether `text` is, or may become, one that begins with `mark`.
bool may_begin_with(std::string_view mark, std::string_view text) {
  return mark.starts_with(text.substr(0, mark.size()));
}

// What calls a tool of the name that stands in `head`; none where that is no name.
std::vector<ToolCall> call_of(std::string_view head, std::string_view arguments) {
  const std::size_t name_end =
      std::min({head.find(kIdMark), head.find(kArgumentsMark), head.size()});
  const std::string_view name = trimmed(head.substr(0, name_end));
  const std::string_view rest = trimmed(head.substr(name_end));
  const bool is_headed = rest.empty() || rest.ends_with(kArgumentsMark);
  const bool is_name = !name.empty() && name.find_first_of(kNoName) == kNone;
  if (!is_headed || !is_name || !is_json_object(arguments)) return {};
  return {{std::string(name), std::string(arguments)}};
}

}  // namespace

ListedCallReader::Outcome ListedCallReader::read(std::string_view text) {
  if (value_begin_ == kNone) {
    const std::optional<std::size_t> begin = find_value(text);
    if (!begin.has_value() || *begin > kHeadBytesMax) return Outcome::kNone;
    if (*begin == text.size()) return Outcome::kGoesOn;
    value_begin_ = *begin;
  }
  const std::string_view json = text.substr(value_begin_);
  const std::size_t value_bytes = value_.find_end(json);
  end_ = value_begin_ + value_.looked_through();
  if (value_.is_broken()) return Outcome::kNone;
  if (value_bytes == kNone) return Outcome::kGoesOn;
  const std::string_view head = text.substr(0, value_begin_);
  const std::string_view value = json.substr(0, value_bytes);
  calls_ = value.front() == '[' ? calls_of_array(value) : call_of(head, value);
  return calls_.empty() ? Outcome::kNone : Outcome::kCalls;
}

// An array is there at once; an object may have a name before it, and marks behind that.
std::optional<std::size_t> ListedCallReader::find_value(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(kMarkSpace), text.size());
  if (text.substr(begin).starts_with('[')) return begin;
  const std::size_t name_end = std::min(text.find_first_of(kNoName, begin), text.size());
  const std::size_t next = std::min(text.find_first_not_of(kMarkSpace, name_end), text.size());
  const std::string_view rest = text.substr(next);
  if (rest.empty() || rest.starts_with('{')) return next;
  if (!may_begin_with(kIdMark, rest) && !may_begin_with(kArgumentsMark, rest)) return std::nullopt;
  return std::min(text.find('{', next), text.size());
}

}  // namespace stemma
