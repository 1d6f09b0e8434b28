// NamespaceFields: builds the digest of everything that makes pages valid, field by field.
//
// Each field is hashed as a frame {type, length of name, name, length of value, value}, so that no
// two lists of fields give the same bytes: ("bc", "a") differs from ("c", "ab"), 1 from "1", and a
// missing field from an empty one.
//
// Thread:     one thread a builder.
// Memory:     one hasher.
// Cost:       one SHA-256 over the fields.
// Not here:   which fields there are (whoever opens a cache for a model), short ids
// (namespace_registry).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/digest.h"
#include "stemma/prefix_cache.h"

namespace stemma {

// Fields count in the order in which they are added: add them in one fixed order.
class NamespaceFields {
 public:
  NamespaceFields();

  NamespaceFields& add(std::string_view field, std::string_view text);
  NamespaceFields& add(std::string_view field, const char* text) {
    return add(field, std::string_view(text));
  }
  NamespaceFields& add(std::string_view field, std::int64_t number);
  NamespaceFields& add(std::string_view field, std::span<const std::byte> bytes);
  NamespaceFields& add(std::string_view field, const Sha256Digest& digest) {
    return add(field, std::as_bytes(std::span(digest)));
  }

  // The digest of the fields so far; the builder starts anew.
  NamespaceDigest finish();

 private:
  enum class FieldType : std::uint8_t { kText = 1, kNumber = 2, kBytes = 3 };
  void start();
  void add_frame(FieldType type, std::string_view field, std::span<const std::byte> value);

  Sha256 hasher_;
};

// The field that the family of a tenant is the digest of.
inline constexpr std::string_view kTenantFamilyField = "family of tenant";

// What the namespaces of a tenant have in common.
NamespaceFamily family_of_tenant(std::string_view tenant);

// The digest, of this family.
NamespaceDigest in_family(const NamespaceDigest& digest, const NamespaceFamily& family);

// The namespace of what would be in `plain`, but is computed with an adapter of this digest:
// another for every adapter, of the same family.
NamespaceDigest adapted(const NamespaceDigest& plain, const Sha256Digest& adapter);

// The namespace of what rank `rank` of several has, its own heads, of what rank 0 has in `first`:
// another for every rank, of the same family.
NamespaceDigest of_rank(const NamespaceDigest& first, std::int64_t rank);

// The namespace of what goes on from a text that others share, whose last page is `last_shared`,
// and would be in `own` without: another for every such text, of the same family.
NamespaceDigest grafted(const NamespaceDigest& own, const PageKey& last_shared);

// What people tell namespaces apart by, also those of one family: "f3326be7.1a2b3c4d", the first
// digits of the family and the first behind it.
std::string namespace_name(const NamespaceDigest& digest);

}  // namespace stemma
