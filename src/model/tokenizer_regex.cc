#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/tokenizer_regex.h"

#include <pcre2.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "model/tokenizer_regex_syntax.h"
#include "model/unicode_text.h"

namespace stemma {
namespace {

constexpr std::size_t kExpressionBytesMax = std::size_t{64} << 10;
// Steps of one search: enough to go over the whole text dozens of times, too few to be felt.
constexpr std::uint32_t kStepsAtLeast = 20'000;
constexpr std::uint32_t kStepsPerByte = 64;
constexpr std::uint32_t kStepsMax = 200'000'000;
constexpr std::size_t kReplacedBytesMax = std::size_t{1} << 30;
constexpr std::uint32_t kHeapKibMax = 128 * 1024;

std::string message_of(int code) {
  unsigned char text[160] = {};
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

std::uint32_t steps_max(std::size_t text_bytes) {
  return static_cast<std::uint32_t>(
      std::min<std::size_t>(kStepsAtLeast + kStepsPerByte * text_bytes, kStepsMax));
}

struct Deleter {
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};

// One search of one text: PCRE2's work space and the place where the next attempt starts.
class Search {
 public:
  Search(const pcre2_code* code, std::string_view text)
      : code_(code),
        text_(text),
        match_(pcre2_match_data_create_from_pattern(code, nullptr)),
        context_(pcre2_match_context_create(nullptr)) {
    STEMMA_CHECK(match_ != nullptr && context_ != nullptr, "memory for a search");
    pcre2_set_match_limit(context_.get(), steps_max(text.size()));
    pcre2_set_heap_limit(context_.get(), kHeapKibMax);
  }

  // The next match, nothing at the end, or an error.
  Result<std::optional<ByteRange>> next() {
    while (at_ <= text_.size()) {
      const int found = attempt();
      if (found == PCRE2_ERROR_NOMATCH) {
        break;
      }
      if (found < 0) {
        return Error{
            ErrorCode::kTooLarge,
            "the regular expression takes too many steps on this text: " + message_of(found)};
      }
      const std::size_t* const bounds = pcre2_get_ovector_pointer(match_.get());
      const std::size_t floor = last_end_ == kNoMatchYet ? 0 : last_end_;
      const ByteRange range{std::max(bounds[0], floor), bounds[1]};
      if (range.end < range.begin) {
        break;  // \K put the start behind the end
      }
      const bool is_new = range.bytes() > 0 || last_end_ != range.end;
      at_ = range.bytes() > 0 ? range.end : after(range.end);
      if (is_new) {
        last_end_ = range.end;
        return std::optional<ByteRange>(range);
      }
    }
    return std::optional<ByteRange>();
  }

 private:
  static constexpr std::size_t kNoMatchYet = ~std::size_t{0};

  // The compiled machine code has a small stack; where it does not suffice the interpreter takes
  // over.
  int attempt() {
    const auto* text = reinterpret_cast<PCRE2_SPTR8>(text_.data());
    const int found = pcre2_match(code_, text, text_.size(), at_, PCRE2_NO_UTF_CHECK, match_.get(),
                                  context_.get());
    if (found != PCRE2_ERROR_JIT_STACKLIMIT) {
      return found;
    }
    return pcre2_match(code_, text, text_.size(), at_, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                       match_.get(), context_.get());
  }

  std::size_t after(std::size_t end) const {
    return end < text_.size() ? utf8_next(text_, end) : text_.size() + 1;
  }

  const pcre2_code* code_;
  std::string_view text_;
  std::unique_ptr<pcre2_match_data, Deleter> match_;
  std::unique_ptr<pcre2_match_context, Deleter> context_;
  std::size_t at_ = 0;
  std::size_t last_end_ = kNoMatchYet;
};

}  // namespace

void TextPattern::CodeDeleter::operator()(pcre2_real_code_8* code) const {
  pcre2_code_free(code);
}

TextPattern TextPattern::literal(std::string text) {
  STEMMA_CHECK(!text.empty(), "a plain pattern has text");
  TextPattern pattern;
  pattern.literal_ = std::move(text);
  return pattern;
}

Result<TextPattern> TextPattern::regex(std::string_view expression) {
  if (expression.size() > kExpressionBytesMax) {
    return Error{ErrorCode::kTooLarge, "the regular expression is longer than " +
                                           std::to_string(kExpressionBytesMax) + " bytes"};
  }
  STEMMA_ASSIGN_OR_RETURN(const std::string translated, translate_regex(expression));
  TextPattern pattern;
  STEMMA_ASSIGN_OR_RETURN(pattern.code_, compile(translated));
  return pattern;
}

Result<TextPattern::Code> TextPattern::compile(const std::string& expression) {
  const std::unique_ptr<pcre2_compile_context, Deleter> context(
      pcre2_compile_context_create(nullptr));
  STEMMA_CHECK(context != nullptr, "memory for a pattern");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  std::size_t where = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR8>(expression.data()), expression.size(),
                          PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                          &where, context.get()));
  if (code == nullptr) {
    return Error{ErrorCode::kUnsupported, "the regular expression is not understood at byte " +
                                              std::to_string(where) + " of " +
                                              in_quotes(expression) + ": " + message_of(error)};
  }
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);  // no machine code: the interpreter serves
  return code;
}

