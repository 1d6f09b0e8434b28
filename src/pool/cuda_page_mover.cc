#include "pool/cuda_page_mover.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/math.h"
#include "pool/sum_tables.h"

namespace stemma {

namespace {

constexpr std::int64_t kLayerBytesMax = std::int64_t{1} << 30;
constexpr std::size_t kHostPageBytes = 4096;
constexpr std::size_t kTurns = 2;

}  // namespace

CudaPageMover::Pin::~Pin() {
  if (bytes_ != nullptr) device_->unpin(bytes_);
}

Status CudaPageMover::Pin::pin(CudaDevice& device, std::span<std::byte> memory) {
  if (memory.empty()) return {};
  STEMMA_RETURN_IF_ERROR(device.pin(memory.data(), round_up(memory.size(), kHostPageBytes)));
  device_ = &device;
  bytes_ = memory.data();
  return {};
}

Result<std::unique_ptr<CudaPageMover>> CudaPageMover::open(CudaPool& pool, HostPool& host,
                                                           const Options& options) {
  STEMMA_CHECK(host.codec() == PageCodec::kPlain, "pages as the device has them");
  if (pool.layer_bytes() >= kLayerBytesMax) {
    return Error{ErrorCode::kUnsupported, "a layer of a page of a GiB and more", 0};
  }
  STEMMA_CHECK_EQ(pool.shape().layers, host.layers());
  STEMMA_CHECK_EQ(pool.layer_bytes(), host.layer_bytes());
  auto mover = std::make_unique<CudaPageMover>(Key(), pool, host, options);
  STEMMA_RETURN_IF_ERROR(mover->open_all());
  return mover;
}

CudaPageMover::CudaPageMover(Key, CudaPool& pool, HostPool& host, const Options& options)
    : pool_(pool), host_(host), options_(options), whole_(pages_of(pool)) {
  const std::int64_t pages = options.backup_bytes / std::max<std::int64_t>(host.page_bytes(), 1);
  backup_pages_ = static_cast<std::size_t>(std::clamp<std::int64_t>(pages, 1, pool.shape().pages));
}

Status CudaPageMover::open_all() {
  const auto pages = static_cast<std::size_t>(pool_.shape().pages);
  const auto layers = static_cast<std::size_t>(pool_.shape().layers);
  CudaDevice& device = pool_.cuda_device();
  STEMMA_RETURN_IF_ERROR(pin_.pin(device, host_.memory()));
  STEMMA_RETURN_IF_ERROR(open_streams());
  const std::size_t backup_sums = kTurns * static_cast<std::size_t>(turn_words());
  STEMMA_RETURN_IF_ERROR(open_lane(down_, pages, backup_sums, kTurns));
  // Layers ahead of as many pages as there are; of fewer pages more layers, but not more bytes.
  const auto sums = static_cast<std::size_t>(
      std::max(kLayersAheadMin * pool_.shape().pages,
               options_.promote_bytes / std::max<std::int64_t>(host_.layer_bytes(), 1)));
  const auto least = layers * static_cast<std::size_t>(kSumWordsMin);
  STEMMA_RETURN_IF_ERROR(
      open_lane(up_, pages, std::max(std::min(sums, layers * pages), least), layers));
  STEMMA_RETURN_IF_ERROR(open_lane(in_, 1, static_cast<std::size_t>(sum_words(host_.layers())), 0));
  listed_.reserve(pages);
  STEMMA_RETURN_IF_ERROR(load_page_copies());
  STEMMA_ASSIGN_OR_RETURN(staging_,
                          device.allocate_pinned(static_cast<std::size_t>(host_.page_bytes())));
  return upload_tables();
}

Status CudaPageMover::open_streams() {
  CudaDevice& device = pool_.cuda_device();
  for (int i = 0; i < options_.streams; ++i) {
    STEMMA_ASSIGN_OR_RETURN(CudaStream down, device.make_stream());
    STEMMA_ASSIGN_OR_RETURN(CudaStream up, device.make_urgent_stream());  // who computes waits
    down_.streams.push_back(std::move(down));
    up_.streams.push_back(std::move(up));
  }
  STEMMA_ASSIGN_OR_RETURN(CudaStream in, device.make_urgent_stream());
  in_.streams.push_back(std::move(in));
  return {};
}

Status CudaPageMover::open_lane(Lane& lane, std::size_t pairs, std::size_t sums,
                                std::size_t events) {
  CudaDevice& device = pool_.cuda_device();
  STEMMA_ASSIGN_OR_RETURN(lane.pairs, device.allocate(pairs * sizeof(PagePair), lane.first()));
  STEMMA_ASSIGN_OR_RETURN(lane.host_pairs, device.allocate_pinned(pairs * sizeof(PagePair)));
  STEMMA_ASSIGN_OR_RETURN(lane.sums, device.allocate_pinned(sums * sizeof(std::uint32_t)));
  for (std::size_t i = 0; i < events; ++i) {
    STEMMA_ASSIGN_OR_RETURN(CudaEvent event, device.make_sleeper());
    lane.events.push_back(std::move(event));
  }
  STEMMA_ASSIGN_OR_RETURN(lane.listed, device.make_event());
  return {};
}

Status CudaPageMover::Lane::send_pairs(std::size_t count) {
  STEMMA_RETURN_IF_ERROR(
      first().copy_in(pairs.bytes(), host_pairs.bytes(), count * sizeof(PagePair)));
  if (streams.size() == 1) return {};
  STEMMA_RETURN_IF_ERROR(first().record(listed));
  for (CudaStream& other : std::span(streams).subspan(1)) {
    STEMMA_RETURN_IF_ERROR(other.wait_for(listed));
  }
  return {};
}

Status CudaPageMover::Lane::synchronize() {
  Status all;
  for (CudaStream& stream : streams) {
    const Status one = stream.synchronize();
    if (all.ok()) all = one;
  }
  return all;
}

Status CudaPageMover::upload_tables() {
  CudaDevice& device = pool_.cuda_device();
  const std::vector<std::uint32_t> tables = make_sum_tables();
  const std::size_t bytes = tables.size() * sizeof(std::uint32_t);
  STEMMA_ASSIGN_OR_RETURN(tables_, device.allocate(bytes, down_.first()));
  STEMMA_ASSIGN_OR_RETURN(const PinnedMemory pinned, device.allocate_pinned(bytes));
  std::memcpy(pinned.bytes(), tables.data(), bytes);
  STEMMA_RETURN_IF_ERROR(down_.first().copy_in(tables_.bytes(), pinned.bytes(), bytes));
  whole_.tables = tables_.as<std::uint32_t>();
  return down_.first().synchronize();
}

PageImages CudaPageMover::host_images() const {
  PageImages images = images_of(host_);
  images.in_reach = pool_.cuda_device().traits().kernels_reach_pinned;
  return images;
}

PageCopy CudaPageMover::copy_of(const Batch& batch, const PageImages& images) const {
  PageCopy copy = whole_;
  copy.images = images;
  copy.pages = batch.device_pairs;
  copy.count = static_cast<std::int64_t>(batch.pairs.size());
  copy.first_layer = batch.layers.first;
  copy.layers = batch.layers.layers();
  copy.sums = batch.sums;
  return copy;
}

void CudaPageMover::check_move(PageId device_page) const {
  STEMMA_CHECK(device_page.valid() && device_page.value() < pool_.shape().pages, "a device page");
}

// While one batch is copied, the next one is queued and the one before is sealed.
void CudaPageMover::back_up(std::span<PageMove> moves, GoOn go_on) {
  for (const PageMove& move : moves) {
    STEMMA_CHECK(move.verdict == MoveVerdict::kUntried, "a page is backed up once");
    check_move(move.from);
    host_.forget(move.to);
  }
  bool going = pool_.cuda_device().use_in_thread().ok() && list_backup(moves).ok();
  Batch queued;
  for (std::size_t first = 0; going && first < moves.size() && go_on(); first += backup_pages_) {
    const Batch next = backup_batch(first, std::min(backup_pages_, moves.size() - first));
    going = queue_backup(next).ok();
    seal_backup(moves, queued);
    queued = going ? next : Batch();
  }
  seal_backup(moves, queued);
  ignore_error(down_.synchronize(), "what is not sealed is cancelled");
  for (PageMove& move : moves) {
    if (move.verdict == MoveVerdict::kUntried) move.verdict = MoveVerdict::kCancelled;
  }
}

// Sums of a turn.
std::int64_t CudaPageMover::turn_words() const {
  return sum_words(static_cast<std::int64_t>(backup_pages_) * host_.layers());
}

Status CudaPageMover::list_backup(std::span<const PageMove> moves) {
  STEMMA_CHECK_LE(std::ssize(moves), pool_.shape().pages);  // sources differ
  PagePair* pair = down_.host_pairs.as<PagePair>();
  for (const PageMove& move : moves) *pair++ = {move.from.value(), move.to.value()};
  for (CudaStream& stream : down_.streams) STEMMA_RETURN_IF_ERROR(pool_.wait_for_use(stream));
  return down_.send_pairs(moves.size());
}

// So many moves of the list from `first` on, which begins a batch.
CudaPageMover::Batch CudaPageMover::backup_batch(std::size_t first, std::size_t count) {
  const std::size_t turn = first / backup_pages_;
  auto* const sums = down_.sums.as<std::uint32_t>();
  return {.pairs = {down_.host_pairs.as<PagePair>() + first, count},
          .device_pairs = down_.pairs.as<PagePair>() + first,
          .sums = sums + static_cast<std::int64_t>(turn % kTurns) * turn_words(),
          .layers = {0, host_.layers()},
          .turn = turn,
          .done = &down_.events[turn % kTurns]};
}

Status CudaPageMover::queue_backup(const Batch& batch) {
  CudaStream& stream = down_.stream(batch.turn);
  const PageCopy copy = copy_of(batch, host_images());
  STEMMA_RETURN_IF_ERROR(queue_pages_out(stream, copy, batch.pairs, best_way(copy)));
  return stream.record(*batch.done);
}

// What the batch has copied answers for its keys, if it has.
void CudaPageMover::seal_backup(std::span<PageMove> moves, const Batch& batch) {
  if (batch.pairs.empty() || !batch.done->wait().ok()) return;
  const auto layers = static_cast<std::size_t>(host_.layers());
  gather_sums(copy_of(batch, host_images()));
  const std::uint32_t* sums = batch.sums;
  for (PageMove& move : moves.subspan(batch.turn * backup_pages_, batch.pairs.size())) {
    host_.seal(move.to, move.key, {sums, layers});
    move.verdict = MoveVerdict::kDone;
    sums += layers;
  }
}

void CudaPageMover::promote(std::span<PageMove> moves, GoOn go_on, LayerArrivals& arrivals) {
  bool going = pool_.cuda_device().use_in_thread().ok() && list_promotion(moves).ok();
  const std::int64_t layers = host_.layers();
  std::int64_t queued = 0;
  std::int64_t settled = 0;
  do {
    while (going && queued < std::min(settled + layers_ahead_, layers)) {
      going = go_on() && queue_layer(queued).ok();
      if (going) arrivals.queued(queued++);
    }
    const bool there = layers == 0 ? going : settled < queued && settle_layer(moves, settled);
    going = going && there;
    const bool right = std::all_of(moves.begin(), moves.end(), [](const PageMove& move) {
      return move.verdict == MoveVerdict::kUntried;
    });
    arrivals.arrived(settled, there && right);
  } while (++settled < layers);
  ignore_error(up_.synchronize(), "what did not come is cancelled");
  for (PageMove& move : moves) {
    if (move.verdict != MoveVerdict::kUntried) continue;
    move.verdict = going ? MoveVerdict::kDone : MoveVerdict::kCancelled;
  }
}

Status CudaPageMover::list_promotion(std::span<PageMove> moves) {
  STEMMA_CHECK_LE(std::ssize(moves), pool_.shape().pages);  // targets differ
  auto* const pairs = up_.host_pairs.as<PagePair>();
  listed_.clear();
  for (std::size_t i = 0; i < moves.size(); ++i) {
    PageMove& move = moves[i];
    STEMMA_CHECK(move.verdict == MoveVerdict::kUntried, "a page is promoted once");
    check_move(move.to);
    if (!host_.holds(move.from, move.key)) {
      move.verdict = MoveVerdict::kStale;
      continue;
    }
    pairs[listed_.size()] = {move.to.value(), move.from.value()};
    listed_.push_back(i);
  }
  layers_ahead_ = layers_ahead(std::ssize(listed_));
  return up_.send_pairs(listed_.size());
}

// The fewer pages there are the more.
std::int64_t CudaPageMover::layers_ahead(std::int64_t pages) const {
  const std::int64_t bytes = std::max<std::int64_t>(pages * host_.layer_bytes(), 1);
  const std::int64_t layers = std::max(options_.promote_bytes / bytes, kLayersAheadMin);
  return std::clamp<std::int64_t>(layers, 1, std::max<std::int64_t>(host_.layers(), 1));
}

// Sums are there of as many layers as are queued ahead.
CudaPageMover::Batch CudaPageMover::layer_batch(std::int64_t layer) {
  const std::int64_t turn = layer % layers_ahead_;
  return {.pairs = {up_.host_pairs.as<PagePair>(), listed_.size()},
          .device_pairs = up_.pairs.as<PagePair>(),
          .sums = up_.sums.as<std::uint32_t>() + turn * sum_words(std::ssize(listed_)),
          .layers = {layer, layer + 1},
          .turn = static_cast<std::size_t>(layer),
          .done = &up_.events[static_cast<std::size_t>(layer)]};
}

Status CudaPageMover::queue_layer(std::int64_t layer) {
  const Batch batch = layer_batch(layer);
  CudaStream& stream = up_.stream(batch.turn);
  const PageCopy copy = copy_of(batch, host_images());
  STEMMA_RETURN_IF_ERROR(queue_pages_in(stream, copy, batch.pairs, best_way(copy)));
  return stream.record(*batch.done);
}

// Waits for it. False if the device has failed.
bool CudaPageMover::settle_layer(std::span<PageMove> moves, std::int64_t layer) {
  const Batch batch = layer_batch(layer);
  if (!batch.done->wait().ok()) return false;
  gather_sums(copy_of(batch, host_images()));
  const std::uint32_t* const sums = batch.sums;
  for (std::size_t i = 0; i < listed_.size(); ++i) {
    PageMove& move = moves[listed_[i]];
    const bool right = sums[i] == host_.layer_sums(move.from)[static_cast<std::size_t>(layer)];
    if (!right) move.verdict = MoveVerdict::kCorrupt;
  }
  return true;
}

// The default stream is that of the thread's GPU.
bool CudaPageMover::try_wait_on(CudaStream& stream, std::int64_t layer) {
  if (!pool_.cuda_device().use_in_thread().ok()) return false;
  return stream.wait_for(up_.events[static_cast<std::size_t>(layer)]).ok();
}

MoveVerdict CudaPageMover::copy_page_in(std::span<const std::byte> image,
                                        std::span<const std::uint32_t> sums, PageId page) {
  check_move(page);
  STEMMA_CHECK_EQ(image.size(), static_cast<std::size_t>(host_.page_bytes()));
  STEMMA_CHECK_EQ(sums.size(), static_cast<std::size_t>(host_.layers()));
  if (image.empty()) return MoveVerdict::kDone;
  const std::lock_guard lock(in_mutex_);
  std::memcpy(staging_.bytes(), image.data(), image.size());
  auto* const pair = in_.host_pairs.as<PagePair>();
  *pair = {page.value(), 0};
  const Batch batch = {.pairs = {pair, 1},
                       .device_pairs = in_.pairs.as<PagePair>(),
                       .sums = in_.sums.as<std::uint32_t>(),
                       .layers = {0, host_.layers()}};
  const PageCopy copy = copy_of(batch, {staging_.bytes(), host_.layer_bytes(), 0});
  Status queued = pool_.cuda_device().use_in_thread();
  if (queued.ok()) queued = in_.send_pairs(1);
  if (queued.ok()) queued = queue_pages_in(in_.first(), copy, batch.pairs, best_way(copy));
  const Status done = in_.synchronize();
  if (!queued.ok() || !done.ok()) return MoveVerdict::kCancelled;
  gather_sums(copy);
  const bool right = std::equal(sums.begin(), sums.end(), batch.sums);
  return right ? MoveVerdict::kDone : MoveVerdict::kCorrupt;
}

}  // namespace stemma
