#include "store/disk_scan.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "device/buffer.h"
#include "prefix/page_key.h"

namespace stemma {

namespace {

constexpr std::int64_t kBatchBytes = std::int64_t{4} << 20;

// Of a slot that could not be read.
Error unreadable(const DiskRead& read) {
  switch (read.outcome) {
    case DiskOutcome::kShort:
      return {ErrorCode::kCorrupt, "the file ends before the slot"};
    case DiskOutcome::kOverdue:
      return {ErrorCode::kDeadline, "reading takes too long"};
    default:
      return {ErrorCode::kIo, "cannot read", read.sys_errno};
  }
}

class SlabScan {
 public:
  SlabScan(DiskFiles& files, const DiskSlabs::Slab& slab, ScanDepth depth, std::int64_t deadline_us)
      : files_(files), slab_(slab), depth_(depth), deadline_us_(deadline_us) {}

  Status start(std::int64_t slots) {
    each_bytes_ = depth_ == ScanDepth::kFrames
                      ? slab_.name.slot_bytes
                      : std::min<std::int64_t>(slab_.name.slot_bytes, kFrameAlignment);
    const std::int64_t batch =
        std::min(slots, std::max<std::int64_t>(1, kBatchBytes / each_bytes_));
    STEMMA_ASSIGN_OR_RETURN(batch_,
                            Buffer::allocate(static_cast<std::size_t>(batch * each_bytes_)));
    STEMMA_ASSIGN_OR_RETURN(frame_,
                            Buffer::allocate(static_cast<std::size_t>(slab_.name.slot_bytes)));
    batch_slots_ = batch;
    return {};
  }

  // How many slots there is room for at once.
  std::int64_t batch_slots() const noexcept { return batch_slots_; }

  // So many at most.
  template <typename Visitor>
  void visit(std::span<const std::int32_t> slots, Visitor&& visitor) {
    const auto each = static_cast<std::size_t>(each_bytes_);
    std::vector<DiskRead> reads;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      reads.push_back({slab_.file, slots[i] * slab_.name.slot_bytes,
                       batch_.as<std::byte>().subspan(i * each, each)});
    }
    files_.read(DiskLane::kWrite, reads, deadline_us_);
    for (std::size_t i = 0; i < slots.size(); ++i) visitor(slots[i], view_of(reads[i]));
  }

 private:
  Result<PageFrameView> view_of(const DiskRead& read) {
    if (read.outcome != DiskOutcome::kDone) return unreadable(read);
    if (depth_ == ScanDepth::kHeaders) return header_of(read);
    STEMMA_ASSIGN_OR_RETURN(const PageFrameView view, read_frame(read.bytes));
    STEMMA_RETURN_IF_ERROR(check_body(view));
    if (hasher_.next(view.identity.parent, view.identity.tokens) != view.identity.key) {
      return Error{ErrorCode::kCorrupt, "page frame: key is not that of its tokens"};
    }
    return view;
  }

  Result<PageFrameView> header_of(const DiskRead& read) {
    const std::span<std::byte> frame = frame_.as<std::byte>();
    std::memcpy(frame.data(), read.bytes.data(), read.bytes.size());
    const std::size_t header_bytes = peek_body_offset(read.bytes, frame.size());
    if (header_bytes > read.bytes.size()) {
      DiskRead longer = {read.file, read.offset_bytes, frame.first(header_bytes)};
      files_.read(DiskLane::kWrite, std::span(&longer, 1), deadline_us_);
      if (longer.outcome != DiskOutcome::kDone) return unreadable(longer);
    }
    return read_frame(frame);
  }

  DiskFiles& files_;
  const DiskSlabs::Slab& slab_;
  ScanDepth depth_;
  std::int64_t deadline_us_;
  std::int64_t each_bytes_ = 0;
  std::int64_t batch_slots_ = 0;
  Buffer batch_;
  Buffer frame_;
  PageKeyHasher hasher_;
};

}  // namespace

Status scan_slab(DiskFiles& files, const DiskSlabs::Slab& slab, ScanDepth depth,
                 FunctionRef<void(std::int32_t slot, const Result<PageFrameView>&)> visitor,
                 std::int64_t deadline_us) {
  SlabScan scan(files, slab, depth, deadline_us);
  STEMMA_RETURN_IF_ERROR(scan.start(slab.slots));
  std::vector<std::int32_t> slots;
  for (std::int64_t first = 0; first < slab.slots; first += scan.batch_slots()) {
    slots.resize(static_cast<std::size_t>(std::min(scan.batch_slots(), slab.slots - first)));
    std::iota(slots.begin(), slots.end(), static_cast<std::int32_t>(first));
    scan.visit(slots, visitor);
  }
  return {};
}

Status scan_headers(DiskFiles& files, const DiskSlabs::Slab& slab,
                    std::span<const std::int32_t> slots,
                    FunctionRef<void(std::int32_t slot, const Result<PageFrameView>&)> visitor,
                    std::int64_t deadline_us) {
  if (slots.empty()) return {};
  SlabScan scan(files, slab, ScanDepth::kHeaders, deadline_us);
  STEMMA_RETURN_IF_ERROR(scan.start(std::ssize(slots)));
  for (std::size_t first = 0; first < slots.size();) {
    const std::size_t batch =
        std::min(static_cast<std::size_t>(scan.batch_slots()), slots.size() - first);
    scan.visit(slots.subspan(first, batch), visitor);
    first += batch;
  }
  return {};
}

}  // namespace stemma
