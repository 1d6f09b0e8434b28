// Covers whose key is whose: the file of keys, and requests with and without one.
#include "server/key_book.h"

#include <gtest/gtest.h>

namespace stemma {
namespace {

std::string digest_of(std::string_view key) {
  return to_hex(sha256(std::as_bytes(std::span(key))));
}

std::string error_of(const std::string& text) {
  const auto book = KeyBook::parse(text, "keys");
  return book.ok() ? "accepted" : book.error().detail;
}

TEST(KeyBook, KnowsTenantsByTheirKeys) {
  const std::string file = "# who is who\n\nalice " + digest_of("a-key") + "\nalice " +
                           digest_of("second") + " pages=40\nops " + digest_of("o-key") +
                           " admin  # may flush\n";
  const auto book = KeyBook::parse(file, "keys");
  ASSERT_TRUE(book.ok()) << to_string(book.error());
  EXPECT_FALSE(book->open_to_all());
  const auto caller = [&](const std::string& header) { return book->caller_of(&header); };
  EXPECT_EQ(caller("Bearer a-key")->tenant, "alice");
  EXPECT_EQ(caller("bearer a-key")->tenant, "alice");
  EXPECT_FALSE(caller("Bearer a-key")->admin);
  EXPECT_EQ(caller("Bearer second")->tenant, "alice");
  EXPECT_TRUE(caller("Bearer o-key")->admin);
  for (const char* const wrong :
       {"Bearer other", "Bearer ", "Bearer", "a-key", "Basic a-key", ""}) {
    EXPECT_FALSE(caller(wrong).has_value()) << wrong;
  }
  EXPECT_FALSE(book->caller_of(nullptr).has_value());
}

// Clients of Anthropic's send it so. Who sends both says who it is by the one that all know.
TEST(KeyBook, AKeyMayComeInAHeaderOfItsOwn) {
  const auto book =
      KeyBook::parse("alice " + digest_of("a-key") + "\nbob " + digest_of("b-key"), "keys");
  ASSERT_TRUE(book.ok()) << to_string(book.error());
  const std::string alice = "a-key";
  const std::string bob = "Bearer b-key";
  const std::string nobody = "Bearer other";
  const std::string none;
  EXPECT_EQ(book->caller_of(nullptr, &alice)->tenant, "alice");
  EXPECT_EQ(book->caller_of(&bob, &alice)->tenant, "bob");
  EXPECT_FALSE(book->caller_of(&nobody, &alice).has_value());
  EXPECT_FALSE(book->caller_of(nullptr, &bob).has_value());
  EXPECT_FALSE(book->caller_of(nullptr, &none).has_value());
}

// As some editors write it before the first line; elsewhere it is part of a name.
TEST(KeyBook, AMarkOfByteOrderIsNoPartOfATenant) {
  const std::string mark = "\xEF\xBB\xBF";
  const auto book = KeyBook::parse(
      mark + "alice " + digest_of("a-key") + "\n" + mark + "bob " + digest_of("b-key"), "keys");
  ASSERT_TRUE(book.ok()) << to_string(book.error());
  const std::string alice = "Bearer a-key";
  EXPECT_EQ(book->caller_of(&alice)->tenant, "alice");
  const std::string bob = "Bearer b-key";
  EXPECT_EQ(book->caller_of(&bob)->tenant, mark + "bob");
  EXPECT_EQ(error_of(mark), "keys: has no keys");
}

TEST(KeyBook, KnowsTheTenantsThatHaveKeys) {
  const auto book = KeyBook::parse("alice " + digest_of("1"), "keys");
  ASSERT_TRUE(book.ok()) << to_string(book.error());
  EXPECT_TRUE(book->has_tenant("alice"));
  for (const char* const other : {"alic", "alice ", "Alice", ""}) {
    EXPECT_FALSE(book->has_tenant(other)) << other;
  }
  EXPECT_FALSE(KeyBook().has_tenant(""));
}

TEST(KeyBook, ATenantHasTheQuotaOfAnyOfItsKeys) {
  const std::string file = "alice " + digest_of("1") + "\nalice " + digest_of("2") +
                           " pages=40\nbob " + digest_of("3") + " pages=7\nbob " + digest_of("4") +
                           " pages=7\nops " + digest_of("5") + " admin\n";
  const auto book = KeyBook::parse(file, "keys");
  ASSERT_TRUE(book.ok()) << to_string(book.error());
  const auto listed = [&](std::optional<std::int64_t> default_pages) {
    std::string list;
    for (const NamedQuota& quota : book->quotas(default_pages)) {
      list += quota.tenant + "=" + std::to_string(quota.pages) + " ";
    }
    return list;
  };
  EXPECT_EQ(listed(std::nullopt), "alice=40 bob=7 ");
  EXPECT_EQ(listed(20), "alice=40 bob=7 ops=20 ");
  EXPECT_TRUE(KeyBook().quotas(20).empty());
}

TEST(KeyBook, WithoutAFileEverybodyIsTheAdmin) {
  const KeyBook book;
  EXPECT_TRUE(book.open_to_all());
  EXPECT_TRUE(book.caller_of(nullptr)->admin);
  EXPECT_EQ(book.caller_of(nullptr)->tenant, "");
}

TEST(KeyBook, WrongLinesAreNamed) {
  EXPECT_EQ(error_of(""), "keys: has no keys");
  EXPECT_EQ(error_of("\nalice\n"), "keys:2: a tenant and a digest are wanted");
  EXPECT_EQ(error_of("alice 12"), "keys:1: the digest must be 64 hexadecimal digits (SHA-256)");
  EXPECT_EQ(error_of("alice " + std::string(64, 'g')),
            "keys:1: the digest must be 64 hexadecimal digits (SHA-256)");
  EXPECT_EQ(error_of("alice " + digest_of("k").replace(1, 1, "g")),
            "keys:1: the digest must be 64 hexadecimal digits (SHA-256)");
  const std::string line = "alice " + digest_of("k");
  EXPECT_EQ(error_of(line + " pages=0"), "keys:1: \"pages=0\" is neither admin nor pages=N");
  EXPECT_EQ(error_of(line + " boss"), "keys:1: \"boss\" is neither admin nor pages=N");
  EXPECT_EQ(error_of(line + "\nbob " + digest_of("k")), "keys:2: this key appears twice");
  EXPECT_EQ(error_of(line + " pages=5\nalice " + digest_of("l") + " pages=6"),
            "keys:2: alice has a quota of 5 pages by an earlier line");
}

}  // namespace
}  // namespace stemma
