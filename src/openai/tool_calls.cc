#include "openai/tool_calls.h"

#include <functional>
#include <map>
#include <span>
#include <utility>

#include "base/json_text.h"
#include "openai/completion_answer.h"
#include "openai/text_marks.h"
#include "template/chat_template.h"

namespace stemma {
namespace {

constexpr auto kNone = std::string_view::npos;

struct Marks {
  std::string_view begin;
  std::string_view end;
};
constexpr Marks kTags = {"<tool_call>", "</tool_call>"};
constexpr Marks kDeepseekCalls = {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"};
constexpr Marks kDeepseekCall = {"<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"};
constexpr std::string_view kDeepseekSeparator = "<｜tool▁sep｜>";
constexpr Marks kFence = {"```json", "```"};

constexpr Marks kListedCalls = {kListedCallsMark, ""};  // they end by themselves

constexpr std::string_view kFunctionsBegins[] = {kTags.begin, kFunctionMarks.name_begin};

const Marks& marks_of(ToolCallStyle style) {
  if (style == ToolCallStyle::kListed) return kListedCalls;
  return style == ToolCallStyle::kDeepseek ? kDeepseekCalls : kTags;
}

// What a call may begin with.
std::span<const std::string_view> begins_of(ToolCallStyle style) {
  if (style == ToolCallStyle::kFunctions) return kFunctionsBegins;
  return {&marks_of(style).begin, 1};
}

const XmlMarks* xml_marks_or_null(ToolCallStyle style) {
  if (style == ToolCallStyle::kFunctions) return &kFunctionMarks;
  return style == ToolCallStyle::kKeys ? &kKeyMarks : nullptr;
}

// Takes `mark` off the begin of `text`.
bool take(std::string_view& text, std::string_view mark) {
  if (!text.starts_with(mark)) return false;
  text.remove_prefix(mark.size());
  return true;
}

// Objects one behind the other, with semicolons or white space between them.
std::vector<ToolCall> calls_of_objects(std::string_view text) {
  std::vector<ToolCall> calls;
  while (!(text = trimmed(text)).empty()) {
    const std::size_t end = text.starts_with('{') ? end_of_json_value(text, 0) : kNone;
    if (end == kNone) return {};
    std::optional<ToolCall> call = call_of_object(text.substr(0, end));
    if (!call.has_value()) return {};
    calls.push_back(*std::move(call));
    text = trimmed(text.substr(end));
    take(text, ";");
  }
  return calls;
}

// NAME SEPARATOR {...}, or TYPE SEPARATOR NAME and the object in a fence.
std::optional<ToolCall> call_of_deepseek(std::string_view text) {
  const std::size_t separator = text.find(kDeepseekSeparator);
  if (separator == kNone) return std::nullopt;
  std::string_view name = trimmed(text.substr(0, separator));
  std::string_view arguments = trimmed(text.substr(separator + kDeepseekSeparator.size()));
  if (!arguments.starts_with('{')) {
    const std::size_t line_end = arguments.find('\n');
    if (line_end == kNone) return std::nullopt;
    name = trimmed(arguments.substr(0, line_end));
    arguments = trimmed(arguments.substr(line_end));
    if (!take(arguments, kFence.begin) || !arguments.ends_with(kFence.end)) return std::nullopt;
    arguments.remove_suffix(kFence.end.size());
    arguments = trimmed(arguments);
  }
  if (name.empty() || !is_json_object(arguments)) return std::nullopt;
  return ToolCall{std::string(name), std::string(arguments)};
}

// Those that `text` begins with, which are taken off it.
std::vector<ToolCall> take_calls_of_deepseek(std::string_view& text) {
  std::vector<ToolCall> calls;
  while (!(text = without_space_before(text)).empty()) {
    std::string_view rest = text;
    if (!take(rest, kDeepseekCall.begin)) break;
    const std::size_t end = MarkSearch().find(rest, kDeepseekCall.end);
    if (end == kNone) break;
    std::optional<ToolCall> call = call_of_deepseek(rest.substr(0, end));
    if (!call.has_value()) break;
    calls.push_back(*std::move(call));
    text = rest.substr(end + kDeepseekCall.end.size());
  }
  return calls;
}

// Those that `body` begins with, which are taken off it; of objects all or none.
std::vector<ToolCall> take_calls(ToolCallStyle style, std::string_view& body) {
  if (style == ToolCallStyle::kDeepseek) return take_calls_of_deepseek(body);
  std::vector<ToolCall> calls = calls_of_objects(body);
  if (!calls.empty()) body = {};
  return calls;
}

ToolCallSpelling spelling_of_deepseek(std::string_view chat_template) {
  const bool has_fence = chat_template.find(kFence.begin) != kNone;
  return {
      .mark = kDeepseekCalls.begin,
      .begin = kDeepseekCalls.begin,
      .call_begin = has_fence ? "<｜tool▁call▁begin｜>function<｜tool▁sep｜>" : kDeepseekCall.begin,
      .arguments_begin = has_fence ? "\n```json\n" : kDeepseekSeparator,
      .call_end = has_fence ? "\n```<｜tool▁call▁end｜>" : kDeepseekCall.end,
      .between = has_fence ? "\n" : "",
      .end = kDeepseekCalls.end,
      .name_is_json = false};
}

ToolCallSpelling spelling_of_listed(std::string_view chat_template) {
  if (chat_template.find(kArgumentsMark) != kNone) {
    return {.mark = kListedCallsMark,
            .call_begin = kListedCallsMark,
            .arguments_begin = kArgumentsMark,
            .name_is_json = false};
  }
  const bool has_space = chat_template.find("[TOOL_CALLS] [") != kNone;
  return {.mark = kListedCallsMark,
          .begin = has_space ? "[TOOL_CALLS] [" : "[TOOL_CALLS][",
          .call_begin = "{\"name\": ",
          .arguments_begin = ", \"arguments\": ",
          .call_end = "}",
          .between = ", ",
          .end = "]"};
}

// From GLM-4.7 on without lines.
ToolCallSpelling spelling_of_keys(std::string_view chat_template) {
  const bool has_lines = chat_template.find("</arg_key><arg_value>") == kNone;
  ToolCallSpelling spelling = {
      .mark = kTags.begin,
      .call_begin = kTags.begin,
      .call_end = kTags.end,
      .name_is_json = false,
      .members = MemberMarks{"<arg_key>", "</arg_key><arg_value>", "</arg_value>", "</arg_value>"}};
  if (!has_lines) return spelling;
  spelling.arguments_begin = spelling.between = "\n";
  spelling.members->name_end = "</arg_key>\n<arg_value>";
  spelling.members->value_end = "</arg_value>\n";
  return spelling;
}

}  // namespace

std::optional<ToolCallStyle> tool_call_style_of(std::string_view chat_template) {
  const auto has = [&](std::string_view text) { return chat_template.find(text) != kNone; };
  if (has(kDeepseekCalls.begin)) return ToolCallStyle::kDeepseek;
  if (has(kTags.begin)) {
    if (has(kFunctionMarks.name_begin)) return ToolCallStyle::kFunctions;
    return has(kKeyMarks.key_begin) ? ToolCallStyle::kKeys : ToolCallStyle::kTagged;
  }
  if (has(kListedCallsMark)) return ToolCallStyle::kListed;
  if (has(R"({"name": function name, "parameters": )")) return ToolCallStyle::kBare;
  return std::nullopt;
}

bool has_text_arguments(ToolCallStyle style) {
  return xml_marks_or_null(style) != nullptr;
}

ToolCallSpelling spelling_of(ToolCallStyle style, std::string_view chat_template) {
  switch (style) {
    case ToolCallStyle::kTagged:
      return {.mark = kTags.begin,
              .call_begin = "<tool_call>\n{\"name\": ",
              .arguments_begin = ", \"arguments\": ",
              .call_end = "}\n</tool_call>",
              .between = "\n"};
    case ToolCallStyle::kBare:
      return {.call_begin = "{\"name\": ",
              .arguments_begin = ", \"parameters\": ",
              .call_end = "}",
              .several = false};
    case ToolCallStyle::kFunctions:
      return {.mark = kTags.begin,
              .call_begin = "<tool_call>\n<function=",
              .arguments_begin = ">\n",
              .call_end = "</function>\n</tool_call>",
              .between = "\n",
              .other_mark = kFunctionMarks.name_begin,
              .name_is_json = false,
              .members = MemberMarks{"<parameter=", ">\n", "\n</parameter>\n", "</parameter>"}};
    case ToolCallStyle::kListed:
      return spelling_of_listed(chat_template);
    case ToolCallStyle::kKeys:
      return spelling_of_keys(chat_template);
    case ToolCallStyle::kDeepseek:
      return spelling_of_deepseek(chat_template);
  }
  return {};
}

ToolCallReader::ToolCallReader(ToolCallStyle style, const ToolTypes& types)
    : style_(style), types_(types) {}

void ToolCallReader::push(std::string_view piece, ToolCallText& out) {
  held_ += piece;
  if (style_ == ToolCallStyle::kBare) {
    is_plain_ = is_plain_ || !bare_calls_.may_be_calls(held_);
    if (is_plain_) give_text(std::exchange(held_, {}), out);
    return;
  }
  while (in_call_ ? leave_call(out) : leave_text(out)) {
  }
  held_.erase(0, left_);
  left_ = 0;
}

// Up to the begin of a call; false if none is there yet.
bool ToolCallReader::leave_text(ToolCallText& out) {
  const TextBeforeMarks::Part part = before_mark_.next(held(), begins_of(style_));
  give_text(part.text, out);
  if (part.mark.empty()) {
    left_ += part.text.size();
    return false;
  }
  before_call_ = held().substr(part.text.size(), part.end - part.text.size());
  left_ += part.end;
  begin_call(part.mark);
  return true;
}

void ToolCallReader::begin_call(std::string_view mark) {
  in_call_ = true;
  end_of_call_ = MarkSearch();
  const XmlMarks* const marks =
      mark == kFunctionMarks.name_begin ? &kUnopenedFunctionMarks : xml_marks_or_null(style_);
  if (marks != nullptr) xml_call_.emplace(*marks, types_);
  if (style_ == ToolCallStyle::kListed) listed_calls_.emplace();
}

// Up to its end; false if that is not there yet.
bool ToolCallReader::leave_call(ToolCallText& out) {
  if (xml_call_.has_value()) return leave_xml_call(out);
  if (listed_calls_.has_value()) return leave_listed_calls(out);
  const Marks marks = marks_of(style_);
  const std::size_t end = end_of_call_.find(held(), marks.end);
  if (end == kNone) return false;
  std::string_view rest = held().substr(0, end);
  std::vector<ToolCall> calls = take_calls(style_, rest);
  if (!rest.empty() || !give_calls(std::move(calls), out)) {
    give_text(before_call_, out);
    give_text(held().substr(0, end + marks.end.size()), out);
  }
  left_ += end + marks.end.size();
  in_call_ = false;
  return true;
}

// What turns out to be no call is text from its mark on, in which another may begin behind its
// values: they were looked through for their ends, and are not once more.
bool ToolCallReader::leave_xml_call(ToolCallText& out) {
  const XmlCallReader::Outcome outcome = xml_call_->read(held());
  if (outcome == XmlCallReader::Outcome::kGoesOn) return false;
  if (outcome == XmlCallReader::Outcome::kCall) {
    give_xml_call(out);
    left_ += xml_call_->end();
  } else {
    give_text(before_call_, out);
    give_text(held().substr(0, xml_call_->values_end()), out);
    left_ += xml_call_->values_end();
  }
  xml_call_.reset();
  in_call_ = false;
  return true;
}

// What turns out to be none is text, as far as it was looked through.
bool ToolCallReader::leave_listed_calls(ToolCallText& out) {
  const ListedCallReader::Outcome outcome = listed_calls_->read(held());
  if (outcome == ListedCallReader::Outcome::kGoesOn) return false;
  if (outcome == ListedCallReader::Outcome::kCalls) {
    give_calls(listed_calls_->take_calls(), out);
  } else {
    give_text(before_call_, out);
    give_text(held().substr(0, listed_calls_->end()), out);
  }
  left_ += listed_calls_->end();
  listed_calls_.reset();
  in_call_ = false;
  return true;
}

void ToolCallReader::give_text(std::string_view text, ToolCallText& out) {
  if (after_call_) {
    text = without_space_before(text);
    after_call_ = text.empty();
  }
  out.text += text;
}

void ToolCallReader::give_xml_call(ToolCallText& out) {
  give_calls({{xml_call_->name(), xml_call_->arguments()}}, out);
}

bool ToolCallReader::give_calls(std::vector<ToolCall> calls, ToolCallText& out) {
  if (calls.empty()) return false;
  for (ToolCall& call : calls) {
    out.calls.push_back(std::move(call));
    out.places.push_back(out.text.size());
  }
  after_call_ = true;
  return true;
}

// A call whose end a model left out is one, if it is whole; so are those before one that is not.
void ToolCallReader::finish(ToolCallText& out) {
  const bool may_call = in_call_ || (style_ == ToolCallStyle::kBare && !is_plain_);
  std::string_view rest = held_;
  if (xml_call_.has_value()) {
    if (xml_call_->is_whole(held_)) {
      give_xml_call(out);
      return give_text(rest.substr(xml_call_->end()), out);
    }
  } else if (may_call && !listed_calls_.has_value() && give_calls(take_calls(style_, rest), out)) {
    return give_text(rest, out);
  }
  if (in_call_) give_text(before_call_, out);
  give_text(held_, out);
}

}  // namespace stemma
