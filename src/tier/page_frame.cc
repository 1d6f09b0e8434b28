// The header is 256 bytes at fixed offsets, numbers little-endian:
//
//     0  magic "STEMPAGE"          80  generation          u64
//     8  version            u32    88  key                 32 bytes
//    12  checksum           u32   120  parent              32 bytes
//    16  frame bytes        u64   152  namespace           32 bytes
//    24  body offset        u64   184  dtype               u32
//    32  layers             u64   188  zero                u32
//    40  layer bytes        u64   192  kind                16 bytes, zeros behind the name
//    48  page size          u64   208  codec               16 bytes, zeros behind the name
//    56  heads              u64   224  zeros               32 bytes
//    64  head dim           u64   256  tokens, then sums, then zeros up to the body
//    72  ordinal            u64
//
// The checksum covers every byte before the body except itself, the zeros too: whatever flips there
// is found, and nothing can be hidden between the fields.
#include "tier/page_frame.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/crc32c.h"

namespace stemma {

static_assert(std::endian::native == std::endian::little, "frames are read in place");

namespace {

constexpr std::array<char, 8> kMagic = {'S', 'T', 'E', 'M', 'P', 'A', 'G', 'E'};
constexpr std::uint32_t kVersion = 1;

constexpr std::size_t kVersionAt = 8;
constexpr std::size_t kChecksumAt = 12;
constexpr std::size_t kFrameBytesAt = 16;
constexpr std::size_t kBodyOffsetAt = 24;
constexpr std::size_t kLayersAt = 32;
constexpr std::size_t kLayerBytesAt = 40;
constexpr std::size_t kPageSizeAt = 48;
constexpr std::size_t kHeadsAt = 56;
constexpr std::size_t kHeadDimAt = 64;
constexpr std::size_t kOrdinalAt = 72;
constexpr std::size_t kGenerationAt = 80;
constexpr std::size_t kKeyAt = 88;
constexpr std::size_t kParentAt = 120;
constexpr std::size_t kNamespaceAt = 152;
constexpr std::size_t kDTypeAt = 184;
constexpr std::size_t kKindAt = 192;
constexpr std::size_t kCodecAt = 208;
constexpr std::size_t kNameBytes = 16;
constexpr std::size_t kHeaderBytes = 256;

// Bounds of what a frame may say, far above what is in use, so that sizes made of them fit 63 bits.
constexpr std::int64_t kCountMax = std::int64_t{1} << 20;
constexpr std::int64_t kLayerBytesMax = std::int64_t{1} << 36;
constexpr std::int64_t kNumberMax = std::numeric_limits<std::int64_t>::max();

constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + kFrameAlignment - 1) / kFrameAlignment * kFrameAlignment;
}

template <typename T>
void put(std::span<std::byte> frame, std::size_t offset, const T& value) {
  std::memcpy(frame.data() + offset, &value, sizeof(value));
}

template <typename T>
T get(std::span<const std::byte> frame, std::size_t offset) {
  T value;
  std::memcpy(&value, frame.data() + offset, sizeof(value));
  return value;
}

Error corrupt(std::string_view field, std::string_view what) {
  return Error{ErrorCode::kCorrupt, "page frame: " + std::string(field) + " " + std::string(what)};
}

// Of everything before the body, the checksum's own four bytes left out.
std::uint32_t header_checksum(std::span<const std::byte> frame, std::size_t body_offset) {
  const std::uint32_t before = crc32c(frame.first(kChecksumAt));
  return crc32c(frame.subspan(kChecksumAt + sizeof(std::uint32_t),
                              body_offset - kChecksumAt - sizeof(std::uint32_t)),
                before);
}

void put_name(std::span<std::byte> frame, std::size_t offset, std::string_view name) {
  STEMMA_CHECK_LT(name.size(), kNameBytes);
  std::memcpy(frame.data() + offset, name.data(), name.size());
}

Result<std::string_view> get_name(std::span<const std::byte> frame, std::size_t offset,
                                  std::string_view field) {
  const auto* const chars = reinterpret_cast<const char*>(frame.data() + offset);
  const std::string_view name(chars, ::strnlen(chars, kNameBytes));
  if (name.size() == kNameBytes) return corrupt(field, "has no end");
  return name;
}

struct NumberField {
  std::string_view name;
  std::size_t offset;
  std::int64_t min;
  std::int64_t max;
  std::int64_t* value;
};

Status read_numbers(std::span<const std::byte> frame, PageFrameView& view) {
  PageFormat& format = view.format;
  const NumberField fields[] = {
      {"layers", kLayersAt, 0, kCountMax, &format.layers},
      {"layer_bytes", kLayerBytesAt, 1, kLayerBytesMax, &format.layer_bytes},
      {"page_size", kPageSizeAt, 1, kCountMax, &format.page_size},
      {"heads", kHeadsAt, 0, kCountMax, &format.heads},
      {"head_dim", kHeadDimAt, 0, kCountMax, &format.head_dim},
      {"ordinal", kOrdinalAt, 0, kNumberMax, &view.identity.ordinal},
  };
  for (const NumberField& field : fields) {
    const auto number = get<std::int64_t>(frame, field.offset);
    if (number < field.min || number > field.max) return corrupt(field.name, "is out of bounds");
    *field.value = number;
  }
  const auto dtype = get<std::uint32_t>(frame, kDTypeAt);
  if (dtype > static_cast<std::uint32_t>(DType::kInt8)) return corrupt("dtype", "is not known");
  format.dtype = static_cast<DType>(dtype);
  view.generation = get<std::uint64_t>(frame, kGenerationAt);
  return {};
}

