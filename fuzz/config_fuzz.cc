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
  const stemma::MixtureConfig& mixture = config->mixture;
  if (mixture.experts > 0) {
    STEMMA_CHECK_EQ(static_cast<std::int64_t>(mixture.layers.size()), config->layers);
    STEMMA_CHECK_EQ(mixture.experts % mixture.groups, 0);
    STEMMA_CHECK_LE(mixture.experts_per_token, mixture.groups_per_token * mixture.group_experts());
  }
  STEMMA_CHECK_LE(config->latent.rank, config->head_dim);
  for (const stemma::TokenId token : config->end_tokens) {
    STEMMA_CHECK(token >= 0 && token < config->vocab_tokens, "ids lie in the vocabulary");
  }
  return 0;
}
