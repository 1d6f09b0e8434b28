// A stamp is a row of f32 a head, each a 24-bit integer drawn from the prefix hash and the layer,
// of which those of windowed layers are others. The first eight of V of layer 0, head 0 are,
// instead, the hash, the token and the position themselves in pieces of 16 bits: from them the
// chain of hashes is followed through pages whose tokens this step does not show.
#include "sim/stamp_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "base/check.h"
#include "base/prng.h"
#include "base/thread_pool.h"
#include "pool/kv_pool_factory.h"

namespace stemma {
namespace {

constexpr std::int64_t kLayers = 2;
constexpr std::int64_t kHeads = 2;
constexpr std::int64_t kSelfDims = 8;  // of what a token says of itself
constexpr std::int64_t kLatentDims = 12;
constexpr std::int64_t kSparseDims = 24;
constexpr std::int64_t kLabelChannels = 8;
constexpr std::int64_t kFirstWindowedLayer = 100;  // of stamps
constexpr std::uint64_t kSeed = 0x57454D4D41ull;

std::uint64_t extend_hash(std::uint64_t before, TokenId token) {
  return mix64(before ^ mix64(static_cast<std::uint64_t>(token) + 1));
}

float stamp_value(std::uint64_t hash, std::int64_t salt) {
  return static_cast<float>(mix64(hash + static_cast<std::uint64_t>(salt) * 0x9E37u) >> 40);
}

std::uint64_t piece(std::uint64_t value, int number) {
  return (value >> (16 * number)) & 0xFFFF;
}

float logit(std::uint64_t hash, TokenId token) {
  return stamp_value(hash ^ 0xABCDu, token);
}

TokenId likeliest(std::uint64_t hash) {
  TokenId best = 0;
  for (TokenId token = 1; token < kStampVocab; ++token) {
    if (logit(hash, token) > logit(hash, best)) {
      best = token;
    }
  }
  return best;
}

const float* row_of(const void* base, const KvLayerView& view, SlotId slot) {
  const std::int64_t page = slot.value() / view.page_size;
  const std::int64_t offset = slot.value() % view.page_size;
  return static_cast<const float*>(base) + page * view.page_stride + offset * view.token_stride;
}

// Whether the heads of a row are those, side by side, of `wanted`.
bool holds(const float* row, const KvLayerView& view, const std::vector<float>& wanted) {
  const std::int64_t dims = std::ssize(wanted) / view.heads;
  for (std::int64_t head = 0; head < view.heads; ++head) {
    const auto begin = wanted.begin() + head * dims;
    if (!std::equal(begin, begin + dims, row + head * view.head_stride)) return false;
  }
  return true;
}

// Whether a token's labels are its K in the heavy channels.
bool labels_agree(const KvLayerView& view, SlotId slot, const std::vector<float>& k) {
  if (view.labels == nullptr) return true;
  const float* label = static_cast<const float*>(view.labels) +
                       slot.value() / view.page_size * view.label_page_stride +
                       slot.value() % view.page_size * view.label_token_stride;
  const std::int32_t* channel = view.heavy_channels;
  for (std::int64_t head = 0; head < view.heads; ++head, label += view.label_head_stride) {
    for (std::int64_t i = 0; i < view.label_channels; ++i, ++channel) {
      if (label[i] != k[static_cast<std::size_t>(head * view.head_dim + *channel)]) return false;
    }
  }
  return true;
}

// Others in every layer and head.
HeavyChannels stamp_channels(const KvShape& shape) {
  HeavyChannels channels = {.layers = shape.layers,
                            .heads = shape.heads,
                            .channels_each = shape.label_channels,
                            .channels = {}};
  for (std::int64_t row = 0; row < shape.layers * shape.heads; ++row) {
    for (std::int64_t i = 0; i < shape.label_channels; ++i) {
      channels.channels.push_back(static_cast<std::int32_t>(2 * i + row % 3));
    }
  }
  return channels;
}

}  // namespace

struct StampModel::Place {
  RequestId request;
  std::int64_t position;
  SlotId slot;
  TokenId token = -1;
};

// A pool, and the number that stamps have for its first layer.
struct StampModel::Stamped {
  KvPool& pool;
  std::int64_t first_layer = 0;
};

KvShape stamp_shape(std::int64_t pages, std::int64_t page_size, KvKind kind) {
  KvShape shape = {.layers = kLayers,
                   .pages = pages,
                   .page_size = page_size,
                   .heads = kHeads,
                   .head_dim = kSelfDims,
                   .dtype = DType::kF32,
                   .kind = kind};
  if (kind == KvKind::kMla) {
    shape.heads = 1;
    shape.head_dim = kLatentDims;
    shape.latent_dim = kSelfDims;
  } else if (kind == KvKind::kDoubleSparse) {
    shape.head_dim = kSparseDims;
    shape.label_channels = kLabelChannels;
  }
  return shape;
}

std::unique_ptr<KvPool> make_stamp_pool(const KvShape& shape, KvLayout layout) {
  ThreadPool threads(1);
  const bool sparse = shape.kind == KvKind::kDoubleSparse;
  auto pool =
      make_kv_pool(shape, layout, threads, sparse ? stamp_channels(shape) : HeavyChannels());
  STEMMA_CHECK(pool.ok(), "a small pool can always be made");
  return std::move(pool).value();
}

std::vector<TokenId> stamp_output(std::span<const TokenId> prompt, std::int64_t output_tokens) {
  std::uint64_t hash = kSeed;
  for (const TokenId token : prompt) {
    hash = extend_hash(hash, token);
  }
  std::vector<TokenId> output;
  for (std::int64_t i = 0; i < output_tokens; ++i) {
    output.push_back(likeliest(hash));
    hash = extend_hash(hash, output.back());
  }
  return output;
}

Result<LogitsView> StampModel::forward(const KvBatch& batch, KvPools pools) {
  if (std::exchange(fail_next_, false)) {
    return Error{ErrorCode::kInternal, "the step failed on purpose"};
  }
  check_batch(batch);
  for (std::int64_t layer = 0; layer < pools.full.shape().layers; ++layer) {
    if (batch.arriving != nullptr && !batch.arriving->wait(layer)) {
      return Error{ErrorCode::kCorrupt, "a page that was still arriving is wrong"};
    }
  }
  logits_.resize(static_cast<std::size_t>(batch.outputs() * kStampVocab));
  std::size_t output = 0;
  for (std::size_t r = 0; r < batch.requests.size(); ++r) {
    const auto request = static_cast<std::int64_t>(r);
    std::uint64_t hash = check_prefix(batch, request, pools);
    for (std::int32_t row = batch.row_indptr[r]; row < batch.row_indptr[r + 1]; ++row) {
      const auto i = static_cast<std::size_t>(row);
      hash = extend_hash(hash, batch.tokens[i]);
      Place place = {batch.requests[r], batch.positions[i], batch.write_slots[i], batch.tokens[i]};
      write_stamp(hash, place, {pools.full});
      if (window_tokens_ > 0) {
        place.slot = batch.windowed_slots[i];
        write_stamp(hash, place, {*pools.windowed, kFirstWindowedLayer});
      }
      if (tear_next_ && row >= static_cast<std::int32_t>(batch.rows() / 2)) {
        tear_next_ = false;
        return Error{ErrorCode::kInternal, "the step was torn on purpose"};
      }
      if (output < batch.logit_rows.size() && batch.logit_rows[output] == row) {
        for (TokenId token = 0; token < kStampVocab; ++token) {
          logits_[output * kStampVocab + static_cast<std::size_t>(token)] = logit(hash, token);
        }
        ++output;
      }
    }
  }
  computed_tokens_ += batch.rows();
  if (!fault_.empty()) {
    return Error{ErrorCode::kCorrupt, fault_};
  }
  return LogitsView{logits_.data(), batch.outputs(), kStampVocab};
}

// The arrays agree with one another, and no slot is written twice.
void StampModel::check_batch(const KvBatch& batch) {
  check_slots(batch, batch.write_slots, batch.page_table, slots_);
  if (window_tokens_ > 0) {
    check_slots(batch, batch.windowed_slots, batch.windowed_table, windowed_slots_);
  }
}

void StampModel::check_slots(const KvBatch& batch, std::span<const SlotId> slots,
                             const PageTableView& table, std::vector<SlotId>& sorted) {
  if (slots.size() != batch.tokens.size()) return report("a row has no slot");
  sorted.assign(slots.begin(), slots.end());
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    report("a slot is written twice in one step");
  }
  for (std::size_t r = 0; r < batch.requests.size(); ++r) {
    const auto request = static_cast<std::int64_t>(r);
    const std::int64_t rows = batch.row_indptr[r + 1] - batch.row_indptr[r];
    std::int64_t position = table.tokens_of(request) - rows;
    for (std::int32_t row = batch.row_indptr[r]; row < batch.row_indptr[r + 1]; ++row, ++position) {
      const auto i = static_cast<std::size_t>(row);
      if (batch.positions[i] != position || slots[i] != table.slot(request, position)) {
        report(fmt::format("request {} row {}: position or slot contradicts the page table",
                           batch.requests[r].value(), row));
      }
    }
  }
}

