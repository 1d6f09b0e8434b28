// Shape and strides must live as long as the exported tensor, so all three lie in one object that
// the deleter takes back.
#include "pool/dlpack.h"

#include <fmt/format.h>

#include <memory>

namespace stemma::dlpack {

namespace {

struct Exported {
  ManagedTensorVersioned managed;
  TensorView view;
};

void delete_exported(ManagedTensorVersioned* self) {
  if (self == nullptr) return;
  const std::unique_ptr<Exported> owned(static_cast<Exported*>(self->owner_context));
}

Type type_of(DType dtype) {
  Type type;
  switch (dtype) {
    case DType::kF32:
    case DType::kF16:
      type.code = kTypeFloat;
      break;
    case DType::kBF16:
      type.code = kTypeBfloat;
      break;
    case DType::kFp8E4M3:
      type.code = kTypeFloat8E4M3;
      break;
    case DType::kFp8E5M2:
      type.code = kTypeFloat8E5M2;
      break;
    case DType::kInt8:
      type.code = kTypeInt;
      break;
  }
  type.bits = static_cast<std::uint8_t>(8 * dtype_bytes(dtype));
  return type;
}

}  // namespace

Result<ManagedTensorVersioned*> export_view(const TensorView& view, DeviceKind device,
                                            Access access) {
  if (view.bytes == nullptr || view.dims < 1 || view.dims > TensorView::kDimsMax) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("DLPack export: no bytes, or {} dimensions (1 ... {})", view.dims,
                             TensorView::kDimsMax),
                 0};
  }
  auto exported = std::make_unique<Exported>();
  exported->view = view;
  ManagedTensorVersioned& managed = exported->managed;
  const bool is_float8 = view.dtype == DType::kFp8E4M3 || view.dtype == DType::kFp8E5M2;
  if (is_float8) managed.version.minor = kMinorVersionFloat8;
  managed.owner_context = exported.get();
  managed.deleter = &delete_exported;
  managed.flags = access == Access::kReadOnly ? kFlagReadOnly : 0;
  managed.tensor.elements = view.bytes;
  managed.tensor.device.type = device == DeviceKind::kCpu ? kDeviceCpu : kDeviceCuda;
  managed.tensor.dims = view.dims;
  managed.tensor.type = type_of(view.dtype);
  managed.tensor.shape = exported->view.shape.data();
  managed.tensor.strides = exported->view.stride.data();
  return &exported.release()->managed;
}

}  // namespace stemma::dlpack
