#include "tier/page_work.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "tier/moved_page.h"

namespace stemma {
namespace {

PageVerdict verdict_of(MoveVerdict verdict) {
  switch (verdict) {
    case MoveVerdict::kDone:
      return PageVerdict::kDone;
    case MoveVerdict::kStale:
      return PageVerdict::kMissing;
    case MoveVerdict::kCorrupt:
      return PageVerdict::kCorrupt;
    case MoveVerdict::kUntried:
    case MoveVerdict::kCancelled:
      return PageVerdict::kFailed;
  }
  return PageVerdict::kFailed;
}

void read_moves(const Transfer& job, std::vector<PageMove>& moves) {
  moves.clear();
  for (std::size_t i = 0; i < job.keys.size(); ++i) {
    moves.push_back({.from = job.from[i], .to = job.to[i], .key = job.keys[i]});
  }
}

void write_verdicts(Transfer& job, std::span<const PageMove> moves) {
  for (std::size_t i = 0; i < moves.size(); ++i) job.verdicts[i] = verdict_of(moves[i].verdict);
}

bool is_cancelled(const Transfer& job) {
  return job.cancelled.load(std::memory_order_relaxed);
}

// Tells those who wait for layers of a job.
class JobArrivals final : public LayerArrivals {
 public:
  explicit JobArrivals(Transfer& job) : job_(job) {}
  void queued(std::int64_t layer) override { job_.queue(static_cast<std::int32_t>(layer + 1)); }
  void arrived(std::int64_t layer, bool right) override {
    if (!right) job_.spoil();
    job_.arrive(static_cast<std::int32_t>(layer + 1));
  }

