#include "base/digest.h"

#include <openssl/evp.h>

#include "base/check.h"

namespace stemma {

Sha256::Sha256()
    : algorithm_(EVP_MD_fetch(nullptr, "SHA256", nullptr)), context_(EVP_MD_CTX_new()) {
  STEMMA_CHECK(algorithm_ != nullptr && context_ != nullptr, "OpenSSL provides SHA-256");
  start();
}

Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::span<const std::byte> bytes) {
  STEMMA_CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1,
               "hashing memory cannot fail");
}

Sha256Digest Sha256::finish() {
  Sha256Digest digest;
  unsigned int digest_bytes = 0;
  STEMMA_CHECK(EVP_DigestFinal_ex(context_.get(), digest.data(), &digest_bytes) == 1,
               "hashing memory cannot fail");
  STEMMA_CHECK_EQ(digest_bytes, digest.size());
  start();
  return digest;
}

Sha256Digest sha256(std::span<const std::byte> bytes) {
  Sha256 hasher;
  hasher.update(bytes);
  return hasher.finish();
}

std::string to_hex(std::span<const std::uint8_t> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  hex.reserve(bytes.size() * 2);
  for (const std::uint8_t byte : bytes) {
    hex.push_back(kDigits[byte >> 4]);
    hex.push_back(kDigits[byte & 15]);
  }
  return hex;
}

void Sha256::start() {
  STEMMA_CHECK(EVP_DigestInit_ex(context_.get(), algorithm_.get(), nullptr) == 1,
               "OpenSSL provides SHA-256");
}

void Sha256::FreeAlgorithm::operator()(evp_md_st* algorithm) const noexcept {
  EVP_MD_free(algorithm);
}

void Sha256::FreeContext::operator()(evp_md_ctx_st* context) const noexcept {
  EVP_MD_CTX_free(context);
}

}  // namespace stemma
