// Fuzz target: any bytes as a tokenizer.json. One that is accepted must encode, decode and stream
// without harm, and both ways to decode must agree.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "model/detokenizer.h"
#include "model/tokenizer.h"

namespace {

constexpr std::string_view kText =
    "Hi <s> hello  w\u00F6rld 12\u00BD \xFF\xF0\x9F\xA6\x99!\n\n  <|end|>";

void use(const stemma::Tokenizer& tokenizer, stemma::EncodeOptions options) {
  const auto tokens = tokenizer.encode(kText, options);
  if (!tokens.ok()) {
    return;
  }
  stemma::Detokenizer detokenizer(tokenizer, !options.add_special_tokens);
  std::string joined;
  for (const stemma::TokenId token : tokens.value()) {
    joined += detokenizer.push(token);
  }
  joined += detokenizer.flush();
  STEMMA_CHECK(joined == tokenizer.decode(tokens.value(), !options.add_special_tokens),
               "streamed pieces join to the decoded text");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string_view json(reinterpret_cast<const char*>(bytes), size);
  const auto tokenizer = stemma::Tokenizer::parse(json, "fuzz.json");
  if (tokenizer.ok()) {
    use(tokenizer.value(), {.add_special_tokens = true, .parse_special_tokens = true});
    use(tokenizer.value(), {.add_special_tokens = false, .parse_special_tokens = false});
  }
  return 0;
}
