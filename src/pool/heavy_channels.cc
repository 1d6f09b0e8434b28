#include "pool/heavy_channels.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/check.h"

namespace stemma {

namespace {

Error invalid(std::string detail) {
  return Error{ErrorCode::kInvalidArgument, "heavy channels: " + std::move(detail), 0};
}

Status check_head(std::span<const std::int32_t> head, std::int64_t place, const KvShape& shape) {
  for (std::size_t i = 0; i < head.size(); ++i) {
    const bool ascends = i == 0 || head[i] > head[i - 1];
    if (head[i] >= 0 && head[i] < shape.head_dim && ascends) continue;
    return invalid(fmt::format(
        "channels of layer {}, head {} must ascend within 0 ... head_dim - 1 = {} (got {})",
        place / shape.heads, place % shape.heads, shape.head_dim - 1, fmt::join(head, " ")));
  }
  return {};
}

}  // namespace

HeavyChannels HeavyChannels::of_heads(std::int64_t first, std::int64_t count) const {
  STEMMA_CHECK(0 <= first && 0 <= count && first + count <= heads, "heads that it has");
  HeavyChannels part = {layers, count, channels_each, {}};
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const auto here = of_layer(layer).subspan(static_cast<std::size_t>(first * channels_each),
                                              static_cast<std::size_t>(count * channels_each));
    part.channels.insert(part.channels.end(), here.begin(), here.end());
  }
  return part;
}

Status validate_heavy_channels(const HeavyChannels& channels, const KvShape& shape) {
  if (channels.layers != shape.layers || channels.heads != shape.heads ||
      channels.channels_each != shape.label_channels) {
    return invalid(fmt::format(
        "are of {} layers, {} heads, {} channels each, the pool of {}, {}, {}", channels.layers,
        channels.heads, channels.channels_each, shape.layers, shape.heads, shape.label_channels));
  }
  const auto each = static_cast<std::size_t>(channels.channels_each);
  const auto heads = static_cast<std::size_t>(channels.layers * channels.heads);
  if (channels.channels.size() != heads * each) {
    return invalid(
        fmt::format("{} channels, {} are wanted", channels.channels.size(), heads * each));
  }
  for (std::size_t head = 0; head < heads; ++head) {
    STEMMA_RETURN_IF_ERROR(check_head(std::span(channels.channels).subspan(head * each, each),
                                      static_cast<std::int64_t>(head), shape));
  }
  return {};
}

}  // namespace stemma
