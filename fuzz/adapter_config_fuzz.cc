// Any bytes as an adapter_config.json: an error of one line, or a scale and a rank that can be
// used.
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
  STEMMA_CHECK_GT(config->rank, 0);
  STEMMA_CHECK(std::isfinite(config->scale), "a scale is a number");
  static_cast<void>(config->names("model.layers.0.self_attn.q_proj", 0));
  return 0;
}
