#include "model/stop_strings.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace stemma {
namespace {

constexpr std::size_t kStringsMax = 16;
constexpr std::size_t kStringBytesMax = 1024;

std::size_t at(std::int32_t state) {
  return static_cast<std::size_t>(state);
}

std::int32_t next_state(std::string_view text, std::span<const std::int32_t> fallback,
                        std::int32_t state, char byte) {
  while (state > 0 && text[at(state)] != byte) state = fallback[at(state)];
  return text[at(state)] == byte ? state + 1 : 0;
}

// [text.size() + 1]: of each prefix, the length of its longest border that is shorter than itself.
std::vector<std::int32_t> borders(std::string_view text) {
  std::vector<std::int32_t> fallback(text.size() + 1, 0);
  std::int32_t state = 0;
  for (std::size_t i = 1; i < text.size(); ++i) {
    state = next_state(text, fallback, state, text[i]);
    fallback[i + 1] = state;
  }
  return fallback;
}

}  // namespace

Status StopStrings::validate(std::span<const std::string> stop) {
  if (stop.size() > kStringsMax) {
    return Error{ErrorCode::kInvalidArgument, "stop must have at most " +
                                                  std::to_string(kStringsMax) + " strings (got " +
                                                  std::to_string(stop.size()) + ")"};
  }
  for (const std::string& text : stop) {
    if (!text.empty() && text.size() <= kStringBytesMax) continue;
    return Error{ErrorCode::kInvalidArgument,
                 "stop must have strings of 1 to " + std::to_string(kStringBytesMax) +
                     " bytes (got one of " + std::to_string(text.size()) + ")"};
  }
  return {};
}

StopStrings::StopStrings(std::vector<std::string> stop, Match match) : match_(match) {
  STEMMA_CHECK(validate(stop).ok(), "stop strings are validated where a request is admitted");
  std::size_t longest = 0;
  for (std::string& text : stop) {
    longest = std::max(longest, text.size());
    std::vector<std::int32_t> fallback = borders(text);
    patterns_.push_back({std::move(text), std::move(fallback), 0});
  }
  held_.reserve(longest);
}

bool StopStrings::push(std::string_view piece, std::string& out) {
  STEMMA_CHECK(!finished_, "no text follows the end");
  if (patterns_.empty()) {
    out += piece;
    return false;
  }
  for (const char byte : piece) {
    advance(byte);
    matched_ = longest_complete();
    show(out);
    if (!matched_.has_value()) continue;
    if (match_ == Match::kShown) out += held_;
    finished_ = true;
    return true;
  }
  return false;
}

void StopStrings::pass(std::string_view piece, std::string& out) {
  STEMMA_CHECK(!finished_, "no text follows the end");
  if (patterns_.empty()) {
    out += piece;
    return;
  }
  for (const char byte : piece) {
    advance(byte);
    for (Pattern& pattern : patterns_) {
      if (pattern.complete()) pattern.state = pattern.fallback[at(pattern.state)];
    }
    show(out);
  }
}

void StopStrings::advance(char byte) {
  held_.push_back(byte);
  for (Pattern& pattern : patterns_) {
    pattern.state = next_state(pattern.text, pattern.fallback, pattern.state, byte);
  }
}

std::optional<std::size_t> StopStrings::longest_complete() const {
  std::optional<std::size_t> longest;
  for (std::size_t i = 0; i < patterns_.size(); ++i) {
    if (!patterns_[i].complete()) continue;
    if (!longest || patterns_[i].text.size() > patterns_[*longest].text.size()) longest = i;
  }
  return longest;
}

void StopStrings::show(std::string& out) {
  std::int32_t wanted = 0;  // bytes at the end that are, or may become, a stop string
  for (const Pattern& pattern : patterns_) {
    if (!matched_.has_value() || pattern.complete()) wanted = std::max(wanted, pattern.state);
  }
  const std::size_t shown = held_.size() - at(wanted);
  out.append(held_, 0, shown);
  held_.erase(0, shown);
}

void StopStrings::finish(std::string& out) {
  STEMMA_CHECK(!finished_, "a text ends once");
  finished_ = true;
  out += held_;
  held_.clear();
}

}  // namespace stemma