// Checks every slot of a request before this step's rows; the hash of that prefix.
std::uint64_t StampModel::check_prefix(const KvBatch& batch, std::int64_t request,
                                       const KvPools& pools) {
  const auto r = static_cast<std::size_t>(request);
  const std::int64_t rows = batch.row_indptr[r + 1] - batch.row_indptr[r];
  const std::int64_t prefix = batch.page_table.tokens_of(request) - rows;
  if (window_tokens_ > 0) check_window(batch, request, prefix);
  std::optional<std::uint64_t> hash = kSeed;  // nullopt: of tokens that no layer sees any more
  for (std::int64_t position = 0; position < prefix && fault_.empty(); ++position) {
    const std::optional<std::uint64_t> before = std::exchange(hash, std::nullopt);
    Place place = {batch.requests[r], position, batch.page_table.slot(request, position)};
    check_not_written(place, slots_);
    if (pools.full.shape().layers > 0) hash = read_stamp(place, before, {pools.full});
    if (window_tokens_ > 0 && position > prefix - window_tokens_) {
      place.slot = batch.windowed_table.slot(request, position);
      check_not_written(place, windowed_slots_);
      hash = read_stamp(place, before, {*pools.windowed, kFirstWindowedLayer});
    }
  }
  return hash.value_or(kSeed);
}