// Magic, version, and that the sizes agree with each other and with the bytes that are there.
Status read_sizes(std::span<const std::byte> frame, PageFrameView& view) {
  if (frame.size() < kFrameAlignment) return corrupt("frame_bytes", "are too few");
  if (std::memcmp(frame.data(), kMagic.data(), kMagic.size()) != 0) {
    return corrupt("magic", "is not a page's");
  }
  const auto version = get<std::uint32_t>(frame, kVersionAt);
  if (version > kVersion) {
    return Error{ErrorCode::kUnsupported,
                 "page frame: version " + std::to_string(version) + " is later than this program"};
  }
  if (version != kVersion) return corrupt("version", "is out of bounds");
  STEMMA_RETURN_IF_ERROR(read_numbers(frame, view));
  const auto said_bytes = get<std::uint64_t>(frame, kFrameBytesAt);
  if (said_bytes != frame_bytes(view.format) || said_bytes != frame.size()) {
    return corrupt("frame_bytes", "do not agree with the format or with the bytes that are there");
  }
  if (get<std::uint64_t>(frame, kBodyOffsetAt) != frame_body_offset(view.format)) {
    return corrupt("body_offset", "does not agree with the format");
  }
  return {};
}

// A field of a frame against what was asked for.
Status same(bool equal, std::string_view field) {
  if (equal) return {};
  return corrupt(field, "is not the one asked for");
}

Status check_identity(const PageIdentity& found, const PageIdentity& wanted) {
  STEMMA_RETURN_IF_ERROR(same(found.key == wanted.key, "key"));
  STEMMA_RETURN_IF_ERROR(same(found.parent == wanted.parent, "parent"));
  STEMMA_RETURN_IF_ERROR(same(found.namespace_digest == wanted.namespace_digest, "namespace"));
  STEMMA_RETURN_IF_ERROR(same(found.ordinal == wanted.ordinal, "ordinal"));
  return same(std::ranges::equal(found.tokens, wanted.tokens), "tokens");
}

Status check_format(const PageFormat& found, const PageFormat& wanted) {
  STEMMA_RETURN_IF_ERROR(same(found.layers == wanted.layers, "layers"));
  STEMMA_RETURN_IF_ERROR(same(found.layer_bytes == wanted.layer_bytes, "layer_bytes"));
  STEMMA_RETURN_IF_ERROR(same(found.page_size == wanted.page_size, "page_size"));
  STEMMA_RETURN_IF_ERROR(same(found.heads == wanted.heads, "heads"));
  STEMMA_RETURN_IF_ERROR(same(found.head_dim == wanted.head_dim, "head_dim"));
  STEMMA_RETURN_IF_ERROR(same(found.dtype == wanted.dtype, "dtype"));
  STEMMA_RETURN_IF_ERROR(same(found.kind == wanted.kind, "kind"));
  return same(found.codec == wanted.codec, "codec");
}

}  // namespace

std::size_t frame_body_offset(const PageFormat& format) noexcept {
  return aligned(kHeaderBytes + static_cast<std::size_t>(format.page_size) * sizeof(TokenId) +
                 static_cast<std::size_t>(format.layers) * sizeof(std::uint32_t));
}

PageIdentity windowed_identity(PageIdentity page, PageKeyHasher& hasher) {
  page.parent = hasher.windowed_parent(page.parent);
  page.key = hasher.next(page.parent, page.tokens);
  return page;
}

std::size_t frame_bytes(const PageFormat& format) noexcept {
  return frame_body_offset(format) + aligned(static_cast<std::size_t>(format.layers) *
                                             static_cast<std::size_t>(format.layer_bytes));
}