Result<TextPattern> TextPattern::parse(const JsonField& field) {
  STEMMA_RETURN_IF_ERROR(field.expect_object());
  if (const auto plain = field.try_member("String")) {
    STEMMA_ASSIGN_OR_RETURN(const std::string_view text, plain->as_string());
    if (text.empty()) {
      return plain->unsupported("an empty pattern is not supported");
    }
    return literal(std::string(text));
  }
  STEMMA_ASSIGN_OR_RETURN(const JsonField expression, field.member("Regex"));
  STEMMA_ASSIGN_OR_RETURN(const std::string_view text, expression.as_string());
  Result<TextPattern> pattern = regex(text);
  return pattern.ok() ? std::move(pattern)
                      : expression.error(pattern.error().code, pattern.error().detail);
}

Result<std::vector<ByteRange>> TextPattern::find_all(std::string_view text) const {
  if (!is_regex()) {
    return find_literal(text);
  }
  std::vector<ByteRange> matches;
  Search search(code_.get(), text);
  while (true) {
    STEMMA_ASSIGN_OR_RETURN(const std::optional<ByteRange> match, search.next());
    if (!match) {
      return matches;
    }
    matches.push_back(*match);
  }
}

std::vector<ByteRange> TextPattern::find_literal(std::string_view text) const {
  std::vector<ByteRange> matches;
  std::size_t at = text.find(literal_);
  while (at != std::string_view::npos) {
    matches.push_back({at, at + literal_.size()});
    at = text.find(literal_, at + literal_.size());
  }
  return matches;
}

Result<std::string> TextPattern::replace_all(std::string_view text,
                                             std::string_view content) const {
  STEMMA_ASSIGN_OR_RETURN(const std::vector<ByteRange> matches, find_all(text));
  if (text.size() + matches.size() * content.size() > kReplacedBytesMax) {
    return Error{ErrorCode::kTooLarge, "a replacement makes the text longer than 1 GiB"};
  }
  std::string out;
  std::size_t at = 0;
  for (const ByteRange& match : matches) {
    out.append(text.substr(at, match.begin - at)).append(content);
    at = match.end;
  }
  return out.append(text.substr(at));
}

std::size_t TextPattern::growth_max(std::string_view content) const {
  if (is_regex()) {
    return 2 * content.size() + 1;  // an empty match before, and after, every character
  }
  return std::max<std::size_t>(1, (content.size() + literal_.size() - 1) / literal_.size());
}

}  // namespace stemma
