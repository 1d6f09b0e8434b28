// A stamp is eight f32 a head, each a 24-bit integer drawn from the prefix hash. V of layer 0, head
// 0 holds, instead, the hash, the token and the position themselves in pieces of 16 bits: from it
// the chain of hashes is followed through pages whose tokens this step does not show.
#include "sim/stamp_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/prng.h"
#include "base/thread_pool.h"
#include "pool/kv_pool_factory.h"

namespace stemma {
namespace {

constexpr std::int64_t kLayers = 2;
constexpr std::int64_t kHeads = 2;
constexpr std::int64_t kHeadDim = 8;
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

// Element `dim` of the row of K or V that (layer, head) has for a token.
float expected(std::uint64_t hash, std::int64_t layer, std::int64_t head, std::int64_t dim) {
  return stamp_value(hash, (layer * kHeads + head) * kHeadDim + dim + 1);
}

const float* row_of(const void* base, const KvLayerView& view, SlotId slot) {
  const std::int64_t page = slot.value() / view.page_size;
  const std::int64_t offset = slot.value() % view.page_size;
  return static_cast<const float*>(base) + page * view.page_stride + offset * view.token_stride;
}

}  // namespace

struct StampModel::Place {
  RequestId request;
  std::int64_t position;
  SlotId slot;
  TokenId token = -1;
};

KvShape stamp_shape(std::int64_t pages, std::int64_t page_size) {
  return {.layers = kLayers,
          .pages = pages,
          .page_size = page_size,
          .heads = kHeads,
          .head_dim = kHeadDim,
          .dtype = DType::kF32};
}

std::unique_ptr<KvPool> make_stamp_pool(const KvShape& shape, KvLayout layout) {
  ThreadPool threads(1);
  auto pool = make_kv_pool(shape, layout, threads);
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
  for (std::int64_t layer = 0; layer < kLayers; ++layer) {
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
      const Place place = {batch.requests[r], batch.positions[i], batch.write_slots[i],
                           batch.tokens[i]};
      write_stamp(batch.write_slots[i], hash, place, pools.full);
      if (window_tokens_ > 0) {
        write_stamp(batch.windowed_slots[i], hash, place, *pools.windowed);
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
  if (window_tokens_ > 0) check_slots(batch, batch.windowed_slots, batch.windowed_table);
  check_slots(batch, batch.write_slots, batch.page_table);
}

void StampModel::check_slots(const KvBatch& batch, std::span<const SlotId> slots,
                             const PageTableView& table) {
  if (slots.size() != batch.tokens.size()) return report("a row has no slot");
  slots_.assign(slots.begin(), slots.end());
  std::sort(slots_.begin(), slots_.end());
  if (std::adjacent_find(slots_.begin(), slots_.end()) != slots_.end()) {
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
  std::uint64_t hash = kSeed;
  for (std::int64_t position = 0; position < prefix; ++position) {
    const SlotId slot = batch.page_table.slot(request, position);
    if (std::binary_search(slots_.begin(), slots_.end(), slot)) {
      report(fmt::format("request {} position {}: slot {} is read and written in one step",
                         batch.requests[r].value(), position, slot.value()));
    }
    const std::uint64_t before = hash;
    hash = read_stamp({batch.requests[r], position, slot}, before, pools.full);
    if (window_tokens_ > 0 && position > prefix - window_tokens_) {
      const SlotId windowed = batch.windowed_table.slot(request, position);
      if (!batch.windowed_table
               .pages_of(
                   request)[static_cast<std::size_t>(position / batch.windowed_table.page_size)]
               .valid()) {
        report(fmt::format("request {} position {}: its window has no page there",
                           batch.requests[r].value(), position));
        continue;
      }
      read_stamp({batch.requests[r], position, windowed}, before, *pools.windowed);
    }
  }
  return hash;
}

std::uint64_t StampModel::read_stamp(const Place& place, std::uint64_t before, KvPool& pool) {
  const KvLayerView first = pool.layer_view(0);
  const float* self = row_of(first.v, first, place.slot);
  std::uint64_t hash = 0;
  for (int i = 0; i < 4; ++i) {
    hash |= static_cast<std::uint64_t>(self[i]) << (16 * i);
  }
  const auto token = static_cast<TokenId>(self[4] + self[5] * 65536.0f);
  const auto position = static_cast<std::int64_t>(self[6] + self[7] * 65536.0f);
  bool right = position == place.position && hash == extend_hash(before, token);
  for (std::int64_t layer = 0; layer < kLayers; ++layer) {
    const KvLayerView view = pool.layer_view(layer);
    for (std::int64_t i = 0; i < kHeads * kHeadDim; ++i) {
      const std::int64_t head = i / kHeadDim;
      const std::int64_t at = head * view.head_stride + i % kHeadDim;
      const float stamp = expected(hash, layer, head, i % kHeadDim);
      right = right && row_of(view.k, view, place.slot)[at] == stamp;
      const bool is_self = layer == 0 && head == 0;
      right = right && (is_self || row_of(view.v, view, place.slot)[at] == -stamp);
    }
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

void StampModel::write_stamp(SlotId slot, std::uint64_t hash, const Place& place, KvPool& pool) {
  constexpr auto kRow = static_cast<std::size_t>(kHeads * kHeadDim);
  k_.resize(kRow);
  v_.resize(kRow);
  const std::int64_t target[] = {slot.value()};
  for (std::int64_t layer = 0; layer < kLayers; ++layer) {
    for (std::size_t i = 0; i < kRow; ++i) {
      const auto at = static_cast<std::int64_t>(i);
      k_[i] = expected(hash, layer, at / kHeadDim, at % kHeadDim);
      v_[i] = -k_[i];
    }
    if (layer == 0) {
      for (int i = 0; i < 4; ++i) {
        v_[static_cast<std::size_t>(i)] = static_cast<float>(piece(hash, i));
      }
      v_[4] = static_cast<float>(place.token % 65536);
      v_[5] = static_cast<float>(place.token / 65536);
      v_[6] = static_cast<float>(place.position % 65536);
      v_[7] = static_cast<float>(place.position / 65536);
    }
    const KvRows k = {k_.data(), DType::kF32, DeviceKind::kCpu, 1,
                      kHeads,    kHeadDim,    kHeads * kHeadDim};
    const KvRows v = {v_.data(), DType::kF32, DeviceKind::kCpu, 1,
                      kHeads,    kHeadDim,    kHeads * kHeadDim};
    if (const Status stored = pool.store(layer, target, k, v); !stored.ok()) {
      report(to_string(stored.error()));
    }
  }
}

void StampModel::report(const std::string& what) {
  if (fault_.empty()) {
    fault_ = what;
  }
}

}  // namespace stemma
