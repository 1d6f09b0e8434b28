#include "cuda/named_backend.h"

#include <charconv>

#include "cuda/open_cuda_backend.h"

namespace stemma {

namespace {

constexpr std::string_view kCuda = "cuda";

// N of "cuda:N", 0 of "cuda"; nullopt for anything else.
std::optional<int> ordinal_of(std::string_view device) {
  if (device == kCuda) return 0;
  if (!device.starts_with(kCuda) || device.size() < kCuda.size() + 2) return std::nullopt;
  const std::string_view digits = device.substr(kCuda.size() + 1);
  int ordinal = 0;
  const char* const end = digits.data() + digits.size();
  const auto [read, error] = std::from_chars(digits.data(), end, ordinal);
  const bool whole = error == std::errc() && read == end && ordinal >= 0;
  return whole && device[kCuda.size()] == ':' ? std::optional(ordinal) : std::nullopt;
}

}  // namespace

Result<std::optional<int>> parse_device(std::string_view name) {
  if (name == "cpu") return std::optional<int>();
  const std::optional<int> ordinal = ordinal_of(name);
  if (ordinal.has_value()) return ordinal;
  return Error{ErrorCode::kInvalidArgument,
               "device must be cpu, cuda or cuda:N (got " + std::string(name) + ")"};
}

Result<std::unique_ptr<DeviceBackend>> open_named_backend(const std::string& name,
                                                          const CudaRunnerOptions& options,
                                                          const RankGroup* ranks_or_null) {
  const Result<std::optional<int>> named = parse_device(name);
  if (!named.ok()) return Error{named.error().code, "--" + named.error().detail, 0};
  const std::optional<int> ordinal = *named;
  if (!ordinal.has_value()) return std::unique_ptr<DeviceBackend>();
  if (ranks_or_null == nullptr) return open_cuda_backend(*ordinal, options);
  if (name == kCuda) return open_cuda_backend(*ranks_or_null, options);
  return Error{ErrorCode::kInvalidArgument,
               "--device " + name +
                   ": with --tensor-parallel every rank takes the GPU of its own number; say cuda"};
}

}  // namespace stemma