 private:
  Transfer& job_;
};

}  // namespace

PageFormat page_format(const KvPool& pool, PageCodec codec) {
  const KvShape& shape = pool.shape();
  return {.layers = shape.layers,
          .layer_bytes =
              codec == PageCodec::kPlain ? pool.layer_bytes() : encoded_layer_bytes(codec, shape),
          .page_size = shape.page_size,
          .heads = shape.heads,
          .head_dim = shape.head_dim,
          .dtype = shape.dtype,
          .kind = kv_kind_name(shape.kind),
          .codec = page_codec_name(codec)};
}

Result<std::unique_ptr<PageWork>> PageWork::open(Parts parts) {
  auto work = std::make_unique<PageWork>(Key(), std::move(parts));
  for (Pools& pools : work->pools_) {
    if (pools.device == nullptr) continue;
    STEMMA_ASSIGN_OR_RETURN(pools.mover, pools.device->make_mover(*pools.host));
  }
  for (std::size_t lane = 2; lane < transfer_lanes(work->parts_.stores.size()); ++lane) {
    const std::size_t wanted_bytes = lane % 2 == 0 ? kLoadBytes : kStoreBytes;
    Staging& staging = work->staging_.emplace_back();
    std::size_t bytes = 0;
    for (const Pools& pools : work->pools_) {
      if (pools.device == nullptr) continue;
      const std::size_t frame_size = frame_bytes(pools.format);
      bytes = std::max(bytes, std::max<std::size_t>(wanted_bytes / frame_size, 1) * frame_size);
    }
    STEMMA_ASSIGN_OR_RETURN(staging.frames, Buffer::allocate(bytes));
  }
  return work;
}

PageWork::PageWork(Key, Parts parts) : parts_(std::move(parts)) {
  const auto pools = [](KvPool& device, HostPool& host) {
    return Pools{&device, &host, page_format(device, host.codec()), nullptr};
  };
  pools_[0] = pools(parts_.device, parts_.host);
  const WindowedPools& windowed = parts_.windowed;
  if (windowed.device != nullptr) pools_[1] = pools(*windowed.device, *windowed.host);
}

std::span<std::byte> PageWork::frame(const Transfer& job, std::size_t number) {
  const std::size_t bytes = frame_bytes(pools_of(job).format);
  return {staging_of(job).frames.bytes() + number * bytes, bytes};
}

std::size_t PageWork::frames_at_once(const Transfer& job) {
  return staging_of(job).frames.size_bytes() / frame_bytes(pools_of(job).format);
}

void PageWork::run(Transfer& job) {
  job.started_us = parts_.clock.now_us();
  job.verdicts.assign(job.keys.size(), PageVerdict::kFailed);
  switch (job.kind) {
    case TransferKind::kBackup:
      back_up(job);
      break;
    case TransferKind::kPromote:
      promote(job);
      break;
    case TransferKind::kStore:
      in_batches(job, &PageWork::store_batch);
      renew_before(job);
      break;
    case TransferKind::kLoad:
    case TransferKind::kFetch:
      in_batches(job, &PageWork::load_batch);
      break;
    case TransferKind::kLookup:
      look_up(job);
      break;
    case TransferKind::kRemove:
      in_batches(job, &PageWork::remove_batch);
      break;
    case TransferKind::kPurge:
      purge(job);
      break;
  }
  job.ended_us = parts_.clock.now_us();
}

void PageWork::back_up(Transfer& job) {
  read_moves(job, down_);
  pools_of(job).mover->back_up(down_, [&] { return !is_cancelled(job); });
  write_verdicts(job, down_);
}

void PageWork::promote(Transfer& job) {
  read_moves(job, up_);
  JobArrivals arrivals(job);
  pools_of(job).mover->promote(
      up_, [&] { return !is_cancelled(job); }, arrivals);
  write_verdicts(job, up_);
}

// Events of a layer are those of the job that the mover promotes now: of an earlier one, which has
// ended since, they are later than they need be.
bool PageWork::wait_layer_on(Transfer& job, CudaStream& stream, std::int64_t layer) {
  job.wait_queued(layer);
  const bool waits = !job.has_arrived(layer) && pools_of(job).mover->try_wait_on(stream, layer);
  return waits ? !job.is_spoilt() : job.wait_layer(layer);
}

// What a store is asked in one call, one after another.
void PageWork::in_batches(Transfer& job, BatchWork work) {
  const std::size_t group = frames_at_once(job);
  for (std::size_t first = 0; first < job.keys.size(); first += group) {
    if (is_cancelled(job) || parts_.clock.now_us() >= job.deadline_us) return;
    (this->*work)(job, first, std::min(first + group, job.keys.size()));
  }
}

// A page that is wrong in host memory is not handed on.
void PageWork::store_batch(Transfer& job, std::size_t first, std::size_t end) {
  Staging& staging = staging_of(job);
  const PageFormat& format = pools_of(job).format;
  staging.writes.clear();
  staging.sums.resize(static_cast<std::size_t>(format.layers));
  for (std::size_t page = first; page < end; ++page) {
    const std::span<std::byte> to = frame(job, page - first);
    const auto body = to.subspan(frame_body_offset(format),
                                 static_cast<std::size_t>(format.layers * format.layer_bytes));
    job.verdicts[page] = verdict_of(
        pools_of(job).host->read_image(job.from[page], job.keys[page], body, staging.sums));
    if (job.verdicts[page] != PageVerdict::kDone) break;
    const PageIdentity identity = identity_of(job, page);
    encode_frame(format, identity, staging.sums,
                 generation_.fetch_add(1, std::memory_order_relaxed), to);
    staging.writes.push_back({.key = identity.key, .frame = to});
  }
  store_of(job).write(staging.writes, job.deadline_us);
  for (std::size_t i = 0; i < staging.writes.size(); ++i) {
    job.verdicts[first + i] = staging.writes[i].verdict;
  }
}

// Where all that is new came to be there: a store without room is not given more in its place.
void PageWork::renew_before(Transfer& job) {
  if (job.before.empty() || job.done_pages() < job.pages()) return;
  if (is_cancelled(job) || parts_.clock.now_us() >= job.deadline_us) return;
  job.lost_pages = std::ssize(job.before) - store_of(job).renew(job.before, job.deadline_us);
}

// From the store to the staging frames.
void PageWork::read_batch(Transfer& job, std::size_t first, std::size_t end) {
  Staging& staging = staging_of(job);
  staging.reads.clear();
  for (std::size_t page = first; page < end; ++page) {
    staging.reads.push_back({.key = key_of(job, page), .frame = frame(job, page - first)});
  }
  store_of(job).read(staging.reads, job.deadline_us);
}

void PageWork::load_batch(Transfer& job, std::size_t first, std::size_t end) {
  Staging& staging = staging_of(job);
  PageStore& from = store_of(job);
  read_batch(job, first, end);
  for (std::size_t page = first; page < end; ++page) {
    const PageRead& read = staging.reads[page - first];
    job.verdicts[page] = read.verdict;
    if (read.verdict != PageVerdict::kDone) continue;
    if (!job.try_begin_writing()) {
      job.verdicts[page] = PageVerdict::kFailed;
      continue;
    }
    job.verdicts[page] = take_up(job, page, read.frame);
    job.end_writing();
    if (job.verdicts[page] != PageVerdict::kCorrupt) continue;
    const PageRemoval wrong = {.key = read.key, .frame = read.frame};
    from.remove({&wrong, 1}, job.deadline_us);
  }
}

// The frame is exactly the page asked for, and its body is whole, or nothing of it is used.
PageVerdict PageWork::take_up(const Transfer& job, std::size_t page,
                              std::span<const std::byte> frame) {
  const Pools& pools = pools_of(job);
  const auto found = check_frame(frame, pools.format, identity_of(job, page));
  if (!found.ok()) return PageVerdict::kCorrupt;
  if (job.kind == TransferKind::kFetch) {
    return verdict_of(
        pools.host->write_image(job.to[page], job.keys[page], found->body, found->layer_sums));
  }
  return verdict_of(pools.mover->copy_page_in(found->body, found->layer_sums, job.to[page]));
}

void PageWork::look_up(Transfer& job) {
  std::vector<PageKey> keys;
  for (std::size_t page = 0; page < job.keys.size(); ++page) keys.push_back(key_of(job, page));
  const auto found = store_of(job).lookup(keys, job.deadline_us);
  job.found_pages = found.ok() ? *found : 0;
}

// A store removes what it is shown the bytes of. Only what it then says it has not, and says will
// stay away, is gone.
void PageWork::remove_batch(Transfer& job, std::size_t first, std::size_t end) {
  Staging& staging = staging_of(job);
  PageStore& from = store_of(job);
  read_batch(job, first, end);
  std::vector<PageRemoval> wrong;
  for (const PageRead& read : staging.reads) {
    if (read.verdict == PageVerdict::kDone) wrong.push_back({read.key, read.frame});
  }
  if (!wrong.empty()) {
    from.remove(wrong, job.deadline_us);
    from.read(staging.reads, job.deadline_us);
  }
  const auto is_gone = [](const PageRead& read) { return read.verdict == PageVerdict::kMissing; };
  if (std::none_of(staging.reads.begin(), staging.reads.end(), is_gone)) return;
  if (!from.make_removals_last(job.deadline_us).ok()) return;
  for (std::size_t page = first; page < end; ++page) {
    if (is_gone(staging.reads[page - first])) job.verdicts[page] = PageVerdict::kDone;
  }
}

void PageWork::purge(Transfer& job) {
  if (is_cancelled(job) || parts_.clock.now_us() >= job.deadline_us) return;
  PageStore& store = store_of(job);
  job.purge = job.first_page == 0
                  ? store.purge(job.namespaces, job.deadline_us)
                  : store.purge_behind(job.namespaces, job.first_page, job.deadline_us);
}

// What a store has it under: of what is removed nothing else is known.
PageKey PageWork::key_of(const Transfer& job, std::size_t page) {
  const bool named = job.group == LayerGroup::kFull || job.kind == TransferKind::kRemove;
  return named ? job.keys[page] : identity_of(job, page).key;
}

PageIdentity PageWork::identity_of(const Transfer& job, std::size_t page) {
  return moved_page(job, page, parts_.device.shape().page_size, staging_of(job).hasher);
}

}  // namespace stemma
