// Device: the kinds of memory and arithmetic that the data plane can run on.
//
// Thread:     a plain enum.
// Memory:     none.
// Cost:       none.
// Not here:   what a device does (cpu_device.h).
#pragma once

#include <cstdint>
#include <string_view>

namespace stemma {

enum class DeviceKind : std::uint8_t { kCpu, kCuda };

// "cpu" or "cuda", for options, errors and JSON.
constexpr std::string_view device_kind_name(DeviceKind kind) noexcept {
  return kind == DeviceKind::kCpu ? "cpu" : "cuda";
}

}  // namespace stemma