// A request names the windowed pages that its next token reads, and none before them.
void StampModel::check_window(const KvBatch& batch, std::int64_t request, std::int64_t prefix) {
  const auto pages = batch.windowed_table.pages_of(request);
  const std::int64_t first = std::max<std::int64_t>(prefix - window_tokens_ + 1, 0);
  for (std::int64_t page = 0; page < std::ssize(pages); ++page) {
    const bool in_window = page >= first / batch.windowed_table.page_size;
    if (pages[static_cast<std::size_t>(page)].valid() != in_window) {
      report(fmt::format("request {} at position {}: page {} is {} its window and has {} there",
                         batch.requests[static_cast<std::size_t>(request)].value(), prefix, page,
                         in_window ? "in" : "before", in_window ? "none" : "one"));
    }
  }
}

void StampModel::check_not_written(const Place& place, const std::vector<SlotId>& written) {
  if (!std::binary_search(written.begin(), written.end(), place.slot)) return;
  report(fmt::format("request {} position {}: slot {} is read and written in one step",
                     place.request.value(), place.position, place.slot.value()));
}

// Compares all that a slot holds with what belongs there behind `before`; the hash that it says is
// its own.
std::uint64_t StampModel::read_stamp(const Place& place, std::optional<std::uint64_t> before,
                                     const Stamped& stamped) {
  const KvLayerView first = stamped.pool.layer_view(0);
  const float* self = row_of(first.v, first, place.slot);
  std::uint64_t hash = 0;
  for (int i = 0; i < 4; ++i) {
    hash |= static_cast<std::uint64_t>(self[i]) << (16 * i);
  }
  const auto token = static_cast<TokenId>(self[4] + self[5] * 65536.0f);
  const auto position = static_cast<std::int64_t>(self[6] + self[7] * 65536.0f);
  bool right = position == place.position;
  if (before.has_value()) right = right && hash == extend_hash(*before, token);
  const Place wanted = {place.request, place.position, place.slot, token};
  for (std::int64_t layer = 0; layer < stamped.pool.shape().layers && right; ++layer) {
    const KvLayerView view = stamped.pool.layer_view(layer);
    fill_rows(hash, wanted, layer, stamped);
    right = holds(row_of(view.k, view, place.slot), view, k_) &&
            holds(row_of(view.v, view, place.slot), view, v_) && labels_agree(view, place.slot, k_);
  }
  ++checked_slots_;
  if (!right) {
    report(
        fmt::format("request {} position {}: slot {} holds the stamp of another token (its own "
                    "says position {})",
                    place.request.value(), place.position, place.slot.value(), position));
  }
  return hash;
}

