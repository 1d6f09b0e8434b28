#include "prefix/namespace_digest.h"

#include <algorithm>
#include <array>

namespace stemma {

namespace {

// 8 bytes, least significant first: the same on every machine.
std::array<std::byte, 8> little_endian(std::uint64_t value) {
  std::array<std::byte, 8> bytes;
  for (std::byte& byte : bytes) {
    byte = static_cast<std::byte>(value & 0xFF);
    value >>= 8;
  }
  return bytes;
}

NamespaceDigest in_family_of(const NamespaceDigest& other, const NamespaceDigest& digest) {
  return in_family(digest, family_of(other));
}

}  // namespace

NamespaceFamily family_of_tenant(std::string_view tenant) {
  return family_of(NamespaceFields().add(kTenantFamilyField, tenant).finish());
}

NamespaceDigest in_family(const NamespaceDigest& digest, const NamespaceFamily& family) {
  NamespaceDigest changed = digest;
  std::copy(family.bytes.begin(), family.bytes.end(), changed.bytes.begin());
  return changed;
}

NamespaceFields::NamespaceFields() {
  start();
}

NamespaceFields& NamespaceFields::add(std::string_view field, std::string_view text) {
  add_frame(FieldType::kText, field, std::as_bytes(std::span(text)));
  return *this;
}

NamespaceFields& NamespaceFields::add(std::string_view field, std::int64_t number) {
  add_frame(FieldType::kNumber, field, little_endian(static_cast<std::uint64_t>(number)));
  return *this;
}

NamespaceFields& NamespaceFields::add(std::string_view field, std::span<const std::byte> bytes) {
  add_frame(FieldType::kBytes, field, bytes);
  return *this;
}

NamespaceDigest NamespaceFields::finish() {
  NamespaceDigest digest{hasher_.finish()};
  start();
  return digest;
}

NamespaceDigest adapted(const NamespaceDigest& plain, const Sha256Digest& adapter) {
  return in_family_of(plain, NamespaceFields()
                                 .add("without adapter", std::as_bytes(std::span(plain.bytes)))
                                 .add("adapter_sha256", adapter)
                                 .finish());
}

NamespaceDigest of_rank(const NamespaceDigest& first, std::int64_t rank) {
  return in_family_of(first, NamespaceFields()
                                 .add("of rank 0", std::as_bytes(std::span(first.bytes)))
                                 .add("rank", rank)
                                 .finish());
}

NamespaceDigest grafted(const NamespaceDigest& own, const PageKey& last_shared) {
  return in_family_of(own, NamespaceFields()
                               .add("behind", std::as_bytes(std::span(last_shared.bytes)))
                               .add("namespace", std::as_bytes(std::span(own.bytes)))
                               .finish());
}

std::string namespace_name(const NamespaceDigest& digest) {
  constexpr std::size_t kShownBytes = 4;
  const std::span<const std::uint8_t> bytes(digest.bytes);
  const std::size_t family_bytes = family_of(digest).bytes.size();
  return to_hex(bytes.first(kShownBytes)) + "." + to_hex(bytes.subspan(family_bytes, kShownBytes));
}

// The name of the format comes first, so that a later one never gives the digests of this one.
void NamespaceFields::start() {
  hasher_.update("stemma.namespace.1");
}

void NamespaceFields::add_frame(FieldType type, std::string_view field,
                                std::span<const std::byte> value) {
  const std::byte type_byte{static_cast<std::uint8_t>(type)};
  hasher_.update(std::span(&type_byte, 1));
  hasher_.update(little_endian(field.size()));
  hasher_.update(field);
  hasher_.update(little_endian(value.size()));
  hasher_.update(value);
}

}  // namespace stemma
