#include "replay/capture_hashes.h"

#include <unistd.h>

#include <cerrno>

#include "prefix/page_key.h"

namespace stemma {

namespace {

constexpr std::size_t kPageNameBytes = 8;
constexpr std::size_t kNamespaceNameBytes = 6;

}  // namespace

Result<CaptureSalt> make_capture_salt() {
  CaptureSalt salt;
  if (getentropy(salt.data(), salt.size()) != 0) {
    return Error{ErrorCode::kIo, "--capture: no random numbers from the system", errno};
  }
  return salt;
}

std::vector<std::string> CaptureHashes::name_pages(const NamespaceDigest& digest,
                                                   std::span<const TokenId> tokens,
                                                   const std::optional<SharedPrefix>& shared) {
  const auto page = static_cast<std::size_t>(page_size_);
  const auto shared_tokens = static_cast<std::size_t>(shared.has_value() ? shared->tokens : 0);
  PageKeyChain shared_keys(shared.has_value() ? shared->digest : digest);
  PageKeyChain own_keys(digest);
  std::vector<std::string> names;
  for (std::size_t i = 0; i + page <= tokens.size(); i += page) {
    PageKeyChain& keys = i < shared_tokens ? shared_keys : own_keys;
    names.push_back(name(keys.append(tokens.subspan(i, page)).bytes, kPageNameBytes));
  }
  return names;
}

std::string CaptureHashes::name_namespace(const NamespaceDigest& digest) {
  return name(digest.bytes, kNamespaceNameBytes);
}

std::string CaptureHashes::name(std::span<const std::uint8_t> bytes, std::size_t name_bytes) {
  hasher_.update(salt_);
  hasher_.update(std::as_bytes(bytes));
  const Sha256Digest digest = hasher_.finish();
  return to_hex(std::span(digest).first(name_bytes));
}

}  // namespace stemma