void StampModel::write_stamp(std::uint64_t hash, const Place& place, const Stamped& stamped) {
  const KvShape& shape = stamped.pool.shape();
  const std::int64_t target[] = {place.slot.value()};
  const auto as_rows = [&](const std::vector<float>& row) {
    return KvRows{.elements = row.data(),
                  .dtype = DType::kF32,
                  .rows = 1,
                  .heads = shape.heads,
                  .head_dim = shape.head_dim,
                  .row_stride = shape.row_elements()};
  };
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    fill_rows(hash, place, layer, stamped);
    const bool latent = shape.kind == KvKind::kMla;
    const Status stored =
        stamped.pool.store(layer, target, as_rows(k_), latent ? KvRows() : as_rows(v_));
    if (!stored.ok()) report(to_string(stored.error()));
  }
}

// The rows of K and V of a token: of a latent row, V is what the first columns of K are.
void StampModel::fill_rows(std::uint64_t hash, const Place& place, std::int64_t layer,
                           const Stamped& stamped) {
  const KvShape& shape = stamped.pool.shape();
  const bool latent = shape.kind == KvKind::kMla;
  const std::int64_t elements = shape.row_elements();
  k_.resize(static_cast<std::size_t>(elements));
  for (std::int64_t i = 0; i < elements; ++i) {
    k_[static_cast<std::size_t>(i)] =
        stamp_value(hash, (stamped.first_layer + layer) * elements + i + 1);
  }
  v_ = k_;
  if (!latent) std::transform(k_.begin(), k_.end(), v_.begin(), std::negate<>());
  if (layer == 0) {
    for (int i = 0; i < 4; ++i) {
      v_[static_cast<std::size_t>(i)] = static_cast<float>(piece(hash, i));
    }
    v_[4] = static_cast<float>(place.token % 65536);
    v_[5] = static_cast<float>(place.token / 65536);
    v_[6] = static_cast<float>(place.position % 65536);
    v_[7] = static_cast<float>(place.position / 65536);
  }
  if (!latent) return;
  k_ = v_;
  v_.resize(static_cast<std::size_t>(shape.value_dim()));
}

void StampModel::report(const std::string& what) {
  if (fault_.empty()) {
    fault_ = what;
  }
}

}  // namespace stemma
