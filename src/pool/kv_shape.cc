#include "stemma/kv_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

namespace stemma {

namespace {

constexpr std::array kDTypes = {DType::kF32,     DType::kF16,     DType::kBF16,
                                DType::kFp8E4M3, DType::kFp8E5M2, DType::kInt8};
constexpr std::array kLayouts = {KvLayout::kLayerFirst, KvLayout::kPageFirst};

Error invalid(std::string detail) {
  return Error{ErrorCode::kInvalidArgument, std::move(detail), 0};
}

}  // namespace

std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    case DType::kFp8E4M3:
      return "fp8_e4m3";
    case DType::kFp8E5M2:
      return "fp8_e5m2";
    case DType::kInt8:
      return "int8";
  }
  return "unknown";
}

std::optional<DType> try_parse_dtype(std::string_view name) {
  if (name == "fp8") return DType::kFp8E4M3;  // as elsewhere
  for (const DType dtype : kDTypes) {
    if (dtype_name(dtype) == name) return dtype;
  }
  return std::nullopt;
}

std::string_view kv_kind_name(KvKind kind) {
  switch (kind) {
    case KvKind::kMha:
      return "mha";
    case KvKind::kMla:
      return "mla";
    case KvKind::kDoubleSparse:
      return "double_sparse";
  }
  return "unknown";
}

std::string_view kv_layout_name(KvLayout layout) {
  return layout == KvLayout::kLayerFirst ? "layer_first" : "page_first";
}

std::optional<KvLayout> try_parse_kv_layout(std::string_view name) {
  for (const KvLayout layout : kLayouts) {
    if (kv_layout_name(layout) == name) return layout;
  }
  return std::nullopt;
}

namespace {

// Kernels read labels in steps of 16 bytes of 16-bit elements.
constexpr std::int64_t kLabelChannelsStep = 8;

Status validate_labels(const KvShape& shape) {
  const std::int64_t channels = shape.label_channels;
  if (shape.kind != KvKind::kDoubleSparse) {
    if (channels == 0) return {};
    return invalid(
        fmt::format("KV shape: label_channels is {}, but only double_sparse has labels", channels));
  }
  if (is_scaled(shape.dtype)) {
    return invalid(
        fmt::format("KV shape: {} is scaled, but double_sparse labels are the very elements of K",
                    dtype_name(shape.dtype)));
  }
  if (channels >= 1 && channels < shape.head_dim && channels % kLabelChannelsStep == 0) return {};
  return invalid(
      fmt::format("KV shape: label_channels must be a multiple of {} below head_dim = {} (got {})",
                  kLabelChannelsStep, shape.head_dim, channels));
}

// What only pools of one kind have.
Status validate_kind(const KvShape& shape) {
  STEMMA_RETURN_IF_ERROR(validate_labels(shape));
  if (shape.kind != KvKind::kMla) {
    if (shape.latent_dim == 0) return {};
    return invalid(
        fmt::format("KV shape: latent_dim is {}, but only mla has latent rows", shape.latent_dim));
  }
  if (shape.heads != 1) {
    return invalid(fmt::format("KV shape: heads must be 1 for mla (got {})", shape.heads));
  }
  if (shape.latent_dim < 1 || shape.latent_dim >= shape.head_dim) {
    return invalid(fmt::format("KV shape: latent_dim must be in 1 ... head_dim - 1 = {} (got {})",
                               shape.head_dim - 1, shape.latent_dim));
  }
  return {};
}

}  // namespace

Status validate(const KvShape& shape) {
  const std::array<std::pair<std::string_view, std::int64_t>, 5> extents = {
      {{"layers", shape.layers},
       {"pages", shape.pages},
       {"page_size", shape.page_size},
       {"heads", shape.heads},
       {"head_dim", shape.head_dim}}};
  // Labels are narrower than K: no kind has more than three rows of a head. A scale has no more
  // bytes than four codes, and there is at least one of them.
  std::int64_t bytes =
      3 * dtype_bytes(shape.dtype) + (is_scaled(shape.dtype) ? 2 * kScaleBytes : 0);
  for (const auto& [name, extent] : extents) {
    const std::int64_t least = name == "layers" ? 0 : 1;
    if (extent < least) {
      return invalid(fmt::format("KV shape: {} must be at least {} (got {})", name, least, extent));
    }
    if (__builtin_mul_overflow(bytes, std::max<std::int64_t>(extent, 1), &bytes)) {
      return invalid(fmt::format("KV shape: the bytes of {} layers, {} pages do not fit 63 bits",
                                 shape.layers, shape.pages));
    }
  }
  return validate_kind(shape);
}

Result<std::int64_t> heads_per_rank(std::int64_t kv_heads, std::int64_t tp_size, bool replicate) {
  if (kv_heads < 1 || tp_size < 1) {
    return invalid(fmt::format("KV heads and tensor-parallel size must be at least 1 (got {}, {})",
                               kv_heads, tp_size));
  }
  if (kv_heads % tp_size == 0) return kv_heads / tp_size;
  if (replicate && tp_size % kv_heads == 0) return std::int64_t{1};
  return invalid(fmt::format("{} KV heads do not divide over {} tensor-parallel ranks{}", kv_heads,
                             tp_size, replicate ? ", nor ranks over heads" : ""));
}

}  // namespace stemma
