// KeyBook: whose key is whose. A tenant is known by the key of its requests, never by what a body
// says.
//
// The file has one key a line:
//
//   tenant  sha256-of-the-key-in-hex  [admin]  [pages=N]
//
// with '#' for comments; a mark of byte order before the first line is passed over. A tenant may
// have several keys, and one quota: that of one line, or the same of each. Keys are random and
// long, so their plain SHA-256 gives nothing away. A server without a file serves everybody as one
// tenant, its admin.
//
// Thread:     immutable.
// Memory:     about 100 bytes a key.
// Cost:       one SHA-256 a request.
// Not here:   namespaces (preparation), what a quota is worth (prefix/tenant_quotas).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest.h"
#include "stemma/result.h"

namespace stemma {

// Who asks.
struct Caller {
  std::string tenant = {};  // empty: the server knows no tenants
  bool admin = false;
};

// Pages of the device that a tenant's cached texts keep while others want pages.
struct NamedQuota {
  std::string tenant;
  std::int64_t pages = 0;
};

class KeyBook {
 public:
  // Of a server without keys.
  KeyBook() = default;
  // Errors name file and line.
  static Result<KeyBook> load(const std::string& file);
  static Result<KeyBook> parse(std::string_view text, std::string_view file_name);

  bool open_to_all() const noexcept { return callers_.empty(); }
  // Whose request it is, by the value of its header Authorization ("Bearer KEY") or, where it has
  // none, of X-Api-Key; nullptr: it has none. nullopt: nobody's.
  std::optional<Caller> caller_of(const std::string* authorization_or_null,
                                  const std::string* api_key_or_null = nullptr) const;

  // Whether a key is this tenant's.
  bool has_tenant(const std::string& tenant) const { return quota_pages_.contains(tenant); }

  // By tenant; of one that names no quota it is `default_pages`, if that is given.
  std::vector<NamedQuota> quotas(std::optional<std::int64_t> default_pages) const;

 private:
  struct Line;
  static bool take_word(std::string_view word, Line& line);
  // What is wrong with a line that could be read; empty: nothing.
  std::string add(const Sha256Digest& digest, Line line);

  std::map<Sha256Digest, Caller> callers_;
  std::map<std::string, std::optional<std::int64_t>> quota_pages_;  // of every tenant
};

}  // namespace stemma
