// Any texts, ids, logprobs and errors as a stream of server-sent events: whatever they are, each
// event is one line of JSON behind "data: ", and a reader of such streams finds every event again.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "openai/completion_answer.h"

namespace {

// Takes values off the input's front; zeros behind its end.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size)
      : left_(reinterpret_cast<const char*>(data), size) {}

  template <typename T>
  T number() {
    T value = {};
    const std::size_t size = std::min(sizeof value, left_.size());
    std::memcpy(&value, left_.data(), size);
    left_.remove_prefix(size);
    return value;
  }
  std::string text() {
    const std::size_t size = std::min<std::size_t>(number<std::uint8_t>(), left_.size());
    const std::string text(left_.substr(0, size));
    left_.remove_prefix(size);
    return text;
  }
  bool empty() const { return left_.empty(); }

 private:
  std::string_view left_;
};

// As the HTML standard reads a stream: lines end with \n, \r or \r\n, an empty line ends an event.
void check_event(const std::string& event) {
  constexpr std::string_view kBegin = "data: ";
  const bool framed = event.starts_with(kBegin) && event.ends_with("\n\n") &&
                      event.find_first_of("\r\n") == event.size() - 2;
  if (!framed || event.find('\0') != std::string::npos) std::abort();
  const std::string_view json = std::string_view(event).substr(kBegin.size());
  if (!stemma::TemplateJson::accept(json)) std::abort();
}

stemma::TokenChance chance(Input& input) {
  stemma::TokenChance chance;
  chance.token = {input.text(), input.number<float>()};
  for (int i = input.number<std::uint8_t>() % 3; i > 0; --i) {
    chance.likeliest.push_back({input.text(), input.number<float>()});
  }
  return chance;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  stemma::AnswerHead head;
  const auto flags = input.number<std::uint8_t>();
  head.kind = (flags & 1) != 0 ? stemma::CompletionKind::kChat : stemma::CompletionKind::kText;
  head.gives_tokens = (flags & 2) != 0;
  head.counts_usage = (flags & 4) != 0;
  head.id = input.text();
  head.model = input.text();
  const std::string first = stemma::first_event(head, input.number<std::int64_t>());
  if (!first.empty()) check_event(first);
  while (!input.empty()) {
    stemma::AnswerPiece piece;
    piece.index = input.number<std::int64_t>();
    piece.text = input.text();
    for (int i = input.number<std::uint8_t>() % 4; i > 0; --i)
      piece.chances.push_back(chance(input));
    for (int i = input.number<std::uint8_t>() % 4; i > 0; --i) {
      piece.tokens.push_back(input.number<stemma::TokenId>());
    }
    if (input.number<std::uint8_t>() % 2 == 0) piece.finish_reason = "stop";
    if ((flags & 16) != 0) {
      piece.usage_so_far = {.prompt_tokens = 1, .completion_tokens = piece.index / 4};
    }
    check_event(stemma::piece_event(head, piece, (flags & 8) != 0));
    check_event(stemma::error_event(stemma::field_error(input.text(), input.text())));
  }
  const stemma::AnswerUsage usage = {input.number<std::int64_t>() / 4, 1, 0};
  check_event(stemma::usage_event(head, &usage, stemma::TemplateJson()));
  return 0;
}
