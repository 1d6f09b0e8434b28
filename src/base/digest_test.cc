// SHA-256 against the published examples (FIPS 180-4, NIST CAVP), whole and in pieces.
#include "base/digest.h"

#include <gtest/gtest.h>

#include <string>

namespace stemma {
namespace {

std::string hex_of(std::string_view text) {
  return to_hex(sha256(std::as_bytes(std::span(text))));
}

TEST(Digest, PublishedExamples) {
  EXPECT_EQ(hex_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex_of(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Digest, PiecesGiveTheDigestOfTheWhole) {
  const std::string text(300, 'x');
  for (std::size_t cut = 0; cut <= text.size(); cut += 37) {
    Sha256 hasher;
    hasher.update(std::string_view(text).substr(0, cut));
    hasher.update(std::string_view(text).substr(cut));
    EXPECT_EQ(to_hex(hasher.finish()), hex_of(text)) << cut;
  }
}

TEST(Digest, FinishBeginsTheNextDigest) {
  Sha256 hasher;
  hasher.update("something else");
  static_cast<void>(hasher.finish());
  hasher.update("abc");
  EXPECT_EQ(to_hex(hasher.finish()), hex_of("abc"));
  EXPECT_EQ(to_hex(hasher.finish()), hex_of(""));
}

TEST(Digest, AMovedHasherGoesOn) {
  Sha256 first;
  first.update("ab");
  Sha256 second = std::move(first);
  second.update("c");
  EXPECT_EQ(to_hex(second.finish()), hex_of("abc"));
}

}  // namespace
}  // namespace stemma
