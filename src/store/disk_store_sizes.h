// The sizes and times that the parts of the disk store share.
//
// Thread:     constants and pure functions.
// Memory:     none.
// Cost:       none.
// Not here:   what a person sets (DiskPageStoreOptions).
#pragma once

#include <cstdint>

#include "store/disk_index.h"

namespace stemma {

// The index has a cell for each page and one for each change since it was last written anew, and is
// there twice while that is done. So it is written anew before its changes are as many as the
// slots; then the two files together need at most three cells a slot. The rest is for descriptions
// and for the changes of a call.
inline constexpr std::int64_t kIndexBytesPerSlot = 3 * kIndexCellBytes;
inline constexpr std::int64_t kIndexBytesFixed = std::int64_t{256} << 10;
inline constexpr std::int64_t kDescriptionsBytesMax = std::int64_t{96} << 10;

// What index files may need beside so many slots.
constexpr std::int64_t index_bytes_reserved(std::int64_t slots) noexcept {
  return kIndexBytesFixed + kIndexBytesPerSlot * slots;
}
// What one may have before it is written anew.
constexpr std::int64_t index_bytes_max(std::int64_t slots) noexcept {
  return kIndexBytesFixed - kDescriptionsBytesMax + 2 * kIndexCellBytes * slots;
}

// Pages that are taken down for the index at once, or passed over when others are to go, while a
// look-up waits: some 0.1 ms.
inline constexpr std::int64_t kIndexPiecePages = 1024;

// A slab is a share of the limit, and not too small a file; on a file system without room for one
// that much smaller ones are tried.
inline constexpr std::int64_t kSlabsInLimit = 128;
inline constexpr std::int64_t kSlabBytesMin = std::int64_t{16} << 20;
constexpr std::int64_t least_slab_bytes(std::int64_t slab_bytes) noexcept {
  return slab_bytes / 8 < kSlabBytesMin ? slab_bytes / 8 : kSlabBytesMin;
}

// A disk that had no room for any slab is asked again after this time.
inline constexpr std::int64_t kGrowAgainUs = 60'000'000;

// A write of several frames is not longer: what fails costs no more pages than that.
inline constexpr std::size_t kBodyWriteBytesMax = std::size_t{512} << 10;

// At most this share of the slots is emptied before they are wanted: one in so many.
inline constexpr std::int64_t kAheadShare = 8;

}  // namespace stemma
