#include "store/frame_seal.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include "base/check.h"
#include "base/digest.h"

namespace stemma {

namespace {

struct FreeMac {
  void operator()(EVP_MAC* mac) const noexcept { ::EVP_MAC_free(mac); }
};
struct FreeDigest {
  void operator()(EVP_MD_CTX* context) const noexcept { ::EVP_MD_CTX_free(context); }
};

const unsigned char* raw(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

}  // namespace

FrameSeal::FrameSeal(std::string_view secret) {
  STEMMA_CHECK(!secret.empty(), "a seal needs a secret");
  const std::unique_ptr<EVP_MAC, FreeMac> mac(::EVP_MAC_fetch(nullptr, "HMAC", nullptr));
  STEMMA_CHECK(mac != nullptr, "OpenSSL has HMAC");
  context_.reset(::EVP_MAC_CTX_new(mac.get()));
  char digest[] = "SHA256";
  const OSSL_PARAM parameters[] = {
      ::OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
      ::OSSL_PARAM_construct_end()};
  const auto* const key = reinterpret_cast<const unsigned char*>(secret.data());
  STEMMA_CHECK(
      context_ != nullptr && ::EVP_MAC_init(context_.get(), key, secret.size(), parameters) == 1,
      "OpenSSL makes an HMAC of any secret");
}

void FrameSeal::FreeContext::operator()(evp_mac_ctx_st* context) const noexcept {
  ::EVP_MAC_CTX_free(context);
}

FrameTag FrameSeal::tag_of(const PageKey& key, std::span<const std::byte> frame) {
  return tag_of_pieces(std::as_bytes(std::span(key.bytes)), frame);
}

FrameTag FrameSeal::tag_of_pieces(std::span<const std::byte> first,
                                  std::span<const std::byte> second) {
  FrameTag tag;
  std::size_t size_bytes = 0;
  // Without a key it begins anew with the one that it has.
  const bool made = ::EVP_MAC_init(context_.get(), nullptr, 0, nullptr) == 1 &&
                    ::EVP_MAC_update(context_.get(), raw(first), first.size()) == 1 &&
                    ::EVP_MAC_update(context_.get(), raw(second), second.size()) == 1 &&
                    ::EVP_MAC_final(context_.get(), reinterpret_cast<unsigned char*>(tag.data()),
                                    &size_bytes, tag.size()) == 1;
  STEMMA_CHECK(made && size_bytes == tag.size(), "OpenSSL makes an HMAC of any bytes");
  return tag;
}

bool FrameSeal::is_tag_of(const PageKey& key, std::span<const std::byte> frame,
                          const FrameTag& tag) {
  const FrameTag right = tag_of(key, frame);
  return ::CRYPTO_memcmp(right.data(), tag.data(), tag.size()) == 0;
}

std::string FrameSeal::fingerprint() {
  constexpr std::string_view kName = "stemma remote store";
  const FrameTag tag = tag_of_pieces(std::as_bytes(std::span(kName)), {});
  return to_hex({reinterpret_cast<const std::uint8_t*>(tag.data()), 4});
}

std::string sha1_hex(std::span<const std::byte> first, std::span<const std::byte> second) {
  std::array<std::uint8_t, 20> digest = {};
  const std::unique_ptr<EVP_MD_CTX, FreeDigest> context(::EVP_MD_CTX_new());
  const bool made = context != nullptr &&
                    ::EVP_DigestInit_ex(context.get(), ::EVP_sha1(), nullptr) == 1 &&
                    ::EVP_DigestUpdate(context.get(), first.data(), first.size()) == 1 &&
                    ::EVP_DigestUpdate(context.get(), second.data(), second.size()) == 1 &&
                    ::EVP_DigestFinal_ex(context.get(), digest.data(), nullptr) == 1;
  STEMMA_CHECK(made, "OpenSSL makes a SHA-1 of any bytes");
  return to_hex(digest);
}

}  // namespace stemma
