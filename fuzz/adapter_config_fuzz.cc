// Any bytes as an adapter_config.json: an error of one line, or ranks and scales that can be used,
// of matrices that no pattern names and of those that one does.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "model/adapter_config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size_bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), size_bytes);
  const auto config = stemma::parse_adapter_config(text, "f");
  if (!config.ok()) {
    STEMMA_CHECK(config.error().detail.find('\n') == std::string::npos, "errors are one line");
    return 0;
  }
  for (const std::string_view path :
       {"model.layers.0.self_attn.q_proj", "model.layers.1.mlp.down_proj", "lm_head"}) {
    static_cast<void>(config->names(path, 0));
    const auto strength = config->strength_of(path);
    if (!strength.ok()) continue;
    STEMMA_CHECK_GT(strength->rank, 0);
    STEMMA_CHECK(std::isfinite(strength->scale), "a scale is a number");
  }
  return 0;
}
