// CpuDevice: the processor itself as a device: prefaulted memory and parallel copies.
//
// Thread:     one thread at a time (it uses the thread pool).
// Memory:     what it allocates belongs to the caller.
// Cost:       allocate pays the first touch of every page; copy runs at the bandwidth of all
// threads together. Not here:   scattered copies of pages (pool/), other devices.
#pragma once

#include <cstddef>
#include <span>

#include "base/thread_pool.h"
#include "device/buffer.h"
#include "stemma/device.h"
#include "stemma/result.h"

namespace stemma {

class CpuDevice {
 public:
  // `pool` must outlive the device.
  explicit CpuDevice(ThreadPool& pool) noexcept : pool_(pool) {}

  DeviceKind kind() const noexcept { return DeviceKind::kCpu; }

  // Zeroed memory whose pages are all present. kOutOfMemory if it cannot be had.
  Result<Buffer> allocate(std::size_t size_bytes);

  // Copies `source` to `target`. REQUIRES: same size; they do not overlap.
  void copy(std::span<std::byte> target, std::span<const std::byte> source);

 private:
  ThreadPool& pool_;
};

}  // namespace stemma
