#include "pool/cuda_pool.h"

#include <atomic>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "pool/cuda_coded_mover.h"
#include "pool/cuda_page_mover.h"

namespace stemma {
namespace {

std::int64_t next_number() {
  static std::atomic<std::int64_t> last = 0;
  return ++last;
}

}  // namespace

Result<std::unique_ptr<CudaPool>> CudaPool::create(CudaDevice& device, const KvShape& shape,
                                                   KvLayout layout, HeavyChannels channels) {
  STEMMA_RETURN_IF_ERROR(validate(shape));
  if (shape.kind == KvKind::kDoubleSparse) {
    STEMMA_RETURN_IF_ERROR(validate_heavy_channels(channels, shape));
  }
  auto pool = std::make_unique<CudaPool>(Key(), device, shape, layout);
  STEMMA_RETURN_IF_ERROR(pool->allocate(std::move(channels)));
  return pool;
}

Result<std::unique_ptr<CudaPool>> CudaPool::create(std::unique_ptr<CudaDevice> device,
                                                   const KvShape& shape, KvLayout layout) {
  STEMMA_ASSIGN_OR_RETURN(auto pool, create(*device, shape, layout));
  pool->owned_device_ = std::move(device);
  return pool;
}

CudaPool::CudaPool(Key, CudaDevice& device, const KvShape& shape, KvLayout layout)
    : number_(next_number()), device_(device), arrays_(shape, layout, nullptr) {}

Status CudaPool::allocate(HeavyChannels channels) {
  const auto bytes = static_cast<std::size_t>(PoolArrays::total_bytes(shape()));
  STEMMA_ASSIGN_OR_RETURN(stream_, device_.make_stream());
  STEMMA_ASSIGN_OR_RETURN(used_, device_.make_event());
  STEMMA_ASSIGN_OR_RETURN(memory_, device_.allocate(bytes, stream_));
  arrays_ = PoolArrays(shape(), layout(), memory_.bytes());
  STEMMA_RETURN_IF_ERROR(stream_.fill(memory_.bytes(), 0, bytes));
  if (shape().kind != KvKind::kDoubleSparse) return stream_.synchronize();
  const std::size_t channel_bytes = channels.channels.size() * sizeof(std::int32_t);
  STEMMA_ASSIGN_OR_RETURN(channels_, device_.allocate(channel_bytes, stream_));
  STEMMA_ASSIGN_OR_RETURN(const PinnedMemory pinned, device_.allocate_pinned(channel_bytes));
  if (channel_bytes > 0) std::memcpy(pinned.bytes(), channels.channels.data(), channel_bytes);
  STEMMA_RETURN_IF_ERROR(stream_.copy_in(channels_.bytes(), pinned.bytes(), channel_bytes));
  return stream_.synchronize();
}

Status CudaPool::store_on(CudaStream& stream, std::int64_t layer, const DeviceSlots& slots,
                          const KvRows& k, const KvRows& v) {
  STEMMA_RETURN_IF_ERROR(arrays_.check_rows(layer, slots.count, k, v, DeviceKind::kCuda));
  if (!arrays_.is_latent() && v.dtype != k.dtype) {
    return Error{ErrorCode::kInvalidArgument, "store: k and v are of different dtypes", 0};
  }
  const auto source = [](const KvRows& rows) {
    return StoreSource{static_cast<const std::byte*>(rows.elements), rows.row_stride};
  };
  return store_rows_on(stream, {.target = store_target(layer),
                                .slots = slots,
                                .source_dtype = k.dtype,
                                .k = source(k),
                                .v = arrays_.is_latent() ? StoreSource{} : source(v)});
}

StoreTarget CudaPool::store_target(std::int64_t layer) const {
  const KvLayerView view = layer_view(layer);
  StoreTarget target;
  target.k = arrays_.keys().layer_begin(layer);
  if (!arrays_.is_latent()) target.v = arrays_.values().layer_begin(layer);
  target.dtype = view.dtype;
  target.page_size = static_cast<std::int32_t>(view.page_size);
  target.heads = static_cast<std::int32_t>(view.heads);
  target.head_dim = static_cast<std::int32_t>(view.head_dim);
  target.slots = shape().slots();
  target.page_stride = view.page_stride;
  target.token_stride = view.token_stride;
  target.k_scales = arrays_.keys().layer_scales(layer);
  target.v_scales = arrays_.values().layer_scales(layer);
  target.scale_page_stride = view.scale_page_stride;
  target.scale_head_stride = view.scale_head_stride;
  if (view.labels == nullptr) return target;
  target.labels = arrays_.labels().layer_begin(layer);
  target.heavy_channels = view.heavy_channels;
  target.label_channels = static_cast<std::int32_t>(view.label_channels);
  target.label_page_stride = view.label_page_stride;
  target.label_token_stride = view.label_token_stride;
  target.label_head_stride = view.label_head_stride;
  return target;
}

Status CudaPool::store(std::int64_t layer, std::span<const std::int64_t> slots, const KvRows& k,
                       const KvRows& v) {
  return store_from_host(layer, slots, k, v);
}

Status CudaPool::store(std::int64_t layer, std::span<const std::int32_t> slots, const KvRows& k,
                       const KvRows& v) {
  return store_from_host(layer, slots, k, v);
}

template <typename Slot>
Status CudaPool::store_from_host(std::int64_t layer, std::span<const Slot> slots, const KvRows& k,
                                 const KvRows& v) {
  const auto count = static_cast<std::int64_t>(slots.size());
  STEMMA_RETURN_IF_ERROR(arrays_.check_rows(layer, count, k, v, DeviceKind::kCuda));
  STEMMA_RETURN_IF_ERROR(check_places(shape(), layer, slots));
  if (slots.empty()) return {};
  const std::lock_guard lock(mutex_);
  return queue_and_wait([&]() -> Status {
    STEMMA_RETURN_IF_ERROR(upload_slots(slots));
    DeviceSlots places;
    places.count = count;
    if constexpr (sizeof(Slot) == sizeof(std::int32_t)) {
      places.narrow = device_slots_.as<std::int32_t>();
    } else {
      places.wide = device_slots_.as<std::int64_t>();
    }
    return store_on(stream_, layer, places, k, v);
  });
}

// What `queue` queues on the pool's own stream, after what computes by now. Where only some of it
// could be queued that is waited for too: pages of the caller's are nobody else's then (I6).
template <typename Queue>
Status CudaPool::queue_and_wait(Queue queue) {
  STEMMA_RETURN_IF_ERROR(device_.use_in_thread());
  Status queued = wait_for_use(stream_);
  if (queued.ok()) queued = queue();
  const Status done = stream_.synchronize();
  return queued.ok() ? done : queued;
}

template <typename Slot>
Status CudaPool::upload_slots(std::span<const Slot> slots) {
  const std::size_t bytes = slots.size_bytes();
  if (pinned_slots_.size_bytes() < bytes) {
    STEMMA_ASSIGN_OR_RETURN(PinnedMemory pinned, device_.allocate_pinned(2 * bytes));
    STEMMA_ASSIGN_OR_RETURN(device_slots_, device_.allocate(2 * bytes, stream_));
    pinned_slots_ = std::move(pinned);  // it says how long both are
  }
  std::memcpy(pinned_slots_.bytes(), slots.data(), bytes);
  return stream_.copy_in(device_slots_.bytes(), pinned_slots_.bytes(), bytes);
}

Status CudaPool::record_use(CudaStream& stream) {
  return stream.record(used_);
}

Status CudaPool::copy_page_on(CudaStream& stream, PageId from, PageId to) {
  for (std::int64_t layer = 0; layer < shape().layers; ++layer) {
    for (const PagePiece<std::byte>& piece : layer_pieces(layer)) {
      STEMMA_RETURN_IF_ERROR(
          stream.copy(piece.of(to), piece.of(from), static_cast<std::size_t>(piece.bytes)));
    }
  }
  return {};
}

Status CudaPool::copy_page(PageId from, PageId to) {
  const std::lock_guard lock(mutex_);
  return queue_and_wait([&] { return copy_page_on(stream_, from, to); });
}

// All pieces of the page, one behind the other.
Status CudaPool::copy_image_on(CudaStream& stream, PageId page, std::byte* image) {
  for (std::int64_t layer = 0; layer < shape().layers; ++layer) {
    for (const PagePiece<std::byte>& piece : layer_pieces(layer)) {
      const auto bytes = static_cast<std::size_t>(piece.bytes);
      STEMMA_RETURN_IF_ERROR(stream.copy_out(image, piece.of(page), bytes));
      image += bytes;
    }
  }
  return {};
}

Result<std::optional<std::int64_t>> CudaPool::first_different_layer(PageId a, PageId b) {
  const auto bytes = static_cast<std::size_t>(layer_bytes());
  const std::size_t image_bytes = bytes * static_cast<std::size_t>(shape().layers);
  const std::lock_guard lock(mutex_);
  STEMMA_RETURN_IF_ERROR(device_.use_in_thread());
  if (compared_.size_bytes() == 0) {
    STEMMA_ASSIGN_OR_RETURN(compared_, device_.allocate_pinned(2 * image_bytes));
  }
  const std::byte* first = compared_.bytes();
  const std::byte* second = first + image_bytes;
  const auto copy_both = [&]() -> Status {
    STEMMA_RETURN_IF_ERROR(copy_image_on(stream_, a, compared_.bytes()));
    return copy_image_on(stream_, b, compared_.bytes() + image_bytes);
  };
  STEMMA_RETURN_IF_ERROR(queue_and_wait(copy_both));
  for (std::int64_t layer = 0; layer < shape().layers; ++layer) {
    if (std::memcmp(first, second, bytes) != 0) return std::optional(layer);
    first += bytes;
    second += bytes;
  }
  return std::optional<std::int64_t>();
}

KvLayerView CudaPool::layer_view(std::int64_t layer) const {
  KvLayerView view = arrays_.layer_view(layer);
  if (view.labels != nullptr) {
    view.heavy_channels = channels_.as<std::int32_t>() + layer * view.heads * view.label_channels;
  }
  return view;
}

Result<std::unique_ptr<PageMover>> CudaPool::make_mover(HostPool& host) {
  if (host.codec() != PageCodec::kPlain) {
    STEMMA_ASSIGN_OR_RETURN(auto coded, CudaCodedMover::open(*this, host));
    return std::unique_ptr<PageMover>(std::move(coded));
  }
  STEMMA_ASSIGN_OR_RETURN(auto mover, CudaPageMover::open(*this, host));
  return std::unique_ptr<PageMover>(std::move(mover));
}

}  // namespace stemma
