// HeavyChannels: which channels of K make most of a score, for each layer and KV head, as a
// calibration found them. What a pool keeps of K in these channels are its labels.
//
// Thread:     a value.
// Memory:     4 bytes a channel, head and layer.
// Cost:       none.
// Not here:   labels (double_sparse_pool), how channels are found and filed (model/calibration).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "stemma/kv_shape.h"
#include "stemma/result.h"

namespace stemma {

struct HeavyChannels {
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t channels_each = 0;      // of one layer and head
  std::vector<std::int32_t> channels;  // [layers, heads, channels_each]

  // Those of one layer.   [heads, channels_each]   REQUIRES: validate_heavy_channels is ok.
  std::span<const std::int32_t> of_layer(std::int64_t layer) const {
    const auto each = static_cast<std::size_t>(heads * channels_each);
    return std::span(channels).subspan(static_cast<std::size_t>(layer) * each, each);
  }

  // Those of `count` heads of every layer, from `first` on. REQUIRES: it has these heads.
  HeavyChannels of_heads(std::int64_t first, std::int64_t count) const;

  friend bool operator==(const HeavyChannels&, const HeavyChannels&) = default;
};

// kInvalidArgument naming the field, unless they are those of a pool of `shape`: its layers, heads
// and label_channels, each channel below head_dim, those of a head ascending.
Status validate_heavy_channels(const HeavyChannels& channels, const KvShape& shape);

}  // namespace stemma
