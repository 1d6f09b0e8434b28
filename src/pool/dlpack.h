// DLPack: a strided tensor handed to torch, numpy or jax without a copy.
//
// The structures are the binary interface of DLPack 1.x (dmlc/dlpack, dlpack.h: version 1, flags,
// device and type codes, the versioned managed tensor), in Stemma's own words.
//
// Thread:     the deleter may be called from any thread, once.
// Memory:     one small allocation an export, freed by the deleter; the elements stay their
// owner's. Cost:       that allocation. Not here:   which tensors exist (KvPool::logical_view),
// Python capsules (bindings/).
#pragma once

#include <cstdint>

#include "stemma/kv_shape.h"
#include "stemma/result.h"

namespace stemma::dlpack {

inline constexpr std::uint32_t kMajorVersion = 1;
inline constexpr std::uint32_t kMinorVersion = 0;
inline constexpr std::uint32_t kMinorVersionFloat8 = 1;  // where the codes of fp8 came in

inline constexpr std::int32_t kDeviceCpu = 1;
inline constexpr std::int32_t kDeviceCuda = 2;

inline constexpr std::uint8_t kTypeInt = 0;
inline constexpr std::uint8_t kTypeFloat = 2;
inline constexpr std::uint8_t kTypeBfloat = 4;
inline constexpr std::uint8_t kTypeFloat8E4M3 = 10;  // its "e4m3fn": finite, no infinity
inline constexpr std::uint8_t kTypeFloat8E5M2 = 12;

inline constexpr std::uint64_t kFlagReadOnly = 1;

struct Version {
  std::uint32_t major = kMajorVersion;
  std::uint32_t minor = kMinorVersion;
};

struct Device {
  std::int32_t type = kDeviceCpu;
  std::int32_t id = 0;
};

struct Type {
  std::uint8_t code = kTypeFloat;
  std::uint8_t bits = 32;
  std::uint16_t lanes = 1;
};

struct Tensor {
  void* elements = nullptr;
  Device device;
  std::int32_t dims = 0;
  Type type;
  std::int64_t* shape = nullptr;
  std::int64_t* strides = nullptr;  // in elements
  std::uint64_t byte_offset = 0;
};

struct ManagedTensorVersioned {
  Version version;
  void* owner_context = nullptr;
  void (*deleter)(ManagedTensorVersioned* self) = nullptr;
  std::uint64_t flags = 0;
  Tensor tensor;
};

static_assert(sizeof(Tensor) == 48 && sizeof(ManagedTensorVersioned) == 80,
              "the layout that other libraries were compiled with (64-bit)");

enum class Access : std::uint8_t { kReadWrite, kReadOnly };

// A tensor that names the view's bytes. Whoever takes it calls its deleter once. The bytes are not
// kept alive by it: their owner must outlive every reader. Elements of a scaled dtype are the
// codes. kInvalidArgument if the view has no bytes or a wrong number of dimensions.
Result<ManagedTensorVersioned*> export_view(const TensorView& view, DeviceKind device,
                                            Access access);

}  // namespace stemma::dlpack