void encode_frame(const PageFormat& format, const PageIdentity& identity,
                  std::span<const std::uint32_t> layer_sums, std::uint64_t generation,
                  std::span<std::byte> frame) {
  const std::size_t body_offset = frame_body_offset(format);
  STEMMA_CHECK_EQ(frame.size(), frame_bytes(format));
  STEMMA_CHECK_EQ(std::ssize(layer_sums), format.layers);
  STEMMA_CHECK_EQ(std::ssize(identity.tokens), format.page_size);
  const std::size_t body_bytes = static_cast<std::size_t>(format.layers * format.layer_bytes);
  std::memset(frame.data(), 0, body_offset);
  std::memset(frame.data() + body_offset + body_bytes, 0, frame.size() - body_offset - body_bytes);
  put(frame, 0, kMagic);
  put(frame, kVersionAt, kVersion);
  put(frame, kFrameBytesAt, std::uint64_t{frame.size()});
  put(frame, kBodyOffsetAt, std::uint64_t{body_offset});
  put(frame, kLayersAt, format.layers);
  put(frame, kLayerBytesAt, format.layer_bytes);
  put(frame, kPageSizeAt, format.page_size);
  put(frame, kHeadsAt, format.heads);
  put(frame, kHeadDimAt, format.head_dim);
  put(frame, kOrdinalAt, identity.ordinal);
  put(frame, kGenerationAt, generation);
  put(frame, kKeyAt, identity.key);
  put(frame, kParentAt, identity.parent);
  put(frame, kNamespaceAt, identity.namespace_digest);
  put(frame, kDTypeAt, static_cast<std::uint32_t>(format.dtype));
  put_name(frame, kKindAt, format.kind);
  put_name(frame, kCodecAt, format.codec);
  std::memcpy(frame.data() + kHeaderBytes, identity.tokens.data(), identity.tokens.size_bytes());
  const std::size_t sums_at = kHeaderBytes + identity.tokens.size_bytes();
  std::ranges::copy(std::as_bytes(layer_sums),
                    frame.begin() + static_cast<std::ptrdiff_t>(sums_at));
  put(frame, kChecksumAt, header_checksum(frame, body_offset));
}

std::size_t peek_body_offset(std::span<const std::byte> begin, std::size_t frame_bytes) noexcept {
  if (begin.size() < kFrameAlignment) return 0;
  if (std::memcmp(begin.data(), kMagic.data(), kMagic.size()) != 0) return 0;
  const auto offset = get<std::uint64_t>(begin, kBodyOffsetAt);
  return offset <= frame_bytes ? offset : 0;
}

std::optional<NamespaceDigest> peek_namespace(std::span<const std::byte> begin) noexcept {
  static_assert(kNamespacePeekBytes == kNamespaceAt + sizeof(NamespaceDigest));
  if (begin.size() < kNamespacePeekBytes) return std::nullopt;
  if (std::memcmp(begin.data(), kMagic.data(), kMagic.size()) != 0) return std::nullopt;
  if (get<std::uint32_t>(begin, kVersionAt) != kVersion) return std::nullopt;
  return get<NamespaceDigest>(begin, kNamespaceAt);
}

bool peek_is_behind(std::span<const std::byte> begin, std::span<const NamespaceFamily> families,
                    std::int64_t pages_before) noexcept {
  const std::optional<NamespaceDigest> owner = peek_namespace(begin);
  return owner.has_value() && is_of_any(*owner, families) &&
         get<std::int64_t>(begin, kOrdinalAt) >= pages_before;
}

Result<PageFrameView> read_frame(std::span<const std::byte> frame) {
  STEMMA_CHECK(reinterpret_cast<std::uintptr_t>(frame.data()) % alignof(std::uint64_t) == 0,
               "frames are read in place");
  PageFrameView view;
  STEMMA_RETURN_IF_ERROR(read_sizes(frame, view));
  const std::size_t body_offset = frame_body_offset(view.format);
  if (get<std::uint32_t>(frame, kChecksumAt) != header_checksum(frame, body_offset)) {
    return corrupt("header checksum", "is wrong");
  }
  STEMMA_ASSIGN_OR_RETURN(view.format.kind, get_name(frame, kKindAt, "kind"));
  STEMMA_ASSIGN_OR_RETURN(view.format.codec, get_name(frame, kCodecAt, "codec"));
  view.identity.key = get<PageKey>(frame, kKeyAt);
  view.identity.parent = get<PageKey>(frame, kParentAt);
  view.identity.namespace_digest = get<NamespaceDigest>(frame, kNamespaceAt);
  const auto tokens = static_cast<std::size_t>(view.format.page_size);
  const auto layers = static_cast<std::size_t>(view.format.layers);
  const std::byte* const token_bytes = frame.data() + kHeaderBytes;
  view.identity.tokens = {reinterpret_cast<const TokenId*>(token_bytes), tokens};
  view.layer_sums = {reinterpret_cast<const std::uint32_t*>(token_bytes + tokens * sizeof(TokenId)),
                     layers};
  view.body =
      frame.subspan(body_offset, layers * static_cast<std::size_t>(view.format.layer_bytes));
  return view;
}

Result<PageFrameView> check_frame(std::span<const std::byte> frame, const PageFormat& format,
                                  const PageIdentity& identity) {
  STEMMA_ASSIGN_OR_RETURN(const PageFrameView view, read_frame(frame));
  STEMMA_RETURN_IF_ERROR(check_identity(view.identity, identity));
  STEMMA_RETURN_IF_ERROR(check_format(view.format, format));
  return view;
}

Status check_body(const PageFrameView& frame) {
  const auto layer_bytes = static_cast<std::size_t>(frame.format.layer_bytes);
  for (std::size_t layer = 0; layer < frame.layer_sums.size(); ++layer) {
    if (crc32c(frame.body.subspan(layer * layer_bytes, layer_bytes)) != frame.layer_sums[layer]) {
      return corrupt("layer " + std::to_string(layer), "is not what was written");
    }
  }
  return {};
}

}  // namespace stemma
