// DiskScan: what lies in the slots of a slab, whatever an index says.
//
// Thread:     one; on the write lane.
// Memory:     a few MiB, and a frame.
// Cost:       headers: 4 KiB a slot. frames: all bytes.
// Not here:   what is done about it (disk_check, the store's opening).
#pragma once

#include <cstdint>
#include <span>

#include "base/function_ref.h"
#include "stemma/result.h"
#include "store/disk_files.h"
#include "store/disk_slabs.h"
#include "tier/page_frame.h"

namespace stemma {

enum class ScanDepth : std::uint8_t {
  kHeaders,  // read_frame of each; bodies are not read
  kFrames,   // and check_body of each, and its key against its tokens
};

// Calls `visitor` with each slot, in order, and what is in it: an error where it cannot be read or
// is no frame. The view is good during the call; of kHeaders its body is not. kOutOfMemory.
Status scan_slab(DiskFiles& files, const DiskSlabs::Slab& slab, ScanDepth depth,
                 FunctionRef<void(std::int32_t slot, const Result<PageFrameView>&)> visitor,
                 std::int64_t deadline_us);
// The same of the headers of these slots.
Status scan_headers(DiskFiles& files, const DiskSlabs::Slab& slab,
                    std::span<const std::int32_t> slots,
                    FunctionRef<void(std::int32_t slot, const Result<PageFrameView>&)> visitor,
                    std::int64_t deadline_us);

}  // namespace stemma
