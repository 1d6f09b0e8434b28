// DLPack export: shape, strides, type and device as the ABI states them, without a copy; the
// deleter frees the export and nothing else (the sanitizers see to that).
#include "pool/dlpack.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

namespace stemma::dlpack {
namespace {

TensorView view_of(std::vector<float>& values, DType dtype) {
  TensorView view;
  view.bytes = values.data();
  view.dtype = dtype;
  view.dims = 3;
  view.shape = {2, 3, 4};
  view.stride = {12, 4, 1};
  return view;
}

TEST(Dlpack, LaysOutTheStructuresAsTheAbiStates) {
  EXPECT_EQ(offsetof(ManagedTensorVersioned, owner_context), 8u);
  EXPECT_EQ(offsetof(ManagedTensorVersioned, deleter), 16u);
  EXPECT_EQ(offsetof(ManagedTensorVersioned, flags), 24u);
  EXPECT_EQ(offsetof(ManagedTensorVersioned, tensor), 32u);
  EXPECT_EQ(offsetof(Tensor, device), 8u);
  EXPECT_EQ(offsetof(Tensor, dims), 16u);
  EXPECT_EQ(offsetof(Tensor, type), 20u);
  EXPECT_EQ(offsetof(Tensor, shape), 24u);
  EXPECT_EQ(offsetof(Tensor, strides), 32u);
  EXPECT_EQ(offsetof(Tensor, byte_offset), 40u);
}

TEST(Dlpack, ExportsAViewWithoutCopying) {
  std::vector<float> values(24);
  auto exported = export_view(view_of(values, DType::kF32), DeviceKind::kCpu, Access::kReadOnly);
  ASSERT_TRUE(exported.ok());
  ManagedTensorVersioned* const managed = *exported;
  EXPECT_EQ(managed->version.major, 1u);
  EXPECT_EQ(managed->flags, kFlagReadOnly);
  EXPECT_EQ(managed->tensor.elements, values.data());
  EXPECT_EQ(managed->tensor.device.type, kDeviceCpu);
  ASSERT_EQ(managed->tensor.dims, 3);
  EXPECT_EQ(std::vector(managed->tensor.shape, managed->tensor.shape + 3),
            (std::vector<std::int64_t>{2, 3, 4}));
  EXPECT_EQ(std::vector(managed->tensor.strides, managed->tensor.strides + 3),
            (std::vector<std::int64_t>{12, 4, 1}));
  static_cast<float*>(managed->tensor.elements)[5] = 7;
  EXPECT_EQ(values[5], 7);
  managed->deleter(managed);
  EXPECT_EQ(values[5], 7);
}

// Who takes it has it for as long as it likes.
TEST(Dlpack, AnExportHasItsOwnShape) {
  std::vector<float> values(24);
  TensorView view = view_of(values, DType::kF32);
  ManagedTensorVersioned* const managed =
      export_view(view, DeviceKind::kCpu, Access::kReadWrite).value();
  view.shape.fill(1);
  view.stride.fill(99);
  EXPECT_EQ(managed->tensor.shape[0], 2);
  EXPECT_EQ(managed->tensor.strides[0], 12);
  managed->deleter(managed);
}

TEST(Dlpack, NamesEachDtype) {
  std::vector<float> values(24);
  const auto type_of = [&](DType dtype) {
    auto exported = export_view(view_of(values, dtype), DeviceKind::kCpu, Access::kReadWrite);
    const Type type = (*exported)->tensor.type;
    EXPECT_EQ((*exported)->flags, 0u);
    (*exported)->deleter(*exported);
    return type;
  };
  EXPECT_EQ(type_of(DType::kF32).code, kTypeFloat);
  EXPECT_EQ(type_of(DType::kF32).bits, 32);
  EXPECT_EQ(type_of(DType::kF16).code, kTypeFloat);
  EXPECT_EQ(type_of(DType::kF16).bits, 16);
  EXPECT_EQ(type_of(DType::kBF16).code, kTypeBfloat);
  EXPECT_EQ(type_of(DType::kBF16).bits, 16);
  EXPECT_EQ(type_of(DType::kInt8).code, kTypeInt);
  EXPECT_EQ(type_of(DType::kInt8).bits, 8);
  EXPECT_EQ(type_of(DType::kFp8E4M3).code, kTypeFloat8E4M3);
  EXPECT_EQ(type_of(DType::kFp8E5M2).code, kTypeFloat8E5M2);
  EXPECT_EQ(type_of(DType::kFp8E5M2).bits, 8);
}

// Readers of version 1.0 do not know the codes of fp8: they are told.
TEST(Dlpack, NamesTheVersionThatItsTypeNeeds) {
  std::vector<float> values(24);
  const auto minor_of = [&](DType dtype) {
    auto exported = export_view(view_of(values, dtype), DeviceKind::kCpu, Access::kReadOnly);
    const std::uint32_t minor = (*exported)->version.minor;
    (*exported)->deleter(*exported);
    return minor;
  };
  EXPECT_EQ(minor_of(DType::kBF16), 0u);
  EXPECT_EQ(minor_of(DType::kInt8), 0u);
  EXPECT_EQ(minor_of(DType::kFp8E4M3), 1u);
  EXPECT_EQ(minor_of(DType::kFp8E5M2), 1u);
}

TEST(Dlpack, RefusesAViewWithoutBytesOrDimensions) {
  std::vector<float> values(24);
  TensorView no_bytes = view_of(values, DType::kF32);
  no_bytes.bytes = nullptr;
  TensorView no_dims = view_of(values, DType::kF32);
  no_dims.dims = 0;
  EXPECT_FALSE(export_view(no_bytes, DeviceKind::kCpu, Access::kReadOnly).ok());
  EXPECT_FALSE(export_view(no_dims, DeviceKind::kCpu, Access::kReadOnly).ok());
}

}  // namespace
}  // namespace stemma::dlpack
