// SharedCopy: bytes that an emulated thread copies to shared memory, begun and not yet waited for.
//
// Thread:     the thread's that asked for it.
// Memory:     none of its own.
// Cost:       a copy of sixteen bytes.
// Not here:   groups of them, and when they are waited for (simt.cc).
#pragma once

#include <cstddef>
#include <cstring>

#include "device/simt_races.h"

namespace stemma::simt {

struct SharedCopy {
  void* to;
  const void* from_or_null;  // nullptr: zeros
  std::size_t bytes;         // 4 or 16
  const void* code;          // that asked for it
  bool done = false;

  void finish() {
    if (done) return;
    done = true;
    if (from_or_null == nullptr) {
      std::memset(to, 0, bytes);
    } else {
      std::memcpy(to, from_or_null, bytes);
    }
  }

  // It may happen now: when it is begun, and until it is waited for.
  void note() const {
    RaceTrace* const trace = running_trace();
    if (trace == nullptr) return;
    if (from_or_null != nullptr) trace->touch(from_or_null, bytes, Access::kRead, code);
    trace->touch(to, bytes, Access::kWrite, code);
  }
};

}  // namespace stemma::simt
