// Any bytes as a config.json: an error of one line, or extents that can be multiplied.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "model/config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size_bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), size_bytes);
  const auto config = stemma::parse_config(text, "f");
  if (!config.ok()) {
    STEMMA_CHECK(config.error().detail.find('\n') == std::string::npos, "errors are one line");
    return 0;
  }
  STEMMA_CHECK_EQ(config->query_heads % config->kv_heads, 0);
  STEMMA_CHECK_EQ(config->head_dim % 2, 0);
  STEMMA_CHECK_GT(config->query_columns(), 0);
  for (const stemma::TokenId token : config->end_tokens) {
    STEMMA_CHECK(token >= 0 && token < config->vocab_tokens, "ids lie in the vocabulary");
  }
  return 0;
}
